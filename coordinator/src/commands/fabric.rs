//! `fabric init`.

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;

use super::print;
use crate::{
    clock::Clock,
    fabric::init::{Fabric, init},
};

#[derive(Debug, Subcommand)]
pub(super) enum FabricCommand {
    /// Write keys, credentials and a complete nats.conf. Existing keys are retained.
    Init {
        /// Folder for the files.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Port of the server.
        #[arg(long, default_value_t = 4222, value_name = "PORT")]
        nats_port: u16,
        /// Folder of JetStream's files; `<DIR>/jetstream` by default.
        #[arg(long, value_name = "DIR")]
        store_dir: Option<PathBuf>,
        /// Maximum gibibytes of JetStream's files.
        #[arg(long, default_value_t = 4, value_name = "GIB")]
        max_store_gib: u64,
    },
}

pub(super) fn run(command: &FabricCommand) -> anyhow::Result<ExitCode> {
    let FabricCommand::Init { dir, nats_port, store_dir, max_store_gib } = command;
    let dir = std::path::absolute(dir)?;
    let store_dir = match store_dir {
        Some(store_dir) => std::path::absolute(store_dir)?,
        None => dir.join("jetstream"),
    };
    let max_store_bytes = max_store_gib.saturating_mul(1 << 30);
    let conf = init(&Fabric { dir, port: *nats_port, store_dir, max_store_bytes }, Clock::System.now())?;
    print(&format!("{}\n", conf.display()));
    Ok(ExitCode::SUCCESS)
}
