//! `/api-keys`.

use island_protocol::{credits::MicroCredits, ids::ApiKeyId, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::VariantArray;

use super::quota::Quotas;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Scope {
    /// Read the account's data.
    Read,
    /// Submit, cancel and change.
    Write,
}

impl Scope {
    /// Both scopes, the default of a new key.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A key in `GET /api-keys`; never the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct KeyView {
    /// Id of the key.
    pub id: ApiKeyId,
    /// Label given at creation.
    pub name: String,
    /// First characters of the secret, to distinguish keys.
    pub prefix: String,
    /// Permissions.
    pub scopes: Vec<Scope>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last use, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Time of expiry.
    pub expires_at: Option<Timestamp>,
    /// Maximum number of credits that the key may ever spend.
    pub spend_cap: Option<MicroCredits>,
    /// Credits that its jobs have spent or hold now, plus the caps of keys that it created.
    pub spent: MicroCredits,
}

/// `POST /api-keys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// Label, 1 to 100 characters, not only white space and without control characters.
    #[cfg_attr(
        feature = "openapi",
        schemars(
            length(min = 1, max = 100),
            regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$")
        )
    )]
    pub name: String,
    /// `["read", "write"]` or `"read,write"`; both if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "array", "minItems": 1, "items": {"enum": ["read", "write"]}},
        {"enum": ["read", "write", "read,write", "write,read", null]},
    ])))]
    pub scopes: Option<Value>,
    /// A time in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Maximum number of credits that the key may ever spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub spend_cap: Option<MicroCredits>,
    /// What it may use in a day and in a month. A key with quotas cannot create keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Quotas>,
}

/// Answer to `POST /api-keys`: the only answer that contains the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CreatedKey {
    /// Id of the key.
    pub data: KeyView,
    /// The secret, `ak_…`; absent when the answer is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Answer to `DELETE /api-keys/:id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RevokedKey {
    /// Id of the key.
    pub id: ApiKeyId,
    /// Time of revocation.
    pub revoked_at: Timestamp,
}
