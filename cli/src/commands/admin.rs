//! `island admin`.

mod accounts;
mod cargos;
mod invitations;
mod islands;
mod keys;
mod log;
mod maintenance;
mod notices;
mod payouts;
mod queue;

use anyhow::Result;
use island_protocol_api::admin::Reason;

use crate::{
    args::{Admin, OnJob},
    output::{Output, text},
    settings::Settings,
};

pub(super) async fn run(command: Admin, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Admin::Accounts(command) => accounts::run(command, settings, output).await,
        Admin::Keys(command) => keys::run(command, settings, output).await,
        Admin::Islands(command) => islands::run(command, settings, output).await,
        Admin::Queue(options) => queue::queue(&options, settings, output).await,
        Admin::Cargos(command) => cargos::run(command, settings, output).await,
        Admin::Maintenance(command) => maintenance::run(command, settings, output).await,
        Admin::Notices(command) => notices::run(command, settings, output).await,
        Admin::Invitations(command) => invitations::run(command, settings, output).await,
        Admin::Payouts(command) => payouts::run(command, settings, output).await,
        Admin::Cancel(wanted) => cancel(wanted, settings, output).await,
        Admin::Refund(wanted) => refund(wanted, settings, output).await,
        Admin::Log(options) => log::log(&options, settings, output).await,
    }
}

async fn cancel(wanted: OnJob, settings: &Settings, output: &Output) -> Result<()> {
    let reason = Reason { reason: wanted.reason };
    let answer = settings.client()?.cancel_job_of_account(wanted.job, &reason).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} {}", answer.value.id, answer.value.status))
}

async fn refund(wanted: OnJob, settings: &Settings, output: &Output) -> Result<()> {
    let reason = Reason { reason: wanted.reason };
    let answer = settings.client()?.refund_job(wanted.job, &reason).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} of {} returned", text::amount(answer.value.amount), answer.value.id))
}
