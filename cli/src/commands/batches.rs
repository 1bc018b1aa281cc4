//! `island batches`.

mod run;

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result};
use island_coordinator_client::{Answer, Client, protocol::ids::BatchId};
use island_protocol::time::Timestamp;
use island_protocol_api::batch::Batch;

use super::select;
use crate::{
    args::Batches,
    failure::NoMatch,
    output::{
        Column, Output,
        text::{amount, credits},
    },
    settings::Settings,
};

const COLUMNS: [Column; 6] = [
    Column::of("id").id(),
    Column::of("status"),
    Column::of("done"),
    Column::of("failed"),
    Column::of("credits").drop(2),
    Column::of("created").drop(1),
];

pub(super) async fn run(command: Batches, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let client = settings.client()?;
    match command {
        Batches::Run(wanted) => return run::run(&wanted, &client, output).await,
        Batches::List { limit, after } => list(limit, after.as_deref(), &client, output).await?,
        Batches::Get(wanted) => {
            let id = select::batch(&client, &wanted.batch).await?;
            print(&client.batch(id).answer().await?, output)?;
        }
        Batches::Results { batch, errors, output: path } => {
            let id = select::batch(&client, &batch.batch).await?;
            results(id, errors, path.as_deref(), &client, output).await?;
        }
        Batches::Cancel(wanted) => {
            let id = select::batch(&client, &wanted.batch).await?;
            let answer = client.cancel_batch(id).answer().await?;
            if output.is_json() {
                output.json(&answer.body)?;
            } else {
                output.line(&format!("{} is {}", answer.value.id, answer.value.status.as_str()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(limit: u64, after: Option<&str>, client: &Client, output: &Output) -> Result<()> {
    let after = match after {
        Some(text) => Some(select::batch(client, text).await?),
        None => None,
    };
    let answer = client.batches(limit, after).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|batch| {
        let counts = batch.request_counts;
        vec![
            batch.id.clone(),
            batch.status.as_str().to_owned(),
            format!("{}/{}", counts.completed + counts.failed, counts.total),
            counts.failed.to_string(),
            credits(batch.credits),
            output.moment(moment(batch.created_at)),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No batches yet.")?;
    if let Some(last) = answer.value.last_id.filter(|_| answer.value.has_more) {
        output.note(&format!("older ones: --after {last}"));
    }
    Ok(())
}

fn print(answer: &Answer<Batch>, output: &Output) -> Result<()> {
    if output.is_json() {
        return output.json(&answer.body);
    }
    let batch = &answer.value;
    let counts = batch.request_counts;
    let mut fields = vec![
        ("Id", batch.id.clone()),
        ("Status", batch.status.as_str().to_owned()),
        ("Endpoint", batch.endpoint.as_str().to_owned()),
        ("Requests", format!("{}: {} completed, {} failed", counts.total, counts.completed, counts.failed)),
        (
            "Credits",
            match batch.max_credits {
                Some(max) => format!("{} of at most {}", credits(batch.credits), amount(max)),
                None => amount(batch.credits),
            },
        ),
        ("Created", moment(batch.created_at).to_string()),
    ];
    fields.extend(batch.expires_at.map(|end| ("Window ends", moment(end).to_string())));
    output.fields(&fields)?;
    warn_of_errors(batch, output);
    Ok(())
}

/// Why the input file is invalid.
fn warn_of_errors(batch: &Batch, output: &Output) {
    for error in batch.errors.iter().flat_map(|errors| &errors.data) {
        let place = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        output.warn(&format!("{place}{}", error.message));
    }
}

async fn results(
    id: BatchId,
    errors: bool,
    path: Option<&Path>,
    client: &Client,
    output: &Output,
) -> Result<()> {
    let batch = client.batch(id).await?;
    if !batch.status.is_final() {
        let message = format!("the batch is {}: its results are written at its end", batch.status.as_str());
        return Err(NoMatch(message).into());
    }
    let (what, file) =
        if errors { ("errors", &batch.error_file_id) } else { ("results", &batch.output_file_id) };
    let Some(file) = file else {
        output.note(&format!("the batch has no {what}"));
        return Ok(());
    };
    save(&client.file_content(file).await?, path, output)
}

/// Writes results to the file at `path`, or prints them.
fn save(lines: &str, path: Option<&Path>, output: &Output) -> Result<()> {
    match path {
        Some(path) => fs::write(path, lines).with_context(|| format!("write {}", path.display())),
        None => output.json_lines(lines),
    }
}

fn moment(unix_s: i64) -> Timestamp {
    Timestamp::from_unix_ms(unix_s.saturating_mul(1000))
}
