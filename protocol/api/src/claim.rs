//! Signed HTTP requests of Islands: which key requests what, for which account, once.

use std::fmt;

use island_protocol::{
    ids::{AccountId, HostId, Nonce},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// What an Island requests with its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum ClaimVerb {
    /// To be added to the account of the API key: `POST /island/enroll`.
    Enroll,
    /// A code that its owner confirms: `POST /island/pairings`.
    Pair,
    /// Credentials for the fabric: `POST /island/credentials`.
    Credentials,
    /// To be removed from the network: `POST /island/leave`.
    Leave,
    /// A job on itself: `POST /island/check`.
    Check,
}

/// What an Island signs. As text, `island-VERB:HOST:ACCOUNT:NONCE:TIME`, with `-` for an unknown account.
///
/// The verb keeps a signature from serving another request, the account from serving after the Island has changed hands. Coordinators
/// accept a nonce once, and forget it when the signature's time has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// What is requested.
    pub verb: ClaimVerb,
    /// The Island.
    pub host_id: HostId,
    /// The account that it belongs to, as far as it knows.
    pub account_id: Option<AccountId>,
    /// Random; never used twice.
    pub nonce: Nonce,
    /// Time of signing.
    pub sent_at: Timestamp,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, host_id, account_id, nonce, sent_at } = self;
        write!(f, "island-{verb}:{host_id}:")?;
        match account_id {
            Some(account) => write!(f, "{account}")?,
            None => f.write_str("-")?,
        }
        write!(f, ":{nonce}:{sent_at}")
    }
}

/// `POST /island/credentials`, `/island/leave` and `/island/check`, without an API key: authenticated by the Island's own key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IslandRequest {
    /// The Island.
    pub host_id: HostId,
    /// The account that it belongs to, if it knows it. Refused if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<AccountId>,
    /// Random; a coordinator accepts it once.
    pub nonce: Nonce,
    /// Time of signing.
    pub sent_at: Timestamp,
    /// Base64 signature by its NKey over `island-VERB:HOST:ACCOUNT:NONCE:TIME`: the verb is `credentials`, `leave` or `check`, and the
    /// account `-` if it is absent.
    pub signature: String,
}

impl IslandRequest {
    /// What the signature covers if the request is for this verb.
    pub fn claim(&self, verb: ClaimVerb) -> Claim {
        let Self { host_id, account_id, nonce, sent_at, signature: _ } = *self;
        Claim { verb, host_id, account_id, nonce, sent_at }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::IntoEnumIterator as _;
    use uuid::Uuid;

    use super::*;

    fn claim() -> Claim {
        Claim {
            verb: ClaimVerb::Leave,
            host_id: HostId(Uuid::from_u128(1)),
            account_id: None,
            nonce: Nonce(Uuid::from_u128(2)),
            sent_at: Timestamp::from_unix_ms(0),
        }
    }

    #[test]
    fn is_signed_as_this_text() {
        let id = |last| format!("00000000-0000-0000-0000-00000000000{last}");
        let time = "1970-01-01T00:00:00.000Z";
        assert_eq!(claim().to_string(), format!("island-leave:{}:-:{}:{time}", id(1), id(2)));
        let known = Claim { account_id: Some(AccountId(Uuid::from_u128(3))), ..claim() };
        assert_eq!(known.to_string(), format!("island-leave:{}:{}:{}:{time}", id(1), id(3), id(2)));
    }

    #[test]
    fn every_part_changes_the_text() {
        let mut claims: Vec<_> = ClaimVerb::iter().map(|verb| Claim { verb, ..claim() }).collect();
        let verbs = claims.len();
        claims.push(Claim { host_id: HostId(Uuid::from_u128(9)), ..claim() });
        claims.push(Claim { account_id: Some(AccountId(Uuid::from_u128(9))), ..claim() });
        claims.push(Claim { nonce: Nonce(Uuid::from_u128(9)), ..claim() });
        claims.push(Claim { sent_at: Timestamp::from_unix_ms(1), ..claim() });
        let texts: BTreeSet<_> = claims.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), verbs + 4);
    }
}
