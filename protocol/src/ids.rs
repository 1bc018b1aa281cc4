//! Identifiers. Each has its own type, so that a job id cannot be passed for a host id.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that is not a valid identifier of the expected kind.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what} must be {must}")]
pub struct InvalidId {
    what: &'static str,
    must: &'static str,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| InvalidId { what: $what, must: "a UUID" })
            }
        }
    };
}

uuid_id!(
    /// A job. Time-ordered (UUID version 7), so that listings sort by creation.
    JobId, "job id");
uuid_id!(
    /// An Island.
    HostId, "host id");
uuid_id!(
    /// An account that pays or earns.
    AccountId, "account id");
uuid_id!(
    /// An API key's public id.
    ApiKeyId, "API key id");
uuid_id!(
    /// One run of a program: a coordinator, an agent or a worker process.
    InstanceId, "instance id");
uuid_id!(
    /// An invitation to create accounts.
    InvitationId, "invitation id");
uuid_id!(
    /// A notice of the network's operators.
    NoticeId, "notice id");
uuid_id!(
    /// Earnings that were exported together.
    PayoutId, "payout id");
uuid_id!(
    /// One version of a Cargo that an account submitted.
    PublicationId, "publication id");
uuid_id!(
    /// A file of an account.
    FileId, "file id");
uuid_id!(
    /// A batch of requests.
    BatchId, "batch id");
uuid_id!(
    /// An address that is sent events.
    WebhookId, "webhook id");
uuid_id!(
    /// One event for one webhook.
    DeliveryId, "delivery id");
uuid_id!(
    /// A random number that a signature contains, so that it is accepted once.
    Nonce, "nonce");

/// Name of a Cargo: `[a-z0-9]` and inner `-`, `.` or `_`, at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slug(String);

impl Slug {
    /// Returns the slug as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Slug {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends_plain =
            bytes.first().copied().is_some_and(plain) && bytes.last().copied().is_some_and(plain);
        let inner_fine = bytes.iter().all(|&b| plain(b) || matches!(b, b'-' | b'.' | b'_'));
        if ends_plain && inner_fine && bytes.len() <= 64 {
            Ok(Self(text))
        } else {
            Err(InvalidId { what: "slug", must: "1 to 64 of a-z, 0-9 and inner '-', '.', '_'" })
        }
    }
}

impl FromStr for Slug {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::try_from(text.to_owned())
    }
}

impl From<Slug> for String {
    fn from(slug: Slug) -> Self {
        slug.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One attempt at a job. `epoch` fences it: it only grows, and messages of an older epoch change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The job.
    pub job_id: JobId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Fencing number of the assignment.
    pub epoch: u64,
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.job_id, self.attempt, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs() {
        for good in ["llm-chat", "a", "qwen2.5-0.5b", "x_y"] {
            assert!(good.parse::<Slug>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", "-a", "a-", "A", "a b", "a/b", "é", "..", long.as_str()] {
            assert!(bad.parse::<Slug>().is_err(), "{bad}");
        }
    }
}
