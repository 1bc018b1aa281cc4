//! A reply in the form of OpenAI's chat API.

use bytes::{Bytes, BytesMut};
use island_protocol::{
    chat::{ChatChunk, ChatCompletion, ChatMessage, Choice, ChunkChoice, Delta, ToolCallDelta},
    job::{FinishReason, Usage},
};
use serde_json::Value;

use super::{
    reply::{Head, Part, Whole},
    stream::Encode,
};
use crate::{api::ApiError, sse};

fn id(head: &Head) -> String {
    format!("chatcmpl-{}", head.job)
}

/// The whole reply.
pub(super) fn whole(head: &Head, whole: Whole) -> ChatCompletion {
    let Whole { reasoning, text, calls, usage, finish_reason } = whole;
    let content = if text.is_empty() && calls.is_some() { Value::Null } else { Value::String(text) };
    let message = ChatMessage {
        role: "assistant".to_owned(),
        content,
        reasoning_content: Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
        tool_calls: calls,
        ..ChatMessage::default()
    };
    ChatCompletion {
        id: id(head),
        object: "chat.completion".to_owned(),
        created: head.created,
        model: head.model.clone(),
        choices: vec![Choice { index: 0, message, finish_reason }],
        usage,
    }
}

/// Writes `data` events that end with `data: [DONE]`, which does not follow an error.
pub(super) struct Chunks {
    pub(super) include_usage: bool,
}

impl Encode for Chunks {
    fn begin(&mut self, head: &Head) -> Bytes {
        let role = Some("assistant".to_owned());
        chunk(head, Delta { role, content: Some(String::new()), ..Delta::default() }, None)
    }

    fn part(&mut self, head: &Head, part: Part) -> Bytes {
        match part {
            Part::Reasoning(text) => {
                chunk(head, Delta { reasoning_content: Some(text), ..Delta::default() }, None)
            }
            Part::Text(text) => chunk(head, Delta { content: Some(text), ..Delta::default() }, None),
            Part::Calls(calls) => {
                let calls = (0..).zip(calls).map(|(index, call)| ToolCallDelta { index, call });
                let tool_calls = Some(calls.collect());
                chunk(head, Delta { tool_calls, ..Delta::default() }, None)
            }
            Part::Done { usage, finish_reason } => {
                let mut bytes = BytesMut::from(chunk(head, Delta::default(), Some(finish_reason)));
                if self.include_usage {
                    bytes.extend(chunk_of(head, Vec::new(), Some(usage)));
                }
                bytes.extend(sse::CHAT_DONE);
                bytes.freeze()
            }
        }
    }

    fn error(&self, error: ApiError) -> Bytes {
        sse::data_frame(&error.body())
    }
}

fn chunk(head: &Head, delta: Delta, finish_reason: Option<FinishReason>) -> Bytes {
    chunk_of(head, vec![ChunkChoice { index: 0, delta, finish_reason }], None)
}

fn chunk_of(head: &Head, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Bytes {
    sse::data_frame(&ChatChunk {
        id: id(head),
        object: "chat.completion.chunk".to_owned(),
        created: head.created,
        model: head.model.clone(),
        choices,
        usage,
    })
}
