//! `/hosts/:id/karma` and `/network/stats`.

use serde::{Deserialize, Serialize};

use crate::ids::HostId;

/// Answer to `GET /hosts/:id/karma`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostKarma {
    /// The Island.
    pub host_id: HostId,
    /// Hours of successful computation.
    pub karma: f64,
    /// The same value as `karma`, under the name that older clients read.
    pub karma_score: f64,
}

/// Answer to `GET /network/stats`, which needs no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct NetworkStats {
    /// Number of Islands that are online.
    pub online_islands: u64,
    /// Number of different regions among them.
    pub regions: u64,
    /// Number of jobs ever completed.
    pub jobs_completed: u64,
}
