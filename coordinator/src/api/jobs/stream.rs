//! `GET /jobs/:id/stream`.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use island_protocol::problem::Code;
use tokio_util::sync::CancellationToken;

use super::own;
use crate::{
    api::{Api, ApiError, auth::Caller, query::Query, segment::Segment, slots::Slot},
    execution::{feed::Feed, log::Entry},
    sse,
};

/// Maximum silence on a stream.
pub(in crate::api) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams a job's events from the one after `Last-Event-ID` to the last.
pub(in crate::api) async fn stream(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = last_event_id(&headers, &query)?;
    let job = own(&api, &caller, &id).await?;
    let feed = Feed::open(api.execution.clone(), job.id, after).await?;
    // The events of an ended job are one answer and need no slot.
    let slot = if feed.is_stored() { None } else { Some(api.streams.take(caller.account).await?) };
    let reading = Reading { feed, soft: api.soft.clone(), slot };
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
pub(in crate::api) fn event_stream(
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
    soft: CancellationToken,
    slot: Option<Slot>,
}

impl Reading {
    fn frames(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut reading| async move {
            let frame = tokio::select! {
                biased;
                () = reading.soft.cancelled() => return None,
                entries = reading.feed.next() => reading.frame_of(&entries?).await,
                () = tokio::time::sleep(KEEP_ALIVE) => sse::KEEP_ALIVE,
            };
            Some((Ok(frame), reading))
        })
    }

    /// The bytes of new events. Before the last one is sent the slot is released, so that it is free when the client
    /// knows that the stream has ended.
    async fn frame_of(&mut self, entries: &[Entry]) -> Bytes {
        if entries.iter().any(|entry| entry.event.event.is_last())
            && let Some(slot) = self.slot.take()
        {
            slot.release().await;
        }
        joined(entries)
    }
}

/// Available frames are sent in one write.
fn joined(entries: &[Entry]) -> Bytes {
    if let [entry] = entries {
        return entry.frame.clone();
    }
    let mut bytes = BytesMut::with_capacity(entries.iter().map(|entry| entry.frame.len()).sum());
    for entry in entries {
        bytes.extend_from_slice(&entry.frame);
    }
    bytes.freeze()
}
