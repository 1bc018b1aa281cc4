//! A job's events, resumed after a dropped connection without a gap or a repeat.

use std::{fmt, pin::Pin, time::Duration};

use eventsource_stream::{Event, EventStreamError, Eventsource};
use futures::{Stream, StreamExt};
use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
};
use reqwest::Method;

use crate::{backoff::Backoff, error::ClientError, http::Client};

type Frames = Pin<Box<dyn Stream<Item = Result<Event, EventStreamError<reqwest::Error>>> + Send>>;

/// The events of one job, in order. Ends after `done` or `error`.
pub struct EventStream {
    client: Client,
    job: JobId,
    last: u64,
    frames: Option<Frames>,
    backoff: Backoff,
    ended: bool,
}

impl EventStream {
    pub(crate) fn new(client: Client, job: JobId, after: u64) -> Self {
        Self { client, job, last: after, frames: None, backoff: Backoff::default(), ended: false }
    }

    /// Number of the last event received: what to resume after.
    pub fn last_event(&self) -> u64 {
        self.last
    }

    /// The next event; `None` after the last one or after an error.
    pub async fn next(&mut self) -> Option<Result<Numbered<JobEvent>, ClientError>> {
        if self.ended {
            return None;
        }
        let next = self.next_or_resume().await;
        self.ended = match &next {
            Ok(event) => event.event.is_last(),
            Err(_) => true,
        };
        Some(next)
    }

    async fn next_or_resume(&mut self) -> Result<Numbered<JobEvent>, ClientError> {
        loop {
            if self.frames.is_none() {
                self.connect().await?;
            }
            let frames = self.frames.as_mut().expect("connected above");
            let failure = match frames.next().await {
                Some(Ok(frame)) if frame.data.is_empty() => continue,
                Some(Ok(frame)) => match self.take(&frame)? {
                    Some(event) => return Ok(event),
                    None => continue,
                },
                Some(Err(EventStreamError::Transport(source))) => Some(self.client.transport(source)),
                // Cut in the middle of a frame, or closed without an end: the same cure.
                Some(Err(_)) | None => None,
            };
            self.frames = None;
            if !self.backoff.wait(None).await {
                return Err(ClientError::StreamLost { last: self.last, source: failure.map(Box::new) });
            }
        }
    }

    /// The event in a frame, unless it was received before.
    fn take(&mut self, frame: &Event) -> Result<Option<Numbered<JobEvent>>, ClientError> {
        let event: JobEvent = serde_json::from_str(&frame.data)
            .map_err(|source| ClientError::Decode { what: "job stream", source })?;
        let n = frame.id.parse().unwrap_or(self.last + 1);
        if n <= self.last {
            return Ok(None);
        }
        self.last = n;
        self.backoff = Backoff::default();
        Ok(Some(Numbered { n, event }))
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        loop {
            let mut request = self.client.request(Method::GET, &format!("/jobs/{}/stream", self.job));
            if self.last > 0 {
                request = request.header("Last-Event-ID", self.last.to_string());
            }
            match self.client.send(request.header("Accept", "text/event-stream")).await {
                Ok(response) => {
                    self.frames = Some(Box::pin(response.bytes_stream().eventsource()));
                    return Ok(());
                }
                Err(error) if error.is_transient() => {
                    let asked = error.retry_after().map(Duration::from_secs);
                    if !self.backoff.wait(asked).await {
                        return Err(ClientError::StreamLost {
                            last: self.last,
                            source: Some(Box::new(error)),
                        });
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("job", &self.job)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
