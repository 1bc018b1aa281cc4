//! `/account/statement`: what an account spent and earned in a span of time.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, HostId, Slug},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// The sums of a span of time. `opening` plus all totals is `closing`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Statement {
    /// The account.
    pub account: AccountId,
    /// Begin of the span.
    pub from: Timestamp,
    /// End of the span, which does not belong to it.
    pub until: Timestamp,
    /// Credits at the begin, with those that open jobs held.
    pub opening: MicroCredits,
    /// Credits at the end, likewise.
    pub closing: MicroCredits,
    /// Changes by kind.
    pub totals: Vec<StatementTotal>,
    /// What each Island of the account earned, on each of its devices.
    pub earned: Vec<IslandEarnings>,
    /// What was spent on each Cargo.
    pub spent: Vec<CargoSpending>,
}

/// All changes of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct StatementTotal {
    /// `grant`, `purchase`, `deduct`, `refund`, `spent`, `earned`, `payout` or `payout_return`.
    pub kind: String,
    /// Their sum; negative if credits left the account.
    pub amount: MicroCredits,
    /// Their number.
    pub entries: u64,
}

/// What an Island earned on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct IslandEarnings {
    /// The Island; absent for what was earned before Islands were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<HostId>,
    /// Its name now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The device that the engine reported, as its API and name; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Number of jobs that it was paid for.
    pub jobs: u64,
    /// Sum of what it was paid.
    pub amount: MicroCredits,
}

/// What was spent on one Cargo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CargoSpending {
    /// The Cargo.
    pub workload_slug: Slug,
    /// Number of jobs that cost something.
    pub jobs: u64,
    /// Sum of what they cost.
    pub amount: MicroCredits,
}
