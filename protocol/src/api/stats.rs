//! `/network/stats`.

use serde::{Deserialize, Serialize};

/// Answer to `GET /network/stats`: the network in three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStats {
    /// Islands heard of lately.
    pub online_islands: u64,
    /// Different regions among them.
    pub regions: u64,
    /// Jobs ever completed.
    pub jobs_completed: u64,
}
