//! `island-coordinator`.

use std::process::ExitCode;

use clap::Parser as _;
use island_coordinator::commands::{Cli, run};
use island_daemon::{
    chain::Chain,
    config::{ConfigError, EXIT_BAD_CONFIG},
};

#[tokio::main]
async fn main() -> ExitCode {
    let _failpoints = island_daemon::failpoint::from_environment();
    match run(Cli::parse()).await {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = %Chain(error.as_ref()), "stopped");
            let bad_config = error.chain().any(<dyn std::error::Error>::is::<ConfigError>);
            if bad_config { ExitCode::from(EXIT_BAD_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}
