//! Flags of `island workloads` and `island hosts`.

use clap::Subcommand;
use island_protocol::ids::{HostId, Slug};

#[derive(Debug, Subcommand)]
pub(crate) enum Workloads {
    /// List Cargos
    List,
    /// Read one Cargo: what it is, what it takes and gives
    Get {
        /// Its slug
        slug: Slug,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hosts {
    /// List Islands
    List,
    /// Read one Island: what it has and whether it is online
    Get {
        /// Its id
        id: HostId,
    },
    /// Make the Island that shows this code yours
    Pair {
        /// The code that `island-agent enroll` shows on it
        code: String,
    },
}
