//! `island admin queue`.

use anyhow::Result;
use island_coordinator_client::QueueFilter;

use crate::{
    args::QueueOptions,
    commands::select,
    output::{Column, Output, text::or_dash},
    settings::Settings,
};

const COLUMNS: [Column; 6] = [
    Column::of("id").id(),
    Column::of("cargo"),
    Column::of("account").id().drop(2),
    Column::of("priority").drop(1),
    Column::of("since"),
    Column::of("waiting for").cut(),
];

pub(super) async fn queue(options: &QueueOptions, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = match &options.account {
        Some(account) => Some(select::account(&client, account).await?),
        None => None,
    };
    let filter = QueueFilter { account, cargo: options.cargo.clone(), reason: options.reason.clone() };
    let answer = client.queue(&filter, options.page.limit, options.page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|job| {
        vec![
            job.id.to_string(),
            job.workload_slug.to_string(),
            job.account.to_string(),
            job.priority.to_string(),
            output.moment(job.created_at),
            or_dash(job.waiting_reason.as_ref()),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No job waits.")
}
