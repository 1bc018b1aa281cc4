//! `island-coordinator`.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use island_coordinator::commands::{Cli, run};
use island_daemon::{
    chain::Chain,
    config::{ConfigError, EXIT_BAD_CONFIG},
};

#[tokio::main]
async fn main() -> ExitCode {
    let _failpoints = island_daemon::failpoint::from_environment();
    let cli = Cli::parse();
    let serves = cli.serves();
    match run(cli).await {
        Ok(code) => code,
        Err(error) => {
            let reason = Chain(error.as_ref());
            if serves {
                tracing::error!(error = %reason, "stopped");
            } else {
                // Its reader may have gone.
                let _ = writeln!(io::stderr(), "island-coordinator: {reason}");
            }
            let bad_config = error.chain().any(<dyn std::error::Error>::is::<ConfigError>);
            if bad_config { ExitCode::from(EXIT_BAD_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}
