//! Converts a job's events to a chat reply.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use island_protocol::{
    chat::{ChatChunk, ChatCompletion, ChatMessage, Choice, ChunkChoice, Delta, ToolCall, ToolCallDelta},
    event::JobEvent,
    job::{FinishReason, Usage},
    problem::Code,
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    api::{
        ApiError, availability,
        jobs::{follow::CancelOnDrop, stream::KEEP_ALIVE},
        slots::Slot,
    },
    execution::{job_handle::JobHandle, log::Reader},
    sse,
};

/// A reply in progress. Dropped before its end, it cancels the job.
#[derive(Debug)]
pub(super) struct Reply {
    handle: Arc<JobHandle>,
    reader: Reader,
    guard: CancelOnDrop,
    id: String,
    model: String,
    created: i64,
    /// Read but not yet returned.
    ready: VecDeque<Piece>,
    wrote_text: bool,
}

/// A part of a reply.
#[derive(Debug)]
enum Piece {
    Text(String),
    Calls(Vec<ToolCall>),
    Done { usage: Usage, finish_reason: FinishReason },
    Failed { code: String, message: String },
}

/// The error for a failed job.
pub(in crate::api) fn problem(code: &str, message: &str) -> ApiError {
    let code = match code {
        "context_length_exceeded" => Code::ContextLengthExceeded,
        "invalid_input" => Code::InvalidInput,
        "deadline_exceeded" => Code::JobTimeout,
        "no_island_available" => Code::NoIslandAvailable,
        _ => return ApiError::new(Code::JobFailed, format!("{message} ({code})")),
    };
    ApiError::new(code, message)
}

impl Reply {
    pub(super) fn new(guard: CancelOnDrop, model: String, created: i64) -> Self {
        let handle = guard.handle();
        let reader = handle.log.read(0);
        let id = format!("chatcmpl-{}", handle.id);
        Self { handle, reader, guard, id, model, created, ready: VecDeque::new(), wrote_text: false }
    }

    /// Waits up to `wait` for an Island that accepts the job, and then up to `delay` for the first piece. Errors until
    /// then are answered with their HTTP status.
    pub(super) async fn begin(&mut self, wait: Duration, delay: Duration) -> Result<(), ApiError> {
        let ended = {
            let handle = self.handle.clone();
            tokio::select! {
                biased;
                read = self.fill() => Some(read),
                () = handle.accepted() => None,
                () = tokio::time::sleep(wait) => {
                    return Err(availability::not_accepted(&handle, &self.model));
                }
            }
        };
        if ended.is_none() && timeout(delay, self.fill()).await.is_err() {
            return Ok(());
        }
        match self.ready.front() {
            Some(Piece::Failed { code, message }) => Err(problem(code, message)),
            Some(_) => Ok(()),
            None => Err(ApiError::new(
                Code::ServiceUnavailable,
                "the job moved to another coordinator; try again",
            )),
        }
    }

    /// Lets the job run to its end even if the client disconnects.
    pub(super) fn outlive_client(&mut self) {
        self.guard.disarm();
    }

    /// Reads until there is a piece. Returns `false` if the log has ended. Cancel safe.
    async fn fill(&mut self) -> bool {
        while self.ready.is_empty() {
            let Some(entries) = self.reader.next().await else { return false };
            for entry in entries {
                self.record(&entry.event.event);
            }
        }
        true
    }

    fn record(&mut self, event: &JobEvent) {
        match event {
            // Tokens of a tool call have no text.
            JobEvent::Token { content } if content.is_empty() => {}
            JobEvent::Token { content } => {
                self.wrote_text = true;
                self.ready.push_back(Piece::Text(content.clone()));
            }
            JobEvent::Done { usage, output, finish_reason } => {
                if let (false, Some(Value::String(text))) = (self.wrote_text, output) {
                    self.ready.push_back(Piece::Text(text.clone()));
                }
                if let Some(calls) = output.as_ref().and_then(|output| output.get("tool_calls")) {
                    // The output was checked against the Cargo's schema when the job ended.
                    let calls = serde_json::from_value(calls.clone()).unwrap_or_default();
                    self.ready.push_back(Piece::Calls(calls));
                }
                let finish_reason = finish_reason.unwrap_or(FinishReason::Stop);
                self.ready.push_back(Piece::Done { usage: usage.clone(), finish_reason });
            }
            JobEvent::Error { error, code } => {
                self.ready.push_back(Piece::Failed { code: code.clone(), message: error.clone() });
            }
            JobEvent::Progress { .. } | JobEvent::Status { .. } | JobEvent::Image(_) => {}
        }
    }

    /// Waits for the whole reply.
    pub(super) async fn whole(mut self) -> Result<ChatCompletion, ApiError> {
        let (mut text, mut tool_calls) = (String::new(), None);
        while self.fill().await {
            while let Some(piece) = self.ready.pop_front() {
                match piece {
                    Piece::Text(more) => text.push_str(&more),
                    Piece::Calls(calls) => tool_calls = Some(calls),
                    Piece::Failed { code, message } => return Err(problem(&code, &message)),
                    Piece::Done { usage, finish_reason } => {
                        let is_silent = text.is_empty() && tool_calls.is_some();
                        let content = if is_silent { Value::Null } else { Value::String(text) };
                        let role = "assistant".to_owned();
                        let message =
                            ChatMessage { role, content, tool_calls, tool_call_id: None, name: None };
                        return Ok(ChatCompletion {
                            id: self.id.clone(),
                            object: "chat.completion".to_owned(),
                            created: self.created,
                            model: self.model.clone(),
                            choices: vec![Choice { index: 0, message, finish_reason }],
                            usage,
                        });
                    }
                }
            }
        }
        Err(ApiError::new(Code::ServiceUnavailable, "the job moved to another coordinator; try again"))
    }

    /// Streams the reply as Server-Sent Events. An error is sent as an event and is not followed by `[DONE]`.
    pub(super) fn frames(
        self,
        include_usage: bool,
        slot: Option<Slot>,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let is_silent = self.ready.is_empty();
        let state = Streaming { reply: self, include_usage, slot, is_silent, begun: false, over: false };
        stream::unfold(state, |mut state| async move {
            let frame = state.next().await?;
            Some((Ok(frame), state))
        })
    }

    fn chunk(&self, delta: Delta, finish_reason: Option<FinishReason>) -> Bytes {
        self.chunk_of(vec![ChunkChoice { index: 0, delta, finish_reason }], None)
    }

    fn chunk_of(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Bytes {
        sse::data_frame(&ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk".to_owned(),
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
        })
    }
}

/// An error as the last event of a stream.
fn error_frame(error: &ApiError) -> Bytes {
    sse::data_frame(&error.body())
}

struct Streaming {
    reply: Reply,
    include_usage: bool,
    slot: Option<Slot>,
    /// Whether the client has been sent nothing and there is nothing to send.
    is_silent: bool,
    begun: bool,
    over: bool,
}

impl Streaming {
    /// The next bytes: all available events in one write, a comment after a long silence, or `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        if std::mem::take(&mut self.is_silent) {
            return Some(sse::KEEP_ALIVE);
        }
        let more = tokio::select! {
            biased;
            more = self.reply.fill() => more,
            () = tokio::time::sleep(KEEP_ALIVE) => return Some(sse::KEEP_ALIVE),
        };
        let mut bytes = BytesMut::new();
        if !more {
            self.over = true;
            bytes.extend(error_frame(&ApiError::new(
                Code::ServiceUnavailable,
                "the job moved to another coordinator",
            )));
        }
        if !self.begun {
            self.begun = true;
            let role = Some("assistant".to_owned());
            let role = Delta { role, content: Some(String::new()), ..Delta::default() };
            bytes.extend(self.reply.chunk(role, None));
        }
        while let Some(piece) = self.reply.ready.pop_front() {
            match piece {
                Piece::Text(text) => {
                    bytes.extend(self.reply.chunk(Delta { content: Some(text), ..Delta::default() }, None));
                }
                Piece::Calls(calls) => {
                    let calls = (0..).zip(calls).map(|(index, call)| ToolCallDelta { index, call });
                    let tool_calls = Some(calls.collect());
                    bytes.extend(self.reply.chunk(Delta { tool_calls, ..Delta::default() }, None));
                }
                Piece::Done { usage, finish_reason } => {
                    bytes.extend(self.reply.chunk(Delta::default(), Some(finish_reason)));
                    if self.include_usage {
                        bytes.extend(self.reply.chunk_of(Vec::new(), Some(usage)));
                    }
                    bytes.extend(sse::CHAT_DONE);
                    self.over = true;
                }
                Piece::Failed { code, message } => {
                    bytes.extend(error_frame(&problem(&code, &message)));
                    self.over = true;
                }
            }
        }
        // The slot is released before the client can know that the stream has ended.
        if self.over
            && let Some(slot) = self.slot.take()
        {
            slot.release().await;
        }
        Some(bytes.freeze())
    }
}
