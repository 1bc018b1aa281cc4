//! Flags of `island admin cargos`, `maintenance` and `notices`.

use clap::{Args, Subcommand};
use island_protocol::ids::Slug;

use super::Why;
use crate::args::values::{self, Expiry};

#[derive(Debug, Subcommand)]
pub(crate) enum Cargos {
    /// All Cargos, and whether new jobs of each are accepted
    List,
    /// Refuse new jobs of a Cargo; its open jobs go on
    Disable(OnCargo),
    /// Accept new jobs of a disabled Cargo again
    Enable(OnCargo),
}

#[derive(Debug, Args)]
pub(crate) struct OnCargo {
    /// Its slug
    pub(crate) slug: Slug,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Maintenance {
    /// Refuse new jobs in the whole network; open jobs go on
    Start {
        /// Why, for the audit log; everybody is shown it
        #[arg(long)]
        reason: String,
    },
    /// Accept new jobs again
    End(Why),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Notices {
    /// All notices, newest first, also those that have expired
    List,
    /// Show everybody a notice
    Create {
        /// What to show
        text: String,
        /// When it is no longer shown: after a span such as 12h, or at a moment such as 2027-01-01T00:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = values::expiry)]
        until: Option<Expiry>,
    },
    /// No longer show a notice
    Remove {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = values::id_beginning)]
        notice: String,
    },
}
