//! `island admin maintenance`.

use anyhow::Result;
use island_protocol_api::admin::Reason;

use crate::{args::Maintenance, output::Output, settings::Settings};

pub(super) async fn run(command: Maintenance, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let request = match command {
        Maintenance::Start { reason } => client.start_maintenance(&Reason { reason }),
        Maintenance::End(why) => client.end_maintenance(&why.into()),
    };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    match &answer.value.maintenance {
        Some(maintenance) => output.line(&format!("no new jobs are accepted: {}", maintenance.reason)),
        None => output.line("new jobs are accepted"),
    }
}
