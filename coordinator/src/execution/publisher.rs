//! Publishes one job's events to `job.<id>.events`, in order, without delaying local readers.
//!
//! One message of a job is in flight at a time, a few per second; events that arrive meanwhile go into the next one.
//! Each message names the sequence number of the one before, so that a coordinator that lost the job cannot write. If
//! the stream is lost, no event is: SQL holds ended jobs, and Islands hold the events of running ones.

use std::{sync::Arc, time::Duration};

use async_nats::{HeaderMap, header, jetstream};
use island_protocol::{
    FABRIC_VERSION,
    event::{JobEvent, Numbered},
    fabric::JobEvents,
    subjects::{JOB_EVENTS_STREAM, job_events},
};
use tokio_util::sync::CancellationToken;

use super::{job_handle::JobHandle, log::Entry};
use crate::{
    fabric::link::{Link, encode},
    storage::Dialect,
};

/// Maximum bytes of events in a message, well below the server's limit.
const MAX_BYTES: usize = 256 << 10;
/// Time between messages if several coordinators share the database and relay them to clients.
const SHARED_INTERVAL: Duration = Duration::from_millis(50);
/// The same if there is a single coordinator: the stream is only read after it restarts.
const SINGLE_INTERVAL: Duration = Duration::from_millis(250);
/// Tries of one message.
const MAX_TRIES: u32 = 40;

/// Position of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Published {
    /// Number of the last published event.
    pub last_event: u64,
    /// Stream sequence of the job's last message; 0 without one.
    pub sequence: u64,
}

/// Runs until all events of an ended job are published, or `hard` is triggered.
pub(super) async fn run(
    link: Link,
    handle: Arc<JobHandle>,
    published: Published,
    dialect: Dialect,
    hard: CancellationToken,
) {
    let interval = match dialect {
        Dialect::Sqlite => SINGLE_INTERVAL,
        Dialect::Postgres => SHARED_INTERVAL,
    };
    let mut reader = handle.log.read(published.last_event);
    let mut sequence = published.sequence;
    loop {
        let entries = tokio::select! {
            biased;
            () = hard.cancelled() => return,
            entries = reader.next() => entries,
        };
        let Some(entries) = entries else { return };
        let mut rest = entries.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(fitting(rest));
            rest = later;
            let sent = tokio::select! {
                biased;
                () = hard.cancelled() => return,
                sent = publish(&link, &handle, chunk, sequence) => sent,
            };
            let Some(acknowledged) = sent else { return };
            sequence = acknowledged;
        }
        tokio::select! {
            biased;
            () = hard.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
    }
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

/// Publishes one message and retries until it is acknowledged. Returns `None` if another coordinator writes the stream.
async fn publish(link: &Link, handle: &JobHandle, chunk: &[Entry], mut expected: u64) -> Option<u64> {
    let subject = job_events(handle.id);
    let events: Vec<Numbered<JobEvent>> = chunk.iter().map(|entry| entry.event.as_ref().clone()).collect();
    let payload = encode(&JobEvents { v: FABRIC_VERSION, job_id: handle.id, events });
    for attempt in 0..MAX_TRIES {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        let sent = link.jetstream().publish_with_headers(subject.clone(), headers, payload.clone()).await;
        let error = match sent {
            Ok(acknowledged) => match acknowledged.await {
                Ok(acknowledged) => return Some(acknowledged.sequence),
                Err(error) => error,
            },
            Err(error) => error,
        };
        tracing::debug!(job = %handle.id, %error, attempt, "events not published; will retry");
        tokio::time::sleep(Duration::from_millis(100 << attempt.min(4))).await;
        // The message may be stored although its acknowledgement was lost, or the stream may have been deleted.
        match last(link, &subject).await {
            Last::Message { sequence, last_event }
                if chunk.last().is_some_and(|e| e.event.n <= last_event) =>
            {
                return Some(sequence);
            }
            Last::Message { sequence, .. } => expected = sequence,
            Last::Nothing => expected = 0,
            // The fabric is unreachable, or was restarted with an empty store.
            Last::Unknown => drop(link.ensure_stream().await),
        }
    }
    tracing::warn!(job = %handle.id, "events not published; finished jobs replay from the database");
    None
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
