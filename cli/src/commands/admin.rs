//! `island admin`.

mod accounts;
mod islands;
mod keys;
mod log;

use anyhow::Result;
use island_protocol::api::admin::Reason;

use crate::{
    args::{Admin, Refund},
    output::{Output, text},
    settings::Settings,
};

pub(super) async fn run(command: Admin, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Admin::Accounts(command) => accounts::run(command, settings, output).await,
        Admin::Keys(command) => keys::run(command, settings, output).await,
        Admin::Islands(command) => islands::run(command, settings, output).await,
        Admin::Refund(wanted) => refund(wanted, settings, output).await,
        Admin::Log(options) => log::log(&options, settings, output).await,
    }
}

async fn refund(wanted: Refund, settings: &Settings, output: &Output) -> Result<()> {
    let reason = Reason { reason: wanted.reason };
    let answer = settings.client()?.refund_job(wanted.job, &reason).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} of {} returned", text::amount(answer.value.amount), answer.value.id))
}
