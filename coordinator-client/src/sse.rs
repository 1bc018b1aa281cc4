//! Server-Sent Events of one response.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use eventsource_stream::{Event, EventStreamError, Eventsource};
use futures::{Stream, StreamExt, stream};
use reqwest::{Response, header::CONTENT_TYPE};

/// Frames in the order of arrival.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Event, Broken>> + Send>>;

/// Why a stream of frames ended early. It may be resumed in each case.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection broke.
    Connection(reqwest::Error),
    /// No data arrived in time, or it was not text.
    Other,
}

impl Broken {
    /// The cause, if there is one.
    pub(crate) fn source(self) -> Option<reqwest::Error> {
        match self {
            Self::Connection(source) => Some(source),
            Self::Other => None,
        }
    }
}

/// Whether a response is a stream of events.
pub(crate) fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
}

/// The frames of a response. It counts as interrupted after `idle` without data; comments count as data.
pub(crate) fn frames(response: Response, idle: Duration) -> Frames {
    frames_of(watched(Box::pin(response.bytes_stream()), idle))
}

fn frames_of(bytes: impl Stream<Item = Result<Bytes, Broken>> + Send + 'static) -> Frames {
    Box::pin(bytes.eventsource().map(|frame| match frame {
        Ok(frame) => Ok(frame),
        Err(EventStreamError::Transport(broken)) => Err(broken),
        Err(_) => Err(Broken::Other),
    }))
}

type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

fn watched(body: Body, idle: Duration) -> impl Stream<Item = Result<Bytes, Broken>> + Send {
    stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout(idle, body.next()).await {
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(body))),
            Ok(Some(Err(source))) => Some((Err(Broken::Connection(source)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(Broken::Other), None)),
        }
    })
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream was interrupted")
    }
}

impl std::error::Error for Broken {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    use futures::executor::block_on;
    use proptest::prelude::*;

    proptest! {
        /// However the network cuts a stream into pieces, the same frames come out.
        #[test]
        fn frames_do_not_depend_on_how_data_is_split(
            texts in prop::collection::vec("(\\PC|: |data|\u{2028}){0,12}", 0..8),
            cuts in prop::collection::vec(1_usize..9, 1..40)
        ) {
            let wanted: Vec<String> =
                texts.iter().map(|text| serde_json::json!({ "content": text }).to_string()).collect();
            let mut wire = String::new();
            for (at, data) in wanted.iter().enumerate() {
                let _ = write!(wire, ": keep-alive\n\nid: {at}\nevent: token\ndata: {data}\n\n");
            }
            wire.push_str("id: 99\ndata: {\"cut");
            let (mut rest, mut pieces) = (wire.as_bytes(), Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                pieces.push(Ok(Bytes::copy_from_slice(piece)));
                rest = after;
            }
            let seen: Vec<(String, String)> = block_on(
                frames_of(stream::iter(pieces))
                    .map(|frame| frame.map(|frame| (frame.id, frame.data)).expect("a frame"))
                    .collect(),
            );
            let wanted: Vec<(String, String)> =
                wanted.into_iter().enumerate().map(|(at, data)| (at.to_string(), data)).collect();
            prop_assert_eq!(seen, wanted);
        }
    }
}
