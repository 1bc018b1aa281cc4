//! Resumes a job after a restart or a takeover.
//!
//! Its events are those that SQL holds from before the current attempt, then those of the fabric's stream. The Island
//! sends the rest again, because replies to its lease renewals name the first missing number.

use std::{sync::Arc, time::Duration};

use super::{
    Execution,
    accept::Reservation,
    log::Log,
    machine::Machine,
    publisher::{self, Last, Published},
    relays,
};
use crate::network::JobCargo;
use futures::StreamExt as _;
use island_coordinator_domain::job::Job;
use island_daemon::traces::Span;
use island_protocol::{
    event::{JobEvent, Numbered},
    fabric::JobEvents,
    ids::JobId,
    subjects::job_events,
};

/// Maximum time to read the stream of one job.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(10);

/// Resumes one job of this coordinator.
pub(super) async fn resume(reservation: Reservation, job: Job, cargo: JobCargo) {
    let is_changed = matches!(cargo, JobCargo::Changed);
    let cargo = if let JobCargo::Found(cargo) = cargo { Some(cargo) } else { None };
    let execution = reservation.execution.clone();
    let context = &execution.context;
    let subject = job_events(job.id);
    let last = publisher::last(&context.link, &subject).await;
    let replayed = match last {
        Last::Message { sequence, .. } => replay(&execution, job.id, sequence).await,
        Last::Nothing | Last::Unknown => Vec::new(),
    };
    let events = joined(job.head.clone(), replayed);
    let published = match last {
        Last::Message { sequence, last_event } => {
            Published { last_event: last_event.min(events.len() as u64), sequence }
        }
        Last::Nothing | Last::Unknown => Published::default(),
    };
    let log = Arc::new(Log::new(events));
    if let Some(host) = job.host
        && let Err(error) = execution.account_and_key(host).await
    {
        tracing::warn!(%host, error = %island_daemon::chain::Chain(&error), "Island of a job not read");
    }
    if let (Some(host), Some(cargo)) = (job.host, &cargo) {
        context.fleet.claim(host, job.key(), &cargo.spec);
    }
    let input = execution.input_memory.reserve_stored(&job.input);
    let mut machine = Machine::resumed(job, log.clone(), cargo, context.terms(), context.now());
    if is_changed {
        machine.forbid_other_versions();
    }
    // Its trace ended with the coordinator that began it.
    execution.spawn(reservation, input, machine, log, published, Span::default());
}

/// The head and the events that follow it without a gap. A published end would be ignored: ends are committed before
/// they are published.
pub(super) fn joined(
    head: Vec<Numbered<JobEvent>>,
    replayed: Vec<Numbered<JobEvent>>,
) -> Vec<Numbered<JobEvent>> {
    let mut events = head;
    for event in replayed {
        let due = events.len() as u64 + 1;
        if event.n == due && !event.event.is_last() {
            events.push(event);
        }
    }
    events
}

/// All events of a job in the stream, up to message `last`. After an error, those that could be read.
async fn replay(execution: &Execution, job: JobId, last: u64) -> Vec<Numbered<JobEvent>> {
    let mut events = Vec::new();
    let read = read_stream(execution, job, last, &mut events);
    match tokio::time::timeout(REPLAY_TIMEOUT, read).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%job, %error, "stream of a job read in part"),
        Err(_) => tracing::warn!(%job, "stream of a job read in part: timeout"),
    }
    events
}

async fn read_stream(
    execution: &Execution,
    job: JobId,
    last: u64,
    events: &mut Vec<Numbered<JobEvent>>,
) -> Result<(), async_nats::Error> {
    let mut messages = relays::messages(&execution.context.link, job).await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        if let Ok(batch) = serde_json::from_slice::<JobEvents>(&message.payload) {
            events.extend(batch.events);
        }
        if message.info()?.stream_sequence >= last {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(numbers: &[u64]) -> Vec<Numbered<JobEvent>> {
        let event = |n: &u64| Numbered { n: *n, event: JobEvent::token(n.to_string()) };
        numbers.iter().map(event).collect()
    }

    #[test]
    fn overlapping_events_appear_once_and_none_follows_a_gap() {
        let events = joined(numbered(&[1, 2]), numbered(&[2, 3, 4, 4, 6, 7]));
        assert_eq!(events, numbered(&[1, 2, 3, 4]));
    }
}
