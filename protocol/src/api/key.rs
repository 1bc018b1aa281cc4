//! `/api-keys`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{credits::MicroCredits, ids::ApiKeyId, time::Timestamp};

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// See what belongs to the account.
    Read,
    /// Submit, cancel, change.
    Write,
}

impl Scope {
    /// Both, which is what a key has unless fewer are asked for.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// The scope of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A key in `GET /api-keys`; never the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct KeyView {
    /// The key.
    pub id: ApiKeyId,
    /// Label given at creation.
    pub name: String,
    /// First characters of the secret, to tell keys apart.
    pub prefix: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// Most credits it may ever spend.
    pub spend_cap: Option<MicroCredits>,
    /// Credits its jobs have spent or hold now, and the caps it gave to keys it made.
    pub spent: MicroCredits,
}

/// `POST /api-keys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// Label, 1 to 100 characters.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 100)))]
    pub name: String,
    /// `["read", "write"]` or `"read,write"`; both if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "array", "minItems": 1, "items": {"enum": ["read", "write"]}},
        {"enum": ["read", "write", "read,write", null]},
    ])))]
    pub scopes: Option<Value>,
    /// A moment in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Most credits the key may ever spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub spend_cap: Option<MicroCredits>,
}

/// Answer to `POST /api-keys`: the only one that carries the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CreatedKey {
    /// The key.
    pub data: KeyView,
    /// The secret, `ak_…`; absent when the answer is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Answer to `DELETE /api-keys/:id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RevokedKey {
    /// The key.
    pub id: ApiKeyId,
    /// When it stopped working.
    pub revoked_at: Timestamp,
}
