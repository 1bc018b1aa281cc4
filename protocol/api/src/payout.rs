//! `/admin/payouts`: earnings that leave the network for a payment system of the operator.

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, PayoutId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// `POST /admin/payouts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreatePayout {
    /// Earnings before this time are paid out; now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// An account that would get less is left out, and gets it with a later payout.
    #[serde(default = "one_credit")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub minimum: MicroCredits,
    /// Why, for the audit log.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
}

fn one_credit() -> MicroCredits {
    MicroCredits::ONE
}

/// State of a payout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PayoutState {
    /// The credits have left the accounts; whether they were paid is not known yet.
    Exported,
    /// They were paid.
    Confirmed,
    /// They were not paid, and have been returned to the accounts.
    Cancelled,
}

impl PayoutState {
    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A payout in `GET /admin/payouts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Payout {
    /// Id of the payout.
    pub id: PayoutId,
    /// Its state.
    pub state: PayoutState,
    /// Earnings before this time were paid out.
    pub until: Timestamp,
    /// Number of accounts.
    pub accounts: u64,
    /// Sum of all payments.
    pub amount: MicroCredits,
    /// Why it was made.
    pub reason: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of confirmation or cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// One payment of `GET /admin/payouts/:id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Payment {
    /// The account that is paid.
    pub account: AccountId,
    /// Its e-mail address.
    pub email: String,
    /// Credits to pay.
    pub amount: MicroCredits,
}

/// Answer to `GET /admin/payouts/:id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PayoutDetails {
    /// The payout.
    pub payout: Payout,
    /// Its payments, ordered by account.
    pub payments: Vec<Payment>,
}
