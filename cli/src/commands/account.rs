//! `island account`.

mod ledger;
mod quotas;
mod show;
mod statement;
mod usage;

use anyhow::Result;

use crate::{args::Account, output::Output, settings::Settings};

pub(super) async fn run(command: Option<Account>, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        None => show::show(settings, output).await,
        Some(Account::Ledger(options)) => ledger::ledger(&options, settings, output).await,
        Some(Account::Statement(options)) => statement::statement(&options, settings, output).await,
        Some(Account::Usage(options)) => usage::usage(&options, settings, output).await,
        Some(Account::Quotas) => quotas::quotas(settings, output).await,
    }
}
