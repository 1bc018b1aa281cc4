//! `/island/recommendations`.

use island_protocol::{
    artifact::Artifact,
    cargo::RuntimeType,
    ids::{HostId, Slug},
};
use serde::{Deserialize, Serialize};

/// Answer to `GET /island/recommendations`: best first, only what the Island can serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Recommendations {
    /// The Island.
    pub host_id: HostId,
    /// Sorted by `demand_score`, largest first.
    pub recommendations: Vec<Recommendation>,
}

/// A Cargo whose files are worth downloading in advance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Recommendation {
    /// The Cargo.
    pub workload_slug: Slug,
    /// Address of its model.
    pub model_url: String,
    /// SHA-256 of the model; null if it is not pinned.
    pub model_hash: Option<String>,
    /// Runtime it needs.
    pub runtime_type: RuntimeType,
    /// Credits for a completed job, as a decimal string.
    pub estimated_earnings_per_job: String,
    /// Number of jobs that wait for it now.
    pub queued_demand: u64,
    /// `queued_demand * 10 + completions of the last hour * 2`.
    pub demand_score: u64,
    /// All its files with their hashes and lengths, where they are known, including the model.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

impl Recommendation {
    /// Number of jobs completed in the last hour plus those waiting now, derived from the score.
    pub fn jobs(&self) -> u64 {
        self.queued_demand + self.demand_score.saturating_sub(self.queued_demand * 10) / 2
    }
}
