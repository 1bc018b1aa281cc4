//! `/market`.

use island_protocol::{credits::MicroCredits, ids::Slug, time::Timestamp};
use serde::{Deserialize, Serialize};

/// Prices of a Cargo: in `GET /market/rates[/:slug]` over the last 24 hours, in `GET /market/history/:slug` per hour.
///
/// They are those of settled jobs. Without a settled job they are the Cargo's list price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MarketRate {
    /// The Cargo.
    pub workload_slug: Slug,
    /// Mean price of a job, credits.
    pub avg_price: MicroCredits,
    /// Minimum price of a job, credits.
    pub min_price: MicroCredits,
    /// Maximum price of a job, credits.
    pub max_price: MicroCredits,
    /// Number of Islands online that can serve it; in the history, of those that did.
    pub num_hosts: u64,
    /// Number of settled jobs behind the prices.
    pub num_jobs: u64,
    /// Time of the figures; in the history the beginning of the hour.
    pub timestamp: Timestamp,
}
