//! Accounts by invitation: `/signup` and `/admin/invitations`.

use island_protocol::{credits::MicroCredits, ids::InvitationId, time::Timestamp};
use serde::{Deserialize, Serialize};

use super::AccountView;

/// `POST /signup`, which needs no key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignUp {
    /// E-mail address that no other account has.
    #[cfg_attr(
        feature = "openapi",
        schemars(length(max = 254), regex(pattern = r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$"))
    )]
    pub email: String,
    /// Code of an invitation.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 64)))]
    pub code: String,
}

/// Answer to `POST /signup`. A client whose answer was lost sends the same request again: if the invitation was for one
/// account, its key is replaced by a new one until it was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SignedUp {
    /// The account.
    pub data: AccountView,
    /// The secret of its first key.
    pub key: String,
}

/// `POST /login`, which ends a sign-in and needs no key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FinishLogin {
    /// The code that the browser brought.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 64)))]
    pub code: String,
    /// The random text whose SHA-256 began the sign-in.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 256)))]
    pub verifier: String,
}

/// `POST /admin/invitations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateInvitation {
    /// Credits of each account; those of the setting `accounts.signup_credits` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub credits: Option<MicroCredits>,
    /// Number of accounts that may be created with it.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 1_000_000)))]
    pub uses: u32,
    /// A time in the future, after which it is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Whom or what it is for, for the audit log.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
}

fn one() -> u32 {
    1
}

/// An invitation in `GET /admin/invitations`; never the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Invitation {
    /// Id of the invitation.
    pub id: InvitationId,
    /// Credits of each account.
    pub credits: MicroCredits,
    /// Number of accounts that may be created with it.
    pub uses: u32,
    /// Number of accounts that were.
    pub used: u32,
    /// Whom or what it is for.
    pub reason: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of expiry.
    pub expires_at: Option<Timestamp>,
    /// Time of revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Answer to `POST /admin/invitations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CreatedInvitation {
    /// The invitation.
    pub data: Invitation,
    /// The code; absent if the request was answered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
