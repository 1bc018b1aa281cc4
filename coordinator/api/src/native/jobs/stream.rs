//! `GET /jobs/:id/stream`.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use island_protocol_api::problem::Code;
use tokio_util::sync::CancellationToken;

use super::{parse_id, unknown};
use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query, segment::Segment, slots::Slot},
};
use island_coordinator_domain::sse;
use island_coordinator_execution::{feed::Feed, log::Entry};
use island_coordinator_storage::jobs;

/// Maximum silence on a stream.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time for which a stream delays its first byte once an Island has accepted the job, so that an error can be answered
/// with its HTTP status; shorter than the timeouts of common proxies.
pub(crate) const ERROR_DELAY: Duration = Duration::from_secs(10);

/// Maximum bytes of events that are given to a connection at once; a larger event is given alone.
const CHUNK_BYTES: usize = 64 << 10;

/// Streams a job's events from the one after `Last-Event-ID` to the last.
pub(crate) async fn stream(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = last_event_id(&headers, &query)?;
    let id = parse_id(&id)?;
    let store = &api.store;
    let has_ended = jobs::has_ended(store.reader(), id, caller.account).await?.ok_or_else(unknown)?;
    let slot = api.streams.take(caller.account).await?;
    let execution = api.execution.clone();
    let feed = if has_ended {
        let feed = Feed::ended(execution, id, after).await?;
        feed.ok_or_else(|| ApiError::new(Code::NotFound, "the events of this job were deleted"))?
    } else {
        Feed::open(execution, id, after).await?
    };
    let reading = Reading { feed, ready: VecDeque::new(), soft: api.stops.http.clone(), slot: Some(slot) };
    Ok(event_stream(reading.frames()))
}

fn last_event_id(headers: &HeaderMap, query: &Query) -> Result<u64, ApiError> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let number = |text: &str| {
        let bad = |_| ApiError::new(Code::InvalidRequest, "Last-Event-ID must be a number of an event");
        text.trim().parse::<u64>().map_err(bad)
    };
    let (header, query) =
        (header.map(number).transpose()?, query.get("last_event_id").map(number).transpose()?);
    Ok(header.or(query).unwrap_or(0))
}

/// A response of Server-Sent Events that proxies do not buffer.
pub(crate) fn event_stream(
    frames: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A reader of a job's events. It releases its stream slot on drop.
struct Reading {
    feed: Feed,
    /// Read but not yet given to the connection.
    ready: VecDeque<Entry>,
    soft: CancellationToken,
    slot: Option<Slot>,
}

impl Reading {
    /// The connection requests more when it has sent, or may buffer, what it was given before.
    fn frames(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut reading| async move {
            if reading.is_over() {
                return None;
            }
            if reading.ready.is_empty() {
                tokio::select! {
                    biased;
                    () = reading.soft.cancelled() => return reading.interrupted(),
                    entries = reading.feed.next() => reading.ready = entries?.into(),
                    () = tokio::time::sleep(KEEP_ALIVE) => return Some((Ok(sse::KEEP_ALIVE), reading)),
                }
            }
            let chunk = reading.chunk().await;
            Some((Ok(chunk), reading))
        })
    }

    /// The last bytes before the end of the job: no event, as a client that reads one may take it for the end.
    fn interrupted(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        self.slot.take()?;
        Some((Ok(sse::RESUME), self))
    }

    /// Whether the last bytes were given to the connection.
    fn is_over(&self) -> bool {
        self.slot.is_none()
    }

    /// The bytes of the events that are ready, up to a limit. The slot is released before the last event is given away,
    /// so that it is free when the client knows that the stream has ended, and after all others were.
    async fn chunk(&mut self) -> Bytes {
        let mut bytes = BytesMut::new();
        while let Some(entry) = self.ready.front() {
            let is_last = entry.event.event.is_last();
            if !bytes.is_empty() && (is_last || bytes.len() + entry.frame.len() > CHUNK_BYTES) {
                break;
            }
            let Some(entry) = self.ready.pop_front() else { break };
            if is_last && let Some(slot) = self.slot.take() {
                slot.release().await;
            }
            if bytes.is_empty() && self.ready.is_empty() {
                return entry.frame;
            }
            bytes.extend_from_slice(&entry.frame);
        }
        bytes.freeze()
    }
}
