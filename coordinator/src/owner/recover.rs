//! Taking up a job where it stood, after a restart or from a coordinator that is gone.
//!
//! Its events are what SQL keeps of the time before the current attempt, then what the fabric's stream has; what is
//! still missing the Island sends again, because its lease renewals are answered with the first missing number.

use std::time::Duration;

use futures::StreamExt as _;
use island_protocol::{
    event::{JobEvent, Numbered},
    fabric::JobEvents,
    ids::JobId,
    subjects::job_events,
};
use tokio::time::Instant;

use super::{
    Owner,
    accept::Reservation,
    live::Run,
    log::Log,
    publisher::{self, Last, Published},
    relay,
};
use crate::job::Job;

/// How long the stream of one job may take to read.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes up one job that is ours now.
pub(super) async fn take_up(reservation: Reservation, job: Job) {
    let owner = reservation.owner.clone();
    let context = &owner.context;
    let subject = job_events(job.id);
    let last = publisher::last(&context.link, &subject).await;
    let replayed = match last {
        Last::Message { sequence, .. } => replay(&owner, job.id, sequence).await,
        Last::Nothing | Last::Unknown => Vec::new(),
    };
    let events = joined(job.head.clone(), replayed);
    let published = match last {
        Last::Message { sequence, last_event } => {
            Published { last_event: last_event.min(events.len() as u64), sequence }
        }
        Last::Nothing | Last::Unknown => Published::default(),
    };
    let log = Log::new(events);
    let run = job.host.map(|host| Run::new(job.key(), host, Instant::now(), true));
    if let Some(host) = job.host
        && let Err(error) = owner.known(host).await
    {
        tracing::warn!(%host, error = %island_daemon::chain::Chain(&error), "Island of a job not read yet");
    }
    if let (Some(host), Some(cargo)) = (job.host, context.catalogue.get(job.workload.as_str())) {
        context.fleet.claim(host, job.key(), &cargo.spec);
    }
    owner.spawn(reservation, job, log, published, run, None);
}

/// The head and what follows it without a gap. An end that was published but not committed cannot be: ends are
/// committed first.
fn joined(head: Vec<Numbered<JobEvent>>, replayed: Vec<Numbered<JobEvent>>) -> Vec<Numbered<JobEvent>> {
    let mut events = head;
    for event in replayed {
        let due = events.len() as u64 + 1;
        if event.n == due && !event.event.is_last() {
            events.push(event);
        }
    }
    events
}

/// Everything the stream has of a job up to message `last`; on trouble, what could be read.
async fn replay(owner: &Owner, job: JobId, last: u64) -> Vec<Numbered<JobEvent>> {
    let mut events = Vec::new();
    let read = read_stream(owner, job, last, &mut events);
    match tokio::time::timeout(REPLAY_TIMEOUT, read).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%job, %error, "stream not read whole"),
        Err(_) => tracing::warn!(%job, "stream not read in time"),
    }
    events
}

async fn read_stream(
    owner: &Owner,
    job: JobId,
    last: u64,
    events: &mut Vec<Numbered<JobEvent>>,
) -> Result<(), async_nats::Error> {
    let mut messages = relay::messages(&owner.context.link, job).await?;
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
        let event = |n: &u64| Numbered { n: *n, event: JobEvent::Token { content: n.to_string() } };
        numbers.iter().map(event).collect()
    }

    #[test]
    fn what_overlaps_is_there_once_and_nothing_follows_a_gap() {
        let events = joined(numbered(&[1, 2]), numbered(&[2, 3, 4, 4, 6, 7]));
        assert_eq!(events, numbered(&[1, 2, 3, 4]));
    }
}
