//! `fabric init`.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::ExitCode,
};

use clap::Subcommand;

use super::print;
use crate::{
    clock::Clock,
    fabric::init::{Fabric, Tls, init},
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
        /// Address on which the server listens; others than 127.0.0.1 need TLS to keep messages private.
        #[arg(long, default_value_t = Ipv4Addr::LOCALHOST.into(), value_name = "ADDRESS")]
        nats_listen: IpAddr,
        /// Certificate of the server with its chain, PEM.
        #[arg(long, requires = "tls_key", value_name = "FILE")]
        tls_certificate: Option<PathBuf>,
        /// Private key of the certificate, PEM.
        #[arg(long, requires = "tls_certificate", value_name = "FILE")]
        tls_key: Option<PathBuf>,
    },
}

pub(super) fn run(command: &FabricCommand) -> anyhow::Result<ExitCode> {
    let FabricCommand::Init {
        dir,
        nats_port,
        store_dir,
        max_store_gib,
        nats_listen,
        tls_certificate,
        tls_key,
    } = command;
    let dir = std::path::absolute(dir)?;
    let store_dir = match store_dir {
        Some(store_dir) => std::path::absolute(store_dir)?,
        None => dir.join("jetstream"),
    };
    let max_store_bytes = max_store_gib.saturating_mul(1 << 30);
    let tls = match (tls_certificate, tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Tls { certificate: std::path::absolute(certificate)?, key: std::path::absolute(key)? })
        }
        _ => None,
    };
    let fabric = Fabric { dir, port: *nats_port, store_dir, max_store_bytes, host: *nats_listen, tls };
    let conf = init(&fabric, Clock::System.now())?;
    print(&format!("{}\n", conf.display()));
    Ok(ExitCode::SUCCESS)
}
