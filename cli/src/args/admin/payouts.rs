//! Flags of `island admin payouts`.

use clap::{Args, Subcommand};
use island_protocol::{credits::MicroCredits, time::Timestamp};

use super::Why;
use crate::args::{Paging, values};

#[derive(Debug, Subcommand)]
pub(crate) enum Payouts {
    /// All payouts, newest first
    List(Paging),
    /// Take earnings from their accounts, to pay them outside the network
    Create(CreatePayout),
    /// Show a payout with its payments
    Show {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = values::id_beginning)]
        payout: String,
        /// Print the payments as CSV
        #[arg(long)]
        csv: bool,
    },
    /// Record that all payments were made
    Confirm(OnPayout),
    /// Return the earnings to their accounts
    Cancel(OnPayout),
}

#[derive(Debug, Args)]
pub(crate) struct CreatePayout {
    /// Only what was earned before this moment, such as 2026-12-01T00:00:00Z [default: now]
    #[arg(long, value_name = "WHEN", value_parser = values::moment)]
    pub(crate) until: Option<Timestamp>,
    /// Leave out accounts that would get less
    #[arg(
        long,
        default_value = "1",
        value_name = "CREDITS",
        allow_negative_numbers = true,
        value_parser = values::credits_or_none,
    )]
    pub(crate) minimum: MicroCredits,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct OnPayout {
    /// Its id, or the beginning of its id
    #[arg(value_name = "ID", value_parser = values::id_beginning)]
    pub(crate) payout: String,
    #[command(flatten)]
    pub(crate) why: Why,
}
