//! Publishes one job's events to `job.<id>.events`, in order, without delaying local readers.
//!
//! One message of a job is in flight at a time, a few per second; events that arrive meanwhile go into the next one.
//! Each message names the sequence number of the one before. If another message was written meanwhile, SQL decides
//! which coordinator executes the job, and the other one stops. If the stream is lost, no event is: SQL holds ended
//! jobs, and Islands hold the events of running ones. The stream of a running job that was lost is written again from the
//! first event on.

use std::{sync::Arc, time::Duration};

use async_nats::{HeaderMap, header, jetstream};
use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    event::{JobEvent, Numbered},
    fabric::JobEvents,
    subjects::{JOB_EVENTS_STREAM, job_events},
};

use tokio::time::Instant;

use super::{Execution, job_handle::JobHandle, log::Entry};
use island_coordinator_fabric::link::{Link, encode};
use island_coordinator_storage::{Dialect, jobs};

/// Maximum bytes of events in a message, well below the server's limit.
const MAX_BYTES: usize = 256 << 10;
/// Time between messages if several coordinators share the database and relay them to clients.
const SHARED_INTERVAL: Duration = Duration::from_millis(50);
/// The same if there is a single coordinator: the stream is only read after it restarts.
const SINGLE_INTERVAL: Duration = Duration::from_millis(250);
/// Tries of one message after the job's end: then its events are in SQL.
const MAX_TRIES: u32 = 40;
/// Longest pause between tries, as a power of two of [`FIRST_PAUSE`].
const MAX_DOUBLINGS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Position of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Published {
    /// Number of the last published event.
    pub last_event: u64,
    /// Stream sequence of the job's last message; 0 without one.
    pub sequence: u64,
}

/// Runs until all events of an ended job are published, or the coordinator stops.
pub(super) async fn run(execution: Arc<Execution>, handle: Arc<JobHandle>, published: Published) {
    let hard = execution.hard.clone();
    tokio::select! {
        biased;
        () = hard.cancelled() => {}
        is_complete = publish_all(&execution, &handle, published) => if is_complete {
            let _ = execution.purges.send((handle.id, Instant::now()));
        }
    }
}

/// Returns whether the end of the job is published, by this coordinator.
async fn publish_all(execution: &Execution, handle: &JobHandle, published: Published) -> bool {
    let interval = match execution.context.store.dialect() {
        Dialect::Sqlite => SINGLE_INTERVAL,
        Dialect::Postgres => SHARED_INTERVAL,
    };
    let mut reader = handle.log.read(published.last_event);
    let mut sequence = published.sequence;
    while let Some(entries) = reader.next().await {
        let mut rest = entries.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(fitting(rest));
            rest = later;
            match publish(execution, handle, chunk, sequence).await {
                Outcome::Stored { sequence: stored } => sequence = stored,
                // Readers at other coordinators lack the events before this chunk as well.
                Outcome::Emptied => {
                    (reader, sequence) = (handle.log.read(0), 0);
                    break;
                }
                Outcome::GivenUp => return false,
            }
        }
        tokio::time::sleep(interval).await;
    }
    reader.has_ended()
}

/// Number of entries for the next message, at least one.
fn fitting(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += entry.frame.len();
        bytes <= MAX_BYTES
    };
    entries.iter().take_while(fits).count().max(1)
}

/// What became of a message.
#[derive(Debug)]
enum Outcome {
    /// It is in the stream, and the last message has this sequence number.
    Stored { sequence: u64 },
    /// The stream has lost the events before it.
    Emptied,
    /// Another coordinator executes the job, or the job has ended and the stream cannot be written.
    GivenUp,
}

/// Publishes one message and retries until it is acknowledged.
async fn publish(execution: &Execution, handle: &JobHandle, chunk: &[Entry], mut expected: u64) -> Outcome {
    let first = chunk.first().map_or(1, |entry| entry.event.n);
    let link = &execution.context.link;
    let subject = job_events(handle.id);
    let events: Vec<Numbered<JobEvent>> = chunk.iter().map(|entry| entry.event.as_ref().clone()).collect();
    let payload = encode(&JobEvents { v: FABRIC_VERSION, job_id: handle.id, events });
    for attempt in 0_u32.. {
        execution.unfenced().await;
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        let begin = Instant::now();
        let sent = link.jetstream().publish_with_headers(subject.clone(), headers, payload.clone()).await;
        let error = match sent {
            Ok(acknowledged) => match acknowledged.await {
                Ok(acknowledged) => {
                    execution.context.metrics.fabric.published(begin);
                    return Outcome::Stored { sequence: acknowledged.sequence };
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        tracing::debug!(job = %handle.id, %error, attempt, "events not published; will retry");
        if is_given_up(attempt, handle.is_over()) {
            break;
        }
        tokio::time::sleep(FIRST_PAUSE * (1 << attempt.min(MAX_DOUBLINGS))).await;
        // The message may be stored although its acknowledgement was lost, or the stream may have been deleted.
        match last(link, &subject).await {
            Last::Message { sequence, .. } if sequence == expected => {}
            Last::Message { sequence, last_event } => {
                // Written by an earlier try of ours, or by another coordinator.
                if !is_ours(execution, handle).await {
                    tracing::info!(job = %handle.id, "another coordinator publishes the events");
                    return Outcome::GivenUp;
                }
                if chunk.last().is_some_and(|entry| entry.event.n <= last_event) {
                    return Outcome::Stored { sequence };
                }
                expected = sequence;
            }
            Last::Nothing if begins_again(first, handle.is_over()) => return Outcome::Emptied,
            Last::Nothing => expected = 0,
            // The fabric is unreachable, or was restarted with an empty store.
            Last::Unknown => drop(link.ensure_stream().await),
        }
    }
    tracing::warn!(job = %handle.id, "events not published; finished jobs replay from the database");
    Outcome::GivenUp
}

/// Whether a stream without a message is written again from the first event on, when the next message begins with event
/// `first`. While the job runs, other coordinators read all of its events from there.
fn begins_again(first: u64, is_over: bool) -> bool {
    first > 1 && !is_over
}

/// Whether a message is given up after this number of tries. While the job runs, other coordinators read its events only
/// from the fabric.
fn is_given_up(tries: u32, is_over: bool) -> bool {
    is_over && tries >= MAX_TRIES
}

/// Whether SQL names this coordinator as the one that executes the job. Waits until the database replies.
async fn is_ours(execution: &Execution, handle: &JobHandle) -> bool {
    let context = &execution.context;
    for attempt in 0_u32.. {
        match jobs::assigned_coordinator(context.store.reader(), handle.id).await {
            Ok(assigned) => {
                return assigned.is_some_and(|assigned| assigned.coordinator == Some(context.instance));
            }
            Err(error) => {
                tracing::debug!(job = %handle.id, error = %Chain(&error), "coordinator of a job not read; will retry");
            }
        }
        tokio::time::sleep(FIRST_PAUSE * (1 << attempt.min(MAX_DOUBLINGS))).await;
    }
    false
}

/// The last message of a job in the stream.
#[derive(Debug)]
pub(super) enum Last {
    Message {
        sequence: u64,
        last_event: u64,
    },
    Nothing,
    /// The stream could not be read.
    Unknown,
}

/// Reads the last message on a subject.
pub(super) async fn last(link: &Link, subject: &str) -> Last {
    let Ok(stream) = link.jetstream().get_stream_no_info(JOB_EVENTS_STREAM).await else {
        return Last::Unknown;
    };
    match stream.direct_get_last_for_subject(subject).await {
        Ok(message) => {
            let events = serde_json::from_slice::<JobEvents>(&message.payload).map(|message| message.events);
            let last_event = events.ok().and_then(|events| events.last().map(|event| event.n)).unwrap_or(0);
            Last::Message { sequence: message.sequence, last_event }
        }
        Err(error) if error.kind() == jetstream::stream::DirectGetErrorKind::NotFound => Last::Nothing,
        Err(_) => Last::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_stream_of_a_running_job_begins_again() {
        assert!(begins_again(2, false));
        assert!(!begins_again(1, false), "nothing is missing");
        assert!(!begins_again(2, true), "its events are in SQL");
    }

    #[test]
    fn the_events_of_a_running_job_are_never_given_up() {
        assert!((0..100_000).all(|tries| !is_given_up(tries, false)));
        assert!((0..MAX_TRIES).all(|tries| !is_given_up(tries, true)) && is_given_up(MAX_TRIES, true));
    }
}
