//! Following a job to its end: text as it comes, a bar while files and models load.

mod printer;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use island_coordinator_client::Client;
use island_protocol::ids::JobId;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::printer::Printer;
use crate::{
    failure::{INTERRUPTED, is_broken_pipe},
    output::Output,
};

/// How to follow.
#[derive(Debug, Clone, Default)]
pub(super) struct Follow {
    /// Start after this event.
    pub(super) after: Option<u64>,
    /// Print text at the end instead of as it comes.
    pub(super) whole: bool,
    /// Whether Ctrl-C cancels the job, or only stops following it.
    pub(super) cancel_on_interrupt: bool,
    /// Where images are saved.
    pub(super) images: Option<PathBuf>,
}

/// Prints a job's events until it has ended; the exit code says how.
pub(super) async fn follow(client: &Client, job: JobId, how: Follow, output: &Output) -> Result<ExitCode> {
    let mut events = client.job_events(job, how.after);
    let mut printer = Printer::new(job, &how, output);
    // One listener for the whole time: a signal between two events must not be lost.
    let mut interrupts = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    loop {
        let event = tokio::select! {
            biased;
            _ = interrupts.recv() => {
                printer.clear();
                return interrupted(client, job, events.last_event(), &how, output).await;
            }
            event = events.next() => event,
        };
        let Some(event) = event else { return Ok(ExitCode::SUCCESS) };
        match printer.take(event?) {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            Err(error) => {
                if is_broken_pipe(&error) && how.cancel_on_interrupt {
                    // Nobody reads the reply any more, so nobody shall pay for the rest of it.
                    client.cancel_job(job).await?;
                }
                return Err(error);
            }
        }
    }
}

async fn interrupted(
    client: &Client,
    job: JobId,
    last: u64,
    how: &Follow,
    output: &Output,
) -> Result<ExitCode> {
    let message = if how.cancel_on_interrupt {
        client.cancel_job(job).await?;
        format!("cancelled job {job}")
    } else {
        format!("the job goes on; to follow it further: island jobs stream {job} --after {last}")
    };
    if output.is_json() {
        output.json_line(&json!({ "type": "interrupted", "job_id": job, "last_event": last }))?;
    }
    output.note(&format!("\n{message}"));
    Ok(ExitCode::from(INTERRUPTED))
}
