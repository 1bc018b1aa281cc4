//! A reply in the form of Anthropic's API.

use bytes::{Bytes, BytesMut};
use island_protocol::{
    chat::ToolCall,
    job::{FinishReason, Usage},
    messages::{Block, BlockDelta, MessageEnd, MessageEvent, MessageReply, MessageUsage},
};
use serde_json::{Value, json};

use crate::{
    api::{
        ApiError,
        chat::{
            reply::{Head, Part, Whole},
            stream::Encode,
        },
    },
    sse,
};

fn message(
    head: &Head,
    content: Vec<Block>,
    stop_reason: Option<String>,
    usage: MessageUsage,
) -> MessageReply {
    MessageReply {
        id: format!("msg_{}", head.job),
        kind: "message".to_owned(),
        role: "assistant".to_owned(),
        model: head.model.clone(),
        content,
        stop_reason,
        stop_sequence: None,
        usage,
    }
}

fn stop_reason(reason: FinishReason) -> String {
    match reason {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::ToolCalls => "tool_use",
    }
    .to_owned()
}

fn counts(usage: &Usage) -> MessageUsage {
    MessageUsage { input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens }
}

fn call(call: ToolCall) -> Block {
    // A reply may end within a call: a client gets what is not JSON as text.
    let input = serde_json::from_str(&call.function.arguments);
    let input = input.unwrap_or(Value::String(call.function.arguments));
    Block::ToolUse { id: call.id, name: call.function.name, input }
}

/// The whole reply.
pub(super) fn whole(head: &Head, whole: Whole) -> MessageReply {
    let Whole { reasoning, text, calls, usage, finish_reason, .. } = whole;
    let thinking =
        (!reasoning.is_empty()).then(|| Block::Thinking { thinking: reasoning, signature: String::new() });
    let text = (!text.is_empty()).then_some(Block::Text { text });
    let calls = calls.unwrap_or_default().into_iter().map(call);
    let content = thinking.into_iter().chain(text).chain(calls).collect();
    message(head, content, Some(stop_reason(finish_reason)), counts(&usage))
}

/// The kind of the block that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    Call,
}

/// Writes named events: each block begins, grows and ends.
#[derive(Debug, Default)]
pub(super) struct Events {
    open: Option<Kind>,
    /// Index of the next block.
    next: u32,
}

fn frame(event: &MessageEvent) -> Bytes {
    sse::named_frame(event.name(), event)
}

impl Events {
    /// Ends the block that is being written.
    fn close(&mut self, bytes: &mut BytesMut) {
        if self.open.take().is_some() {
            bytes.extend(frame(&MessageEvent::ContentBlockStop { index: self.next - 1 }));
        }
    }

    /// Begins a block.
    fn start(&mut self, content_block: Block, kind: Kind, bytes: &mut BytesMut) {
        self.close(bytes);
        bytes.extend(frame(&MessageEvent::ContentBlockStart { index: self.next, content_block }));
        self.next += 1;
        self.open = Some(kind);
    }

    /// Adds to the open block, or to a new one if another kind of block is open.
    fn grow(&mut self, kind: Kind, empty: Block, delta: BlockDelta, bytes: &mut BytesMut) {
        if self.open != Some(kind) {
            self.start(empty, kind, bytes);
        }
        bytes.extend(frame(&MessageEvent::ContentBlockDelta { index: self.next - 1, delta }));
    }
}

impl Encode for Events {
    fn begin(&mut self, head: &Head) -> Bytes {
        let message = message(head, Vec::new(), None, MessageUsage::default());
        frame(&MessageEvent::MessageStart { message })
    }

    fn part(&mut self, _head: &Head, part: Part) -> Bytes {
        let mut bytes = BytesMut::new();
        match part {
            Part::Reasoning(thinking) => {
                let empty = Block::Thinking { thinking: String::new(), signature: String::new() };
                self.grow(Kind::Thinking, empty, BlockDelta::ThinkingDelta { thinking }, &mut bytes);
            }
            Part::Text { text, .. } => {
                let empty = Block::Text { text: String::new() };
                self.grow(Kind::Text, empty, BlockDelta::TextDelta { text }, &mut bytes);
            }
            Part::Call(part) => {
                if let (Some(id), Some(name)) = (part.id, part.name) {
                    self.start(Block::ToolUse { id, name, input: json!({}) }, Kind::Call, &mut bytes);
                }
                if !part.arguments.is_empty() {
                    let delta = BlockDelta::InputJsonDelta { partial_json: part.arguments };
                    bytes.extend(frame(&MessageEvent::ContentBlockDelta { index: self.next - 1, delta }));
                }
            }
            Part::Done { usage, finish_reason } => {
                self.close(&mut bytes);
                let delta = MessageEnd { stop_reason: stop_reason(finish_reason), stop_sequence: None };
                bytes.extend(frame(&MessageEvent::MessageDelta { delta, usage: counts(&usage) }));
                bytes.extend(frame(&MessageEvent::MessageStop));
            }
        }
        bytes.freeze()
    }

    fn error(&mut self, _head: &Head, error: ApiError) -> Bytes {
        sse::named_frame("error", &error.in_anthropic_form().json())
    }
}
