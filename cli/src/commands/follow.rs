//! Following a job to its end: text as it arrives, a bar while files and models load.

mod patience;
mod printer;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use island_coordinator_client::{Client, ClientError};
use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
    job::JobStatus,
};
use serde_json::json;

use self::{patience::Patience, printer::Printer};
use crate::{
    failure::{FAILED, is_broken_pipe},
    output::Output,
    signals::{Signals, Stop},
};

/// Time that a cancellation gets before a further signal ends the wait for it: one Ctrl-C may arrive twice.
const CANCELLATION: Duration = Duration::from_secs(2);

/// How to follow.
#[derive(Debug, Clone, Default)]
pub(super) struct Follow {
    /// Start after this event.
    pub(super) after: Option<u64>,
    /// Print text at the end instead of as it arrives.
    pub(super) whole: bool,
    /// Whether the job is cancelled when it cannot be followed to its end (Ctrl-C, SIGTERM, SIGHUP, no reader of the
    /// output, no stream to be had), or goes on.
    pub(super) cancel: bool,
    /// Where images are saved.
    pub(super) images: Option<PathBuf>,
}

/// What came first.
enum Met {
    Event(Option<Result<Box<Numbered<JobEvent>>, ClientError>>),
    Signal(Stop),
}

/// Prints a job's events until it has ended; the exit code reflects the outcome.
pub(super) async fn follow(client: &Client, job: JobId, how: Follow, output: &Output) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let mut events = client.job_events(job, how.after);
    let mut printer = Printer::new(job, &how, output);
    let mut patience = Patience::new(client, job);
    loop {
        let met = {
            // Kept across questions: a connection that is slow to open must not begin anew after each.
            let mut next = std::pin::pin!(events.next());
            loop {
                tokio::select! {
                    biased;
                    stop = signals.asked_to_stop() => break Met::Signal(stop),
                    event = &mut next => break Met::Event(event.map(|event| event.map(Box::new))),
                    reasons = patience.reasons(), if printer.is_waiting() => {
                        if let Some(reasons) = reasons {
                            printer.waiting(&reasons);
                        }
                    }
                }
            }
        };
        let event = match met {
            Met::Event(Some(Ok(event))) => *event,
            Met::Event(Some(Err(error))) => {
                printer.clear();
                return Err(not_followed(client, job, error, &how, output).await);
            }
            Met::Event(None) => {
                printer.clear();
                return ended(client, job, events.last_event(), output).await;
            }
            Met::Signal(stop) => {
                printer.clear();
                let asked_again = async {
                    tokio::time::sleep(CANCELLATION).await;
                    signals.asked_to_stop().await
                };
                tokio::select! {
                    stopped = stopped(client, job, events.last_event(), &how, output) => stopped?,
                    again = asked_again => {
                        output.warn(&format!("the job may go on; to cancel it: island jobs cancel {job}"));
                        return Ok(again.exit_code());
                    }
                }
                return Ok(stop.exit_code());
            }
        };
        match printer.take(event) {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            Err(error) => {
                if is_broken_pipe(&error) && how.cancel {
                    // The output is closed: cancel, so that the rest is not charged.
                    client.cancel_job(job).await?;
                }
                return Err(error);
            }
        }
    }
}

async fn stopped(client: &Client, job: JobId, last: u64, how: &Follow, output: &Output) -> Result<()> {
    let message = if how.cancel {
        client.cancel_job(job).await?;
        format!("cancelled job {job}")
    } else {
        format!("the job goes on; to follow it further: island jobs stream {job} --after {last}")
    };
    if output.is_json() {
        output.json_line(&json!({ "type": "interrupted", "job_id": job, "last_event": last }))?;
    }
    output.note(&format!("\n{message}"));
    Ok(())
}

/// A job whose stream the coordinator refuses is not left to run unnoticed.
async fn not_followed(
    client: &Client,
    job: JobId,
    error: ClientError,
    how: &Follow,
    output: &Output,
) -> anyhow::Error {
    if !matches!(error, ClientError::Refused(_)) {
        return error.into();
    }
    if !how.cancel {
        // Of a job that is not there or not this account's there is nothing to follow.
        if error.refusal().is_some_and(|refusal| refusal.status == 429) {
            output.note(&format!("job {job} goes on; to follow it later: island jobs stream {job}"));
        }
        return error.into();
    }
    match client.cancel_job(job).await {
        Ok(_) => output.note(&format!("cancelled job {job}")),
        Err(failure) => output.warn(&format!("job {job} is not cancelled: {failure}")),
    }
    error.into()
}

/// The stream ended without a last event: the job had ended before, and all its events up to `last` are known.
async fn ended(client: &Client, job: JobId, last: u64, output: &Output) -> Result<ExitCode> {
    let status = client.job(job).await?.status;
    output.note(&format!("the job has ended ({status}) and has no events after {last}"));
    Ok(if status == JobStatus::Completed { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
