//! Flags of `island cargos`.

use clap::{Args, Subcommand};

use super::{Paging, values};

#[derive(Debug, Subcommand)]
pub(crate) enum Publications {
    /// Submit a Cargo, whose manifest is a TOML file, for review; it is served once an operator has approved it
    Publish {
        /// The manifest; - reads it from standard input
        file: String,
    },
    /// The Cargos that you submitted and their states, newest first
    Published(Paging),
    /// Show what became of a submitted Cargo, and its manifest
    Show(OnPublication),
    /// Withdraw a submitted Cargo, whether or not it is served already; its open jobs go on
    Withdraw(OnPublication),
}

#[derive(Debug, Args)]
pub(crate) struct OnPublication {
    /// Its id, or the beginning of its id
    #[arg(value_name = "ID", value_parser = values::id_beginning)]
    pub(crate) publication: String,
}
