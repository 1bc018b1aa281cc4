//! `/account/ledger`.

use island_protocol::{
    credits::MicroCredits,
    ids::{HostId, JobId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// One entry of an account's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct LedgerEntry {
    /// The entry.
    pub id: String,
    /// `grant`, `deduct`, `hold`, `settle` (paid, or earned by an Island of the account), `release`, `refund`, `payout` or
    /// `payout_return`, `purchase`.
    pub kind: String,
    /// Which of the account's two balances changes: `balance` or `holds`.
    pub book: String,
    /// Credits; negative if they leave the account's `balance` or `holds`.
    pub amount: MicroCredits,
    /// The job that the entry belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// The Island that was paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<HostId>,
    /// The device on which it ran the model, as its API and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Time of the entry.
    pub created_at: Timestamp,
}
