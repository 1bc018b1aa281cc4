//! What the console and the coordinator exchange about sessions, in this process only.

use island_protocol::{
    credits::MicroCredits,
    fabric::Heartbeat,
    ids::{AccountId, ApiKeyId, HostId},
    time::Timestamp,
};
use island_protocol_api::key::Scope;
use serde::{Deserialize, Serialize};

/// Where a provider's confirmation of a person ends; the parameter `code` is added.
pub const SIGNED_IN: &str = "/console/sign-in/provider/end";
/// Where a program with a key gets a link that signs a browser in.
pub const LINKS: &str = "/console/links";

/// Routes of the coordinator that only the console reaches.
pub mod paths {
    /// The account of a session: [`super::Who`].
    pub const WHO: &str = "/internal/session";
    /// Begins a session for a key: [`super::Begun`].
    pub const BEGIN: &str = "/internal/session/begin";
    /// Makes a link for a key: [`super::Offer`].
    pub const OFFER: &str = "/internal/session/offer";
    /// Begins a session with the code of a link, in `code`: [`super::Begun`].
    pub const TAKE: &str = "/internal/session/take";
    /// Ends a session.
    pub const END: &str = "/internal/session/end";
    /// The Islands of the account of a session: a list of [`super::OwnIsland`].
    pub const ISLANDS: &str = "/internal/islands";
    /// In which ways people can sign in: [`super::SignIn`].
    pub const SIGN_IN: &str = "/internal/sign-in";
    /// Begins a sign-in with a provider, for `challenge`: [`super::Provider`].
    pub const PROVIDER: &str = "/internal/sign-in/provider";
}

/// The account of a session, and the key that it acts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The account.
    pub account: AccountId,
    /// Its e-mail address.
    pub email: String,
    /// Balance minus what open jobs hold.
    pub credits: MicroCredits,
    /// Whether it is an operator's.
    pub operator: bool,
    /// The key.
    pub key: ApiKeyId,
    /// What the key may do.
    pub scopes: Vec<Scope>,
    /// What needs attention, as the menu counts it.
    pub attention: Attention,
}

/// How many things need somebody's attention now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// Alerts of the Islands of the account.
    pub islands: usize,
    /// Problems of the network, for an operator: what the coordinator does not reach, and maintenance.
    pub network: usize,
}

/// A session that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// What the browser holds.
    pub token: String,
}

/// A link that signs a browser in once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The code in the link.
    pub code: String,
    /// Time at which it expires.
    pub expires_at: Timestamp,
}

/// An Island of the account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnIsland {
    /// Its id.
    pub id: HostId,
    /// What it sent last; none if it is offline.
    pub heartbeat: Option<Heartbeat>,
}

/// In which ways people can sign in besides keys, links and invitations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// Whether there is an OpenID Connect provider.
    pub provider: bool,
}

/// A sign-in that has begun at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// Where the browser goes.
    pub address: String,
}
