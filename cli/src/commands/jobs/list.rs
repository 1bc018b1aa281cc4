//! `island jobs list`.

use anyhow::Result;
use island_coordinator_client::{Client, JobFilter};

use crate::{
    args::ListJobs,
    commands::select,
    output::{Column, Output, text::duration},
};

const COLUMNS: [Column; 5] = [
    Column::of("id").id(),
    Column::of("status"),
    Column::of("cargo"),
    Column::of("duration").drop(2),
    Column::of("created").drop(1),
];

pub(super) async fn list(options: &ListJobs, client: &Client, output: &Output) -> Result<()> {
    let key = match &options.key {
        Some(key) => Some(select::key(client, key).await?),
        None => None,
    };
    let &ListJobs { status, from, until, ref page, .. } = options;
    let filter = JobFilter { status, cargo: options.cargo.clone(), key, from, until };
    let answer = client.jobs(&filter, page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|job| {
        vec![
            job.id.to_string(),
            job.status.to_string(),
            job.workload_slug.to_string(),
            duration(job.duration_ms),
            output.moment(job.created_at),
        ]
    });
    let none = if filter == JobFilter::default() { "No jobs yet." } else { "No such jobs." };
    output.table(&COLUMNS, rows.collect(), none)?;
    let (shown, meta) = (answer.value.data.len() as u64, answer.value.meta);
    if meta.offset + shown < meta.total {
        output.note(&format!("{} more: --offset {}", meta.total - meta.offset - shown, meta.offset + shown));
    }
    Ok(())
}
