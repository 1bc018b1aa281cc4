//! Replies in the form of OpenAI's chat API.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use island_protocol::{
    job::{FinishReason, Usage},
    reply::TokenLogprob,
};
use island_protocol_api::chat::{
    ChatChunk, ChatCompletion, ChatMessage, Choice, ChunkChoice, Delta, FunctionCallDelta, Logprobs,
    ToolCallDelta,
};
use serde_json::Value;

use super::{
    parts::{End, Part},
    reply::{Head, Whole, sum},
    stream::{Encode, Tally},
};
use crate::ApiError;
use island_coordinator_domain::sse;

fn id(head: &Head) -> String {
    format!("chatcmpl-{}", head.job)
}

/// The whole replies of one request.
pub(super) fn whole(head: &Head, wholes: Vec<Whole>, logprobs: bool) -> ChatCompletion {
    let usage = sum(wholes.iter().map(|whole| &whole.usage));
    let choices = (0..).zip(wholes).map(|(index, whole)| choice(index, whole, logprobs)).collect();
    ChatCompletion {
        id: id(head),
        object: "chat.completion".to_owned(),
        created: head.created,
        model: head.model.clone(),
        choices,
        usage,
    }
}

fn choice(index: u32, whole: Whole, has_logprobs: bool) -> Choice {
    let Whole { reasoning, text, logprobs, calls, finish_reason, .. } = whole;
    let content = if text.is_empty() && calls.is_some() { Value::Null } else { Value::String(text) };
    let message = ChatMessage {
        role: "assistant".to_owned(),
        content,
        reasoning_content: Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
        tool_calls: calls,
        ..ChatMessage::default()
    };
    Choice { index, message, logprobs: has_logprobs.then_some(Logprobs { content: logprobs }), finish_reason }
}

/// Writes `data` events of one of the replies. Those of the last one to end are followed by `data: [DONE]`, unless all have failed.
pub(super) struct Chunks {
    /// Of the first reply.
    head: Head,
    /// Number of the reply.
    index: u32,
    tally: Arc<Tally>,
    include_usage: bool,
}

impl Chunks {
    /// The encoders of all replies to a request; `head` is that of the first one.
    pub(super) fn of(head: &Head, replies: usize, include_usage: bool) -> impl Iterator<Item = Self> {
        let (head, tally) = (head.clone(), Arc::new(Tally::new(replies)));
        (0..).map(move |index| Self { head: head.clone(), index, tally: tally.clone(), include_usage })
    }

    fn chunk(&self, delta: Delta, logprobs: Vec<TokenLogprob>, finish_reason: Option<FinishReason>) -> Bytes {
        let logprobs = (!logprobs.is_empty()).then_some(Logprobs { content: logprobs });
        self.chunk_of(vec![ChunkChoice { index: self.index, delta, logprobs, finish_reason }], None)
    }

    /// The end of the stream, after the last reply.
    fn end(&self, usage: Usage) -> Bytes {
        let mut bytes = BytesMut::new();
        if self.include_usage {
            bytes.extend(self.chunk_of(Vec::new(), Some(usage)));
        }
        bytes.extend(sse::CHAT_DONE);
        bytes.freeze()
    }

    fn chunk_of(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Bytes {
        sse::data_frame(&ChatChunk {
            id: id(&self.head),
            object: "chat.completion.chunk".to_owned(),
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage,
        })
    }
}

impl Encode for Chunks {
    fn begin(&mut self, _head: &Head) -> Bytes {
        let role = Some("assistant".to_owned());
        self.chunk(Delta { role, content: Some(String::new()), ..Delta::default() }, Vec::new(), None)
    }

    fn part(&mut self, _head: &Head, part: Part) -> Bytes {
        match part {
            Part::Reasoning(text) => {
                self.chunk(Delta { reasoning_content: Some(text), ..Delta::default() }, Vec::new(), None)
            }
            Part::Text { text, logprobs } => {
                self.chunk(Delta { content: Some(text), ..Delta::default() }, logprobs, None)
            }
            Part::Call(part) => {
                let call = ToolCallDelta {
                    index: part.index,
                    kind: part.id.is_some().then(|| "function".to_owned()),
                    id: part.id,
                    function: FunctionCallDelta { name: part.name, arguments: part.arguments },
                };
                self.chunk(Delta { tool_calls: Some(vec![call]), ..Delta::default() }, Vec::new(), None)
            }
            Part::Done(End { usage, finish_reason, .. }) => {
                let mut bytes = BytesMut::from(self.chunk(Delta::default(), Vec::new(), Some(finish_reason)));
                bytes.extend(self.tally.ended(&usage).map(|usage| self.end(usage)).unwrap_or_default());
                bytes.freeze()
            }
        }
    }

    fn error(&mut self, _head: &Head, error: ApiError) -> Bytes {
        let mut bytes = BytesMut::from(sse::data_frame(&error.body()));
        bytes.extend(self.tally.failed().map(|usage| self.end(usage)).unwrap_or_default());
        bytes.freeze()
    }
}
