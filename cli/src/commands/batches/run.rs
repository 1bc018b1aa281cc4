//! `island batches run`.

use std::{fs, io::Read as _, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use island_coordinator_client::Client;
use island_protocol::ids::BatchId;
use island_protocol_api::batch::{Batch, BatchEndpoint, BatchStatus, CreateBatch};
use serde_json::Value;

use super::{save, warn_of_errors};
use crate::{
    args::RunBatch,
    commands::select,
    failure::{FAILED, Usage},
    output::Output,
    signals::Signals,
};

/// Time before the first look at the progress.
const FIRST: Duration = Duration::from_secs(1);
/// Longest time between two looks, which count against the account's requests per minute.
const MOST: Duration = Duration::from_secs(15);

pub(super) async fn run(wanted: &RunBatch, client: &Client, output: &Output) -> Result<ExitCode> {
    let requests = read(&wanted.file)?;
    let endpoint = endpoint(&requests)?;
    let mut signals = Signals::new()?;
    let name = Path::new(&wanted.file).file_name().and_then(|name| name.to_str());
    let name = name.filter(|name| *name != "-").unwrap_or("requests.jsonl");
    // It may take minutes, and nothing runs before it is complete.
    let file = tokio::select! {
        biased;
        stop = signals.asked_to_stop() => {
            output.note("\ninterrupted before the file was uploaded: there is no batch");
            return Ok(stop.exit_code());
        }
        file = client.upload_batch_file(name, requests.into()).into_future() => file?,
    };
    let create = CreateBatch {
        input_file_id: file.id,
        endpoint,
        completion_window: wanted.window.clone(),
        metadata: None,
        max_credits: wanted.max_credits,
    };
    let created = client.create_batch(&create).answer().await?;
    let batch = created.value;
    if wanted.detach {
        if output.is_json() {
            output.json(&created.body)?;
        } else {
            output.line(&batch.id)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    output.note(&format!("running {}", batch.id));
    let id = select::batch(client, &batch.id).await?;
    tokio::select! {
        stop = signals.asked_to_stop() => {
            output.note(&format!("\nthe batch goes on: island batches get {}", batch.id));
            Ok(stop.exit_code())
        }
        ended = ended(id, client, output) => report(&ended?, wanted.output.as_deref(), client, output).await,
    }
}

/// The requests of `file`.
fn read(file: &str) -> Result<String> {
    if file != "-" {
        return fs::read_to_string(file).with_context(|| format!("read {file}"));
    }
    let mut requests = String::new();
    std::io::stdin().read_to_string(&mut requests).context("read the requests from standard input")?;
    Ok(requests)
}

/// The endpoint of the first request. The coordinator checks that it is that of all others.
fn endpoint(requests: &str) -> Result<BatchEndpoint, Usage> {
    let first = requests.lines().find(|line| !line.trim().is_empty());
    let first = first.ok_or_else(|| Usage("the file has no requests".into()))?;
    let request: Value = serde_json::from_str(first)
        .map_err(|error| Usage(format!("the first request is not a JSON object: {error}")))?;
    let url = request["url"].as_str().unwrap_or_default();
    url.parse().map_err(|_| {
        let known: Vec<&str> = BatchEndpoint::ALL.iter().map(|endpoint| endpoint.as_str()).collect();
        Usage(format!("url of the first request must be one of {}", known.join(", ")))
    })
}

/// Waits for the end of the batch. Safe to drop.
async fn ended(id: BatchId, client: &Client, output: &Output) -> Result<Batch> {
    let progress = output.progress("the batch is validated");
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MOST);
        let batch = client.batch(id).await?;
        if batch.status.is_final() {
            return Ok(batch);
        }
        let counts = batch.request_counts;
        if counts.total > 0 {
            progress.at(batch.status.as_str(), counts.completed + counts.failed, counts.total);
        }
    }
}

/// Prints the results of an ended batch.
async fn report(batch: &Batch, path: Option<&Path>, client: &Client, output: &Output) -> Result<ExitCode> {
    if let Some(file) = &batch.output_file_id {
        save(&client.file_content(file).await?, path, output)?;
    }
    warn_of_errors(batch, output);
    let counts = batch.request_counts;
    if counts.failed > 0 {
        let Batch { id, .. } = batch;
        output.warn(&format!(
            "{} of {} requests failed: island batches results {id} --errors",
            counts.failed, counts.total
        ));
    }
    if batch.status != BatchStatus::Completed {
        output.warn(&format!("the batch is {}", batch.status.as_str()));
    }
    let succeeded = batch.status == BatchStatus::Completed && counts.failed == 0;
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_names_the_endpoint() {
        let requests = "\n{\"url\": \"/v1/embeddings\"}\n{\"url\": \"/v1/messages\"}\n";
        assert_eq!(endpoint(requests).ok(), Some(BatchEndpoint::Embeddings));
        for bad in ["", " \n", "[", "{}", "{\"url\": 1}", "{\"url\": \"/v1/audio/speech\"}"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }
}
