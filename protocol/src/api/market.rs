//! `/market`.

use serde::{Deserialize, Serialize};

use crate::{credits::MicroCredits, ids::Slug, time::Timestamp};

/// What a Cargo cost: in `GET /market/rates[/:slug]` over the last 24 hours, in `GET /market/history/:slug` per hour.
///
/// Prices are those of settled jobs. Without a settled job they are the Cargo's list price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MarketRate {
    /// The Cargo.
    pub workload_slug: Slug,
    /// Mean, credits a job.
    pub avg_price: MicroCredits,
    /// Least, credits a job.
    pub min_price: MicroCredits,
    /// Most, credits a job.
    pub max_price: MicroCredits,
    /// Islands online that can serve it; in the history those that did.
    pub num_hosts: u64,
    /// Settled jobs behind the prices.
    pub num_jobs: u64,
    /// When this was true; in the history the beginning of the hour.
    pub timestamp: Timestamp,
}
