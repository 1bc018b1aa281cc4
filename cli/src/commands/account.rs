//! `island account`.

mod ledger;
mod show;

use anyhow::Result;

use crate::{args::Account, output::Output, settings::Settings};

pub(super) async fn run(command: Option<Account>, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        None => show::show(settings, output).await,
        Some(Account::Ledger(options)) => ledger::ledger(&options, settings, output).await,
    }
}
