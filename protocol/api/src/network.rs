//! `/hosts/:id/karma` and `/network/stats`.

use island_protocol::{
    ids::{HostId, NoticeId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

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

/// Answer to `GET /network/notices`, which needs no key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct NetworkNotices {
    /// Present while no new jobs are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<NetworkMaintenance>,
    /// What the operators want everybody to know, newest first.
    pub notices: Vec<Notice>,
}

/// Since when and why a network accepts no new jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct NetworkMaintenance {
    /// Time of the begin.
    pub since: Timestamp,
    /// The reason.
    pub reason: String,
}

/// A notice of the network's operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Notice {
    /// Id of the notice.
    pub id: NoticeId,
    /// The text.
    pub text: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time after which it is no longer shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}
