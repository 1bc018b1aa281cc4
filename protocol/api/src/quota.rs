//! Quotas: how much an account or a key may use in a day or a month. Days and months are those of UTC.

use island_protocol::{credits::MicroCredits, time::Timestamp};
use serde::{Deserialize, Serialize};

/// The quotas of an account or of a key. What is absent is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// For each day.
    #[serde(default)]
    pub day: QuotaLimits,
    /// For each calendar month.
    #[serde(default)]
    pub month: QuotaLimits,
}

/// The limits of one period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QuotaLimits {
    /// Maximum number of requests that create a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(max = 1_000_000_000_000_u64)))]
    pub requests: Option<u64>,
    /// Tokens of prompts and replies after which no further job is accepted. A job that is accepted may exceed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(max = 1_000_000_000_000_u64)))]
    pub tokens: Option<u64>,
    /// Maximum credits that are spent or held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub credits: Option<MicroCredits>,
}

/// `POST /admin/accounts/:id/quotas`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetQuotas {
    /// The quotas, which replace those before.
    pub quotas: Quotas,
    /// Why, for the audit log.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
}

/// The period of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum QuotaPeriod {
    /// A day of UTC.
    Day,
    /// A calendar month of UTC.
    Month,
}

impl QuotaPeriod {
    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The quotas of one period, and how much of them is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct QuotaView {
    /// The period.
    pub period: QuotaPeriod,
    /// End of the current period.
    pub resets_at: Timestamp,
    /// Requests that created a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Used<u64>>,
    /// Tokens of prompts and replies of jobs that have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Used<u64>>,
    /// Credits that were spent, or are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<Used<MicroCredits>>,
}

/// A limit and what is used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Used<T> {
    /// Used in the current period.
    pub used: T,
    /// The limit.
    pub max: T,
}

/// Answer to `GET /account/quotas`: both must have room for a new job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct OwnQuotas {
    /// Of the account; empty without quotas.
    pub account: Vec<QuotaView>,
    /// Of the key of the request.
    pub key: Vec<QuotaView>,
}
