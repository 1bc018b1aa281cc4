//! A streamed chat reply. Not resumable: whoever needs that submits a job and reads its events.

use std::{fmt, pin::Pin};

use eventsource_stream::{Event, EventStreamError, Eventsource};
use futures::{Stream, StreamExt};
use island_protocol::{
    chat::{ChatChunk, ChatCompletion, ChatRequest},
    problem::ErrorBody,
};
use reqwest::Method;

use crate::{error::ClientError, http::Client};

/// The chunks of one reply.
pub struct ChatStream {
    client: Client,
    frames: Pin<Box<dyn Stream<Item = Result<Event, EventStreamError<reqwest::Error>>> + Send>>,
    ended: bool,
}

impl Client {
    /// `POST /chat/completions`, whole.
    pub async fn chat(&self, request: &ChatRequest) -> Result<ChatCompletion, ClientError> {
        let request = ChatRequest { stream: false, ..request.clone() };
        let response = self.send(self.request(Method::POST, "/chat/completions").json(&request)).await?;
        let bytes = response.bytes().await.map_err(|source| self.transport(source))?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode { what: "chat", source })
    }

    /// `POST /chat/completions`, streamed. Dropping the stream cancels the job.
    pub async fn chat_stream(&self, request: &ChatRequest) -> Result<ChatStream, ClientError> {
        let request = ChatRequest { stream: true, ..request.clone() };
        let response = self.send(self.request(Method::POST, "/chat/completions").json(&request)).await?;
        let frames = Box::pin(response.bytes_stream().eventsource());
        Ok(ChatStream { client: self.clone(), frames, ended: false })
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

    async fn read(&mut self) -> Option<Result<ChatChunk, ClientError>> {
        let frame = match self.frames.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(EventStreamError::Transport(source))) => {
                return Some(Err(self.client.transport(source)));
            }
            // Without `[DONE]` the reply is not whole, whatever came before.
            Some(Err(_)) | None => return Some(Err(ClientError::StreamLost { last: 0, source: None })),
        };
        if frame.data == "[DONE]" {
            return None;
        }
        if let Ok(body) = serde_json::from_str::<ErrorBody>(&frame.data) {
            return Some(Err(ClientError::Api { status: 200, problem: Box::new(body.error) }));
        }
        let chunk = serde_json::from_str(&frame.data);
        Some(chunk.map_err(|source| ClientError::Decode { what: "chat stream", source }))
    }
}

impl fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream").field("ended", &self.ended).finish_non_exhaustive()
    }
}
