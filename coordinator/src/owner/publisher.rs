//! Writes one job's events to `job.<id>.events`, in order, off the path to local readers.
//!
//! One message is in flight per job, and a few are sent in a second; what came meanwhile goes into the next one. Each message
//! names the last one before it, so a coordinator that lost the job cannot write. Losing the stream loses nothing: SQL keeps ended jobs,
//! Islands keep the events of running ones.

use std::{sync::Arc, time::Duration};

use async_nats::{HeaderMap, header, jetstream};
use island_protocol::{
    FABRIC_VERSION,
    event::{JobEvent, Numbered},
    fabric::JobEvents,
    subjects::{JOB_EVENTS_STREAM, job_events},
};
use tokio_util::sync::CancellationToken;

use super::{live::Live, log::Entry};
use crate::{
    fabric::link::{Link, encode},
    storage::Dialect,
};

/// Bytes of events per message, well below what the fabric takes.
const MAX_BYTES: usize = 256 << 10;
/// Time between messages where other coordinators read them to their clients.
const WHERE_OTHERS_READ: Duration = Duration::from_millis(50);
/// The same where there are none: until this one is gone, nobody needs what is in the stream.
const ALONE: Duration = Duration::from_millis(250);
/// How often a message is tried.
const MAX_TRIES: u32 = 40;

/// How far the stream has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Published {
    /// Number of the last event in it.
    pub last_event: u64,
    /// Stream sequence of the job's last message; 0: none.
    pub sequence: u64,
}

/// Runs until everything of an ended job is written, or `hard` is triggered.
pub(super) async fn run(
    link: Link,
    live: Arc<Live>,
    published: Published,
    dialect: Dialect,
    hard: CancellationToken,
) {
    let pace = match dialect {
        Dialect::Sqlite => ALONE,
        Dialect::Postgres => WHERE_OTHERS_READ,
    };
    let mut reader = live.log.read(published.last_event);
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
                sent = publish(&link, &live, chunk, sequence) => sent,
            };
            let Some(acknowledged) = sent else { return };
            sequence = acknowledged;
        }
        tokio::select! {
            biased;
            () = hard.cancelled() => return,
            () = tokio::time::sleep(pace) => {}
        }
    }
}

/// How many entries go into the next message: at least one.
fn fitting(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += entry.frame.len();
        bytes <= MAX_BYTES
    };
    entries.iter().take_while(fits).count().max(1)
}

/// Publishes one message, for as long as it takes; none: the stream is not ours to write any more.
async fn publish(link: &Link, live: &Live, chunk: &[Entry], mut expected: u64) -> Option<u64> {
    let subject = job_events(live.id);
    let events: Vec<Numbered<JobEvent>> = chunk.iter().map(|entry| entry.event.as_ref().clone()).collect();
    let payload = encode(&JobEvents { v: FABRIC_VERSION, job_id: live.id, events });
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
        tracing::debug!(job = %live.id, %error, attempt, "events not published yet");
        tokio::time::sleep(Duration::from_millis(100 << attempt.min(4))).await;
        // The message may be in although its acknowledgement was lost, or the stream may be gone.
        match last(link, &subject).await {
            Last::Message { sequence, last_event }
                if chunk.last().is_some_and(|e| e.event.n <= last_event) =>
            {
                return Some(sequence);
            }
            Last::Message { sequence, .. } => expected = sequence,
            Last::Nothing => expected = 0,
            // The fabric is away, or came back without its store.
            Last::Unknown => drop(link.ensure_stream().await),
        }
    }
    tracing::warn!(job = %live.id, "events not published; finished jobs replay from the database");
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
    /// The stream could not be asked.
    Unknown,
}

/// Asks for the last message on a subject.
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
