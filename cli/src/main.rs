//! `island`: the command line of an Island network.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `args` | flags and subcommands |
//! | `settings` | where the address and the key come from |
//! | `commands` | one file per noun and verb; `commands/dev` starts a whole network on this machine |
//! | `output` | the only place that prints |
//! | `failure` | exit codes, and what to try next |
//! | `signals` | the signals that ask it to stop |

mod args;
mod commands;
mod failure;
mod output;
mod settings;
mod signals;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Cli, Format},
    output::Output,
};

fn main() -> ExitCode {
    if let Some(error) = commands::become_dev_child() {
        return failure::report(&error, &Output::new(Format::Text));
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| args::without_misleading_tip(error).exit());
    let output = Output::new(cli.global.format);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(commands::run(cli, &output)))
        .and_then(|code| output.finish().map(|()| code));
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error, &output),
    }
}
