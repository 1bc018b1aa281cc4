//! Flags of `island dev`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Port of the HTTP API [default: a free one]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) api_port: Option<u16>,
    /// Port of NATS [default: a free one]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) nats_port: Option<u16>,
    /// Folder for everything it keeps [default: ~/.island/dev]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// How many Islands to start
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        allow_negative_numbers = true,
        conflicts_with = "no_island"
    )]
    pub(crate) islands: u32,
    /// Start no Island
    #[arg(long)]
    pub(crate) no_island: bool,
    /// Load the fixture Cargos too: small models for tests, and the scripted engine
    #[arg(long)]
    pub(crate) fixtures: bool,
    /// Catalogue folder [default: the one beside this program or in the source tree]
    #[arg(long, value_name = "DIR")]
    pub(crate) cargos: Option<PathBuf>,
    /// nats-server program [default: ISLAND_NATS_SERVER, .tools/bin, then PATH]
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_server: Option<PathBuf>,
    /// island-agent program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Run jobs although this machine cannot confine them completely
    #[arg(long)]
    pub(crate) allow_weak_sandbox: bool,
    /// Raise the limits per account (requests, jobs and streams at once), for tests and load
    #[arg(long)]
    pub(crate) no_limits: bool,
}
