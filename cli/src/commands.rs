//! One file per noun and verb.

mod account;
mod admin;
mod api_keys;
mod auth;
mod batches;
mod chat;
mod completion;
mod console;
mod dev;
mod follow;
mod hosts;
mod images;
mod jobs;
mod man;
mod market;
mod network;
mod publications;
mod quotas;
mod sail;
mod select;
mod signup;
mod statement;
mod workloads;

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    args::{Cli, Command},
    output::Output,
    settings::Settings,
};

pub(crate) use self::dev::become_child as become_dev_child;

/// Runs the command.
pub(crate) async fn run(cli: Cli, output: &Output) -> Result<ExitCode> {
    let settings = match &cli.command {
        Command::Completion { shell } => return completion::print(*shell, output),
        Command::Man { dir } => return man::print(dir.as_deref(), output),
        _ => Settings::resolve(&cli.global, output)?,
    };
    match cli.command {
        Command::Dev(options) => return dev::run(options, &settings, output).await,
        Command::Chat(options) => return chat::run(options, &settings, output).await,
        Command::Jobs(command) => return jobs::run(command, &settings, output).await,
        Command::Batches(command) => return batches::run(command, &settings, output).await,
        Command::Sail(command) => return sail::run(command, &settings, output).await,
        Command::Signup(wanted) => signup::run(wanted, &settings, output).await?,
        Command::Auth(command) => auth::run(command, &settings, output).await?,
        Command::Account { command } => account::run(command, &settings, output).await?,
        Command::Console => console::run(&settings, output).await?,
        Command::Admin(command) => admin::run(command, &settings, output).await?,
        Command::Workloads(command) => workloads::run(command, &settings, output).await?,
        Command::Cargos(command) => publications::run(command, &settings, output).await?,
        Command::Hosts(command) => hosts::run(command, &settings, output).await?,
        Command::ApiKeys(command) => api_keys::run(command, &settings, output).await?,
        Command::Network(command) => network::run(command, &settings, output).await?,
        Command::Market(command) => market::run(command, &settings, output).await?,
        Command::Completion { .. } | Command::Man { .. } => unreachable!("done above, without settings"),
    }
    Ok(ExitCode::SUCCESS)
}
