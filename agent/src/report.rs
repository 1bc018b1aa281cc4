//! Reports an attempt's events to the coordinator that executes the job.
//!
//! Events are sent as they arrive; while the connection accepts no more, they are collected into larger messages. The last message is a
//! request, repeated until the coordinator has committed the end. An event that is larger than any message ends the attempt in its place.

use std::time::Duration;

use fail::fail_point;
use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    credits::MicroCredits,
    event::{AttemptEvent, Numbered},
    fabric::{Output, OutputReply},
    job::{Failure, FailureCode, Outcome},
    subjects::HostTopic,
};

use crate::{
    attempt::handle::AttemptHandle,
    clock,
    disk::spool::Spool,
    fabric::{Fabric, FabricError},
    owner::earnings::Earnings,
};

/// Maximum bytes of events in one message.
const MAX_BYTES: usize = 256 << 10;
/// Time the coordinator has to commit an end.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between tries to have an end committed.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MOST: Duration = Duration::from_secs(5);
/// Time after which an attempt without a confirmed lease checks whether it may publish again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reports events until the end is committed.
pub async fn run(attempt: &AttemptHandle, fabric: &Fabric, earnings: &Earnings) {
    let mut next = attempt.with_spool(Spool::first);
    let mut retry = RETRY_FIRST;
    let mut max_bytes = MAX_BYTES;
    // The end that replaces an event that cannot be sent, and all after it.
    let mut early_end: Option<Numbered<AttemptEvent>> = None;
    loop {
        fabric.up().await;
        if let Some(from) = attempt.take_replay() {
            next = next.min(from.max(attempt.with_spool(Spool::first)));
        }
        if attempt.is_fenced(clock::boot_ms(), fabric.fence_ms()) {
            let _ = tokio::time::timeout(LOOK_EVERY, attempt.woken()).await;
            continue;
        }
        let events = match &early_end {
            Some(end) if next >= end.n => vec![end.clone()],
            _ => attempt.with_spool(|spool| spool.read(next, max_bytes)),
        };
        let Some(last) = events.last() else {
            attempt.woken().await;
            continue;
        };
        let last_number = last.n;
        let is_end = matches!(last.event, AttemptEvent::Ended { .. });
        let message = Output { v: FABRIC_VERSION, key: attempt.key(), events };
        if !is_end {
            match fabric.publish(HostTopic::Output, &message).await {
                Ok(()) => {
                    fail_point!("report.published", island_daemon::failpoint::crash);
                    next = last_number + 1;
                }
                Err(FabricError::TooLarge) => give_up(attempt, &message, &mut max_bytes, &mut early_end),
                Err(error) => {
                    tracing::debug!(key = %attempt.key(), %error, "events cannot be sent yet");
                    tokio::time::sleep(RETRY_FIRST).await;
                }
            }
            continue;
        }
        fail_point!("report.ending", island_daemon::failpoint::crash);
        match commit(fabric, &message).await {
            CommitOutcome::Committed(earned) => {
                fail_point!("report.committed", island_daemon::failpoint::crash);
                // A coordinator that reports no earnings has committed the end all the same.
                let device = message.events.last().and_then(|last| device(&last.event));
                earnings.add(earned.unwrap_or(MicroCredits::ZERO), device);
                return;
            }
            CommitOutcome::Replay(from) => next = from.max(attempt.with_spool(Spool::first)).min(last_number),
            CommitOutcome::TooLarge => give_up(attempt, &message, &mut max_bytes, &mut early_end),
            CommitOutcome::Again => {
                let _ = tokio::time::timeout(retry, attempt.woken()).await;
                retry = (retry * 2).min(RETRY_MOST);
            }
        }
    }
}

/// Sends the events of a message that is too large one by one from now on; if it is only one, ends the attempt in its place.
fn give_up(
    attempt: &AttemptHandle,
    message: &Output,
    max_bytes: &mut usize,
    early_end: &mut Option<Numbered<AttemptEvent>>,
) {
    let [event] = message.events.as_slice() else {
        *max_bytes = 1;
        return;
    };
    tracing::warn!(key = %attempt.key(), event = event.n, "an event is larger than a message of the fabric");
    let failure =
        Failure::of_job(FailureCode::OutputLimit, "the job produced an output larger than one message");
    attempt.cancel(failure.clone());
    let outcome = Outcome::failed(failure);
    *early_end = Some(Numbered { n: event.n, event: AttemptEvent::Ended { outcome } });
}

/// The device that ran a completed job.
fn device(end: &AttemptEvent) -> Option<&str> {
    match end {
        AttemptEvent::Ended { outcome: Outcome::Completed { usage, .. } } => usage.device.as_deref(),
        _ => None,
    }
}

/// Result of sending the last message.
enum CommitOutcome {
    /// With what the job earned.
    Committed(Option<MicroCredits>),
    Replay(u64),
    TooLarge,
    Again,
}

async fn commit(fabric: &Fabric, message: &Output) -> CommitOutcome {
    match fabric.request::<OutputReply>(HostTopic::Output, message, COMMIT_TIMEOUT).await {
        Ok(reply) if reply.committed => CommitOutcome::Committed(reply.earned),
        Ok(OutputReply { replay_from: Some(from), .. }) => CommitOutcome::Replay(from),
        Ok(_) => CommitOutcome::Again,
        Err(FabricError::TooLarge) => CommitOutcome::TooLarge,
        Err(error) => {
            tracing::debug!(key = %message.key, error = %Chain(&error), "the end is not yet committed");
            CommitOutcome::Again
        }
    }
}
