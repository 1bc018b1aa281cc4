//! A job's events, resumed after a dropped connection without a gap or a repeat.

mod position;

use std::fmt;

use futures::{Stream, StreamExt, stream};
use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
    job::JobStatus,
};
use island_protocol_api::{Data, problem::Code};
use serde::Deserialize;

use self::position::{Position, Step};
use crate::{
    backoff::Backoff,
    call::{Call, excerpt},
    client::Client,
    error::ClientError,
    sse::{self, Frames},
};

/// What is attempted, for error messages.
const WHAT: &str = "follow the job";

/// The part of a job that shows whether more events can follow.
#[derive(Deserialize)]
struct Standing {
    status: JobStatus,
}

/// The events of one job, in order. Ends after `done` or `error`, or without an event if the job has ended and has no
/// event after the given one.
///
/// The number of open streams of an account may be limited. If the limit is reached before the first connection of this
/// stream, the error is returned at once; while resuming, it is retried, because the slot of the interrupted connection
/// may be taken for a while.
///
/// After an interruption, a timeout, a restart of the coordinator or a takeover by another one, the stream is resumed
/// after the last event received, by the policy of [`ClientBuilder::resume`](crate::client::ClientBuilder::resume).
/// Cancelling [`next`](Self::next) loses nothing.
pub struct EventStream {
    client: Client,
    job: JobId,
    position: Position,
    frames: Option<Frames>,
    backoff: Backoff,
    /// Whether a connection was opened before.
    was_open: bool,
    /// Whether the open connection has returned no event yet.
    is_empty: bool,
    /// Whether the job had ended before the connection was opened.
    job_ended: bool,
    ended: bool,
}

impl EventStream {
    pub(crate) fn new(client: Client, job: JobId, after: u64) -> Self {
        let backoff = client.rules().resume.start();
        Self {
            client,
            job,
            position: Position(after),
            frames: None,
            backoff,
            was_open: false,
            is_empty: true,
            job_ended: false,
            ended: false,
        }
    }

    /// Number of the last event received.
    pub fn last_event(&self) -> u64 {
        self.position.0
    }

    /// The next event; `None` after the last one or after an error.
    pub async fn next(&mut self) -> Option<Result<Numbered<JobEvent>, ClientError>> {
        if self.ended {
            return None;
        }
        let next = self.next_or_resume().await.transpose();
        self.ended = match &next {
            Some(Ok(event)) => event.event.is_last(),
            Some(Err(_)) | None => true,
        };
        next
    }

    /// The same as a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<Numbered<JobEvent>, ClientError>> + Send {
        stream::unfold(self, |mut events| async move {
            let next = events.next().await?;
            Some((next, events))
        })
    }

    async fn next_or_resume(&mut self) -> Result<Option<Numbered<JobEvent>>, ClientError> {
        loop {
            if self.frames.is_none() {
                self.frames = Some(self.connect().await?);
                self.is_empty = true;
                self.was_open = true;
            }
            let frames = self.frames.as_mut().expect("connected above");
            let failure = match frames.next().await {
                Some(Ok(frame)) => match self.position.take(&frame.id, &frame.data) {
                    Ok(Step::Event(event)) => {
                        self.backoff = self.client.rules().resume.start();
                        self.is_empty = false;
                        return Ok(Some(*event));
                    }
                    Ok(Step::Nothing) => continue,
                    Ok(Step::Gap) => None,
                    Err(source) => return Err(ClientError::Decode { what: WHAT, source }),
                },
                Some(Err(broken)) => broken.source().map(|source| self.client.transport(WHAT, source)),
                None if self.is_empty && self.job_ended => return Ok(None),
                None if self.is_empty => {
                    self.frames = None;
                    if has_ended(&self.client, self.job).await {
                        // Its last events may have arrived between the two requests: read once more.
                        self.job_ended = true;
                        continue;
                    }
                    None
                }
                // Closed without an end.
                None => None,
            };
            self.frames = None;
            self.pause(failure).await?;
        }
    }

    async fn connect(&mut self) -> Result<Frames, ClientError> {
        loop {
            let error = match self.open().await {
                Ok(frames) => return Ok(frames),
                Err(error) if !self.was_open && is_stream_limit(&error) => return Err(error),
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            self.pause(Some(error)).await?;
        }
    }

    async fn open(&mut self) -> Result<Frames, ClientError> {
        let mut call = Call::get(WHAT, &["jobs", &self.job.to_string(), "stream"])
            .header("Accept", "text/event-stream".into());
        if self.position.0 > 0 {
            call = call.header("Last-Event-ID", self.position.0.to_string());
        }
        let idle = self.client.rules().idle;
        let opening = tokio::time::timeout(idle, self.client.send_once(&call));
        let Ok(response) = opening.await else { return Err(self.lost(None)) };
        let response = response?;
        if !sse::is_event_stream(&response) {
            let status = response.status().as_u16();
            let text = response.text().await.unwrap_or_default();
            let excerpt = excerpt(&text);
            return Err(ClientError::NotOurs { what: WHAT, status, excerpt, retry_after: None });
        }
        Ok(sse::frames(response, idle))
    }

    /// Waits before the next connection, or returns an error if there are no tries left.
    async fn pause(&mut self, failure: Option<ClientError>) -> Result<(), ClientError> {
        // A connection that returns no event counts as an interrupted one.
        let failure = failure.filter(|failure| !matches!(failure, ClientError::StreamLost { .. }));
        let retry_after = failure.as_ref().and_then(ClientError::retry_after);
        tracing::debug!(job = %self.job, after = self.position.0, ?failure, "resuming the stream");
        if self.backoff.wait(retry_after).await {
            return Ok(());
        }
        Err(self.lost(failure))
    }

    fn lost(&self, failure: Option<ClientError>) -> ClientError {
        ClientError::StreamLost { job: self.job, last: self.position.0, source: failure.map(Box::new) }
    }
}

/// Whether a job has ended. Any error counts as no, so that the stream is resumed.
async fn has_ended(client: &Client, job: JobId) -> bool {
    let mut call = Call::get(WHAT, &["jobs", &job.to_string()]);
    call.timeout = Some(client.rules().timeout);
    let Ok(response) = client.send_once(&call).await else { return false };
    let Ok(body) = response.bytes().await else { return false };
    serde_json::from_slice::<Data<Standing>>(&body).is_ok_and(|job| job.data.status.is_final())
}

/// Whether the account has reached its limit of open streams.
fn is_stream_limit(error: &ClientError) -> bool {
    error.code() == Some(Code::ConcurrentStreamsExceeded.as_str())
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("job", &self.job)
            .field("last", &self.position.0)
            .finish_non_exhaustive()
    }
}
