//! `/account/usage`: what an account used, by day, Cargo and key.

use island_protocol::{
    credits::MicroCredits,
    ids::{ApiKeyId, Slug},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Answer to `GET /account/usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AccountUsage {
    /// Begin of the first day, UTC.
    pub from: Timestamp,
    /// End of the last day, UTC.
    pub until: Timestamp,
    /// Ended jobs, oldest day first, then by Cargo and key.
    pub rows: Vec<UsageRow>,
}

/// The ended jobs of a day, of one Cargo and one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct UsageRow {
    /// Begin of the day in which the jobs ended, UTC.
    pub day: Timestamp,
    /// The Cargo.
    pub workload_slug: Slug,
    /// The key with which they were submitted; absent for jobs from before keys were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<ApiKeyId>,
    /// Name of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_name: Option<String>,
    /// Number of jobs, also of those that cost nothing.
    pub jobs: u64,
    /// Tokens that they read.
    pub prompt_tokens: u64,
    /// Tokens that they wrote.
    pub completion_tokens: u64,
    /// Sum of what they cost.
    pub amount: MicroCredits,
}
