//! Chat, at once or streamed. A streamed reply cannot be resumed: submit a job and read its events where that is
//! required.

use std::{fmt, time::Duration};

use futures::{Stream, StreamExt, stream};
use island_protocol::ids::JobId;
use island_protocol_api::{
    chat::{ChatChunk, ChatCompletion, ChatRequest},
    problem::ErrorBody,
};

use crate::{
    call::{Call, excerpt},
    client::Client,
    error::{ClientError, Refusal},
    request::Request,
    sse::{self, Frames},
};

const WHAT: &str = "chat";
const PATH: [&str; 2] = ["chat", "completions"];
/// Long replies of slow models take this long.
const WHOLE_REPLY: Duration = Duration::from_mins(20);

/// The chunks of one reply.
///
/// Dropping it does not stop the job once the reply has begun: [`cancel`](Self::cancel) does.
pub struct ChatStream {
    client: Client,
    frames: Frames,
    /// Known from the first chunk.
    job: Option<JobId>,
    ended: bool,
}

impl Client {
    /// `POST /chat/completions`, at once. Acts once even if it is sent again.
    pub fn chat(&self, request: &ChatRequest) -> Request<ChatCompletion> {
        let request = ChatRequest { stream: false, ..request.clone() };
        Request::plain(self, Call::post_once(WHAT, &PATH, &request)).timeout(WHOLE_REPLY)
    }

    /// `POST /chat/completions`, streamed. Acts once even if it is sent again, which happens only until the reply begins:
    /// a connection may break after the coordinator has accepted the job, and the next try gets the reply of that job.
    /// A try fails if the reply does not begin within [`ClientBuilder::opening_timeout`](crate::client::ClientBuilder::opening_timeout).
    pub async fn chat_stream(&self, request: &ChatRequest) -> Result<ChatStream, ClientError> {
        let request = ChatRequest { stream: true, ..request.clone() };
        let limit = self.rules().opening;
        let response = self.open(&Call::post_once(WHAT, &PATH, &request), limit).await?;
        if !sse::is_event_stream(&response) {
            let status = response.status().as_u16();
            let Ok(text) = tokio::time::timeout(limit, response.text()).await else {
                return Err(self.silent(WHAT, limit));
            };
            let text = text.map_err(|source| self.transport(WHAT, source))?;
            return Err(ClientError::NotOurs {
                what: WHAT,
                status,
                excerpt: excerpt(&text),
                retry_after: None,
            });
        }
        let frames = sse::frames(response, self.rules().idle);
        Ok(ChatStream { client: self.clone(), frames, job: None, ended: false })
    }
}

impl ChatStream {
    /// The next chunk; `None` after `[DONE]` or after an error.
    pub async fn next(&mut self) -> Option<Result<ChatChunk, ClientError>> {
        if self.ended {
            return None;
        }
        let next = self.read().await;
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }

    /// Stops the job, of which at least half of the price is charged if text was delivered. Does nothing if the reply has
    /// ended, or if no chunk was read.
    pub async fn cancel(self) -> Result<(), ClientError> {
        let Self { client, frames, job, ended } = self;
        // Its connection is closed first, as it may be the only one that a proxy allows.
        drop(frames);
        match job.filter(|_| !ended) {
            Some(job) => client.cancel_job(job).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// The same as a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<ChatChunk, ClientError>> + Send {
        stream::unfold(self, |mut reply| async move {
            let next = reply.next().await?;
            Some((next, reply))
        })
    }

    async fn read(&mut self) -> Option<Result<ChatChunk, ClientError>> {
        let frame = match self.frames.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(broken)) => return Some(Err(ClientError::ReplyLost { source: broken.source() })),
            // Without `[DONE]` the reply is incomplete.
            None => return Some(Err(ClientError::ReplyLost { source: None })),
        };
        if frame.data == "[DONE]" {
            return None;
        }
        if let Ok(body) = serde_json::from_str::<ErrorBody>(&frame.data) {
            return Some(Err(ClientError::Refused(Box::new(Refusal::new(WHAT, 200, body.error, None)))));
        }
        let chunk: Result<ChatChunk, _> = serde_json::from_str(&frame.data);
        if let Ok(chunk) = &chunk {
            self.job = self.job.or_else(|| chunk.id.strip_prefix("chatcmpl-")?.parse().ok());
        }
        Some(chunk.map_err(|source| ClientError::Decode { what: WHAT, source }))
    }
}

impl fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream")
            .field("job", &self.job)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
