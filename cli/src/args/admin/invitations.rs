//! Flags of `island admin invitations`.

use clap::{Args, Subcommand};
use island_protocol::credits::MicroCredits;

use super::Why;
use crate::args::{
    Paging,
    values::{self, Expiry},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Invitations {
    /// All invitations, newest first, without their codes
    List(Paging),
    /// Create an invitation and print its code, once
    Create(CreateInvitation),
    /// Allow no further accounts with an invitation
    Revoke {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = values::id_beginning)]
        invitation: String,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateInvitation {
    /// Credits of each account [default: those that the coordinator gives]
    #[arg(long, value_name = "CREDITS", allow_negative_numbers = true, value_parser = values::credits_or_none)]
    pub(crate) credits: Option<MicroCredits>,
    /// How many accounts may be created with it
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub(crate) uses: u32,
    /// When it expires: after a span such as 30d, or at a moment such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = values::expiry)]
    pub(crate) expires: Option<Expiry>,
    /// Whom or what it is for, for the audit log
    #[arg(long)]
    pub(crate) reason: String,
}
