//! One file per command.

mod account;
mod auth;
mod chat;
mod dev;
mod follow;
mod hosts;
mod jobs;
mod sail;
mod workloads;

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    args::{Cli, Command},
    output::Output,
    settings::Settings,
};

/// Runs what was asked for.
pub(crate) async fn run(cli: Cli, output: &Output) -> Result<ExitCode> {
    let settings = Settings::resolve(&cli)?;
    match cli.command {
        Command::Dev(options) => return dev::run(options, settings.nats_url, output).await,
        Command::Auth(command) => auth::run(command, &settings, output).await?,
        Command::Account => account::show(&settings, output).await?,
        Command::Chat(options) => return chat::run(options, &settings, output).await,
        Command::Jobs(command) => return jobs::run(command, &settings, output).await,
        Command::Workloads(command) => workloads::run(command, &settings, output).await?,
        Command::Hosts(command) => hosts::run(command, &settings, output).await?,
        Command::Sail(command) => sail::run(command, &settings, output).await?,
    }
    Ok(ExitCode::SUCCESS)
}
