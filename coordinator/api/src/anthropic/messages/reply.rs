//! A reply in the form of Anthropic's API.

use bytes::{Bytes, BytesMut};
use island_protocol::{
    job::{FinishReason, Usage},
    reply::CallDelta,
};
use island_protocol_api::messages::{
    Block, BlockDelta, MessageEnd, MessageEvent, MessageReply, MessageUsage,
};
use serde_json::{Value, json};

use crate::{
    ApiError,
    openai::chat::{
        parts::{End, Part},
        reply::{Head, Reply},
        stream::Encode,
    },
};
use island_coordinator_domain::sse;

fn message(head: &Head, content: Vec<Block>, end: Option<MessageEnd>, usage: MessageUsage) -> MessageReply {
    let (stop_reason, stop_sequence) =
        end.map_or((None, None), |end| (Some(end.stop_reason), end.stop_sequence));
    MessageReply {
        id: format!("msg_{}", head.job),
        kind: "message".to_owned(),
        role: "assistant".to_owned(),
        model: head.model.clone(),
        content,
        stop_reason,
        stop_sequence,
        usage,
    }
}

/// Why a reply ended, and its token counts.
fn ended(end: End) -> (MessageEnd, MessageUsage) {
    let End { usage, finish_reason, stop_text } = end;
    let stop_reason = match (finish_reason, &stop_text) {
        (FinishReason::Stop, Some(_)) => "stop_sequence",
        (FinishReason::Stop, None) => "end_turn",
        (FinishReason::Length, _) => "max_tokens",
        (FinishReason::ToolCalls, _) => "tool_use",
    };
    let stop_sequence = stop_text.filter(|_| finish_reason == FinishReason::Stop);
    (MessageEnd { stop_reason: stop_reason.to_owned(), stop_sequence }, counts(&usage))
}

fn counts(usage: &Usage) -> MessageUsage {
    MessageUsage { input_tokens: usage.prompt_tokens, output_tokens: usage.completion_tokens }
}

/// The input of a call, from its arguments.
fn input(arguments: String) -> Value {
    if arguments.trim().is_empty() {
        // As in a stream: clients require an object.
        return json!({});
    }
    // A reply may end within a call: a client gets what is not JSON as text.
    serde_json::from_str(&arguments).unwrap_or(Value::String(arguments))
}

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    Call,
}

/// What a part of a reply adds to one of its blocks.
#[derive(Debug)]
struct Addition {
    index: usize,
    kind: Kind,
    /// The empty block, if it begins with this part.
    begun: Option<Block>,
    text: String,
}

/// The kinds of the blocks of a reply, in the order in which the model began them: the same for a stream and for a whole reply.
#[derive(Debug, Default)]
struct Layout(Vec<Kind>);

impl Layout {
    /// What a part adds. Returns `None` for the end, for an empty text, and for a part of a call that was never begun.
    fn place(&mut self, part: Part) -> Option<Addition> {
        let (kind, empty, text) = match part {
            Part::Reasoning(text) => {
                (Kind::Thinking, Block::Thinking { thinking: String::new(), signature: String::new() }, text)
            }
            Part::Text { text, .. } => (Kind::Text, Block::Text { text: String::new() }, text),
            Part::Call(part) => return self.place_call(part),
            Part::Done { .. } => return None,
        };
        if text.is_empty() {
            return None;
        }
        let begun = (self.0.last() != Some(&kind)).then_some(empty);
        if begun.is_some() {
            self.0.push(kind);
        }
        Some(Addition { index: self.0.len() - 1, kind, begun, text })
    }

    /// The block of a call may be followed by others before the call is complete.
    fn place_call(&mut self, part: CallDelta) -> Option<Addition> {
        let CallDelta { index: number, id, name, arguments: text, .. } = part;
        let is_call = |(_, kind): &(usize, &Kind)| **kind == Kind::Call;
        let known = self.0.iter().enumerate().filter(is_call).map(|(index, _)| index).nth(number as usize);
        if let Some(index) = known {
            return Some(Addition { index, kind: Kind::Call, begun: None, text });
        }
        let begun = Some(Block::ToolUse { id: id?, name: name?, input: json!({}) });
        self.0.push(Kind::Call);
        Some(Addition { index: self.0.len() - 1, kind: Kind::Call, begun, text })
    }
}

/// The blocks of a whole reply, as far as they were read.
#[derive(Debug, Default)]
struct Blocks {
    layout: Layout,
    /// Each block as it began, and what was added to it.
    blocks: Vec<(Block, String)>,
}

impl Blocks {
    fn add(&mut self, part: Part) {
        let Some(Addition { index, begun, text, .. }) = self.layout.place(part) else { return };
        self.blocks.extend(begun.map(|block| (block, String::new())));
        if let Some((_, written)) = self.blocks.get_mut(index) {
            written.push_str(&text);
        }
    }

    fn filled(self) -> Vec<Block> {
        let filled = |(block, written): (Block, String)| match block {
            Block::Thinking { signature, .. } => Block::Thinking { thinking: written, signature },
            Block::Text { .. } => Block::Text { text: written },
            Block::ToolUse { id, name, .. } => Block::ToolUse { id, name, input: input(written) },
        };
        self.blocks.into_iter().map(filled).collect()
    }
}

/// Waits for the whole reply.
pub(super) async fn whole(reply: Reply) -> Result<MessageReply, ApiError> {
    let head = reply.head().clone();
    let mut blocks = Blocks::default();
    let (end, usage) = ended(reply.read(|part| blocks.add(part)).await?);
    Ok(message(&head, blocks.filled(), Some(end), usage))
}

/// Writes named events: each block begins, grows and ends.
#[derive(Debug, Default)]
pub(super) struct Events {
    layout: Layout,
    /// The block that is being written.
    open: Option<usize>,
}

fn frame(event: &MessageEvent) -> Bytes {
    sse::named_frame(event.name(), event)
}

impl Events {
    /// Ends the block that is being written.
    fn close(&mut self, bytes: &mut BytesMut) {
        if let Some(index) = self.open.take() {
            bytes.extend(frame(&MessageEvent::ContentBlockStop { index: index as u32 }));
        }
    }
}

impl Encode for Events {
    fn begin(&mut self, head: &Head) -> Bytes {
        let message = message(head, Vec::new(), None, MessageUsage::default());
        frame(&MessageEvent::MessageStart { message })
    }

    fn part(&mut self, _head: &Head, part: Part) -> Bytes {
        let mut bytes = BytesMut::new();
        let part = match part {
            Part::Done(end) => {
                self.close(&mut bytes);
                let (delta, usage) = ended(end);
                bytes.extend(frame(&MessageEvent::MessageDelta { delta, usage }));
                bytes.extend(frame(&MessageEvent::MessageStop));
                return bytes.freeze();
            }
            part => part,
        };
        let Some(Addition { index, kind, begun, text }) = self.layout.place(part) else {
            return bytes.freeze();
        };
        if let Some(content_block) = begun {
            self.close(&mut bytes);
            self.open = Some(index);
            let index = index as u32;
            bytes.extend(frame(&MessageEvent::ContentBlockStart { index, content_block }));
        }
        if !text.is_empty() {
            let delta = match kind {
                Kind::Thinking => BlockDelta::ThinkingDelta { thinking: text },
                Kind::Text => BlockDelta::TextDelta { text },
                Kind::Call => BlockDelta::InputJsonDelta { partial_json: text },
            };
            let index = index as u32;
            bytes.extend(frame(&MessageEvent::ContentBlockDelta { index, delta }));
        }
        bytes.freeze()
    }

    fn error(&mut self, _head: &Head, error: ApiError) -> Bytes {
        sse::named_frame("error", &error.in_anthropic_form().json())
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::ids::JobId;
    use uuid::Uuid;

    use super::*;

    fn call(index: u32, name: Option<&str>, arguments: &str) -> Part {
        Part::Call(CallDelta {
            index,
            id: name.map(|name| format!("id_{name}")),
            name: name.map(str::to_owned),
            arguments: arguments.to_owned(),
            ..CallDelta::default()
        })
    }

    fn text(text: &str) -> Part {
        Part::Text { text: text.to_owned(), logprobs: Vec::new() }
    }

    fn whole_of(parts: Vec<Part>) -> Value {
        let mut blocks = Blocks::default();
        for part in parts {
            blocks.add(part);
        }
        json!(blocks.filled())
    }

    /// The blocks that a client makes of the events.
    fn streamed(parts: Vec<Part>) -> Value {
        let head = Head { job: JobId(Uuid::nil()), model: "m".to_owned(), created: 0 };
        let mut events = Events::default();
        let (mut blocks, mut inputs) = (Vec::<Value>::new(), Vec::<String>::new());
        for part in parts {
            let bytes = events.part(&head, part);
            let frames = String::from_utf8(bytes.to_vec()).expect("UTF-8");
            for data in frames.lines().filter_map(|line| line.strip_prefix("data: ")) {
                let event: Value = serde_json::from_str(data).expect("JSON");
                let index = event["index"].as_u64().expect("an index") as usize;
                match event["type"].as_str().expect("a type") {
                    "content_block_start" => {
                        assert_eq!(index, blocks.len(), "{event}");
                        blocks.push(event["content_block"].clone());
                        inputs.push(String::new());
                    }
                    "content_block_delta" => {
                        let delta = &event["delta"];
                        for name in ["text", "thinking"] {
                            if let Some(more) = delta[name].as_str() {
                                blocks[index][name] =
                                    (blocks[index][name].as_str().unwrap_or_default().to_owned() + more)
                                        .into();
                            }
                        }
                        inputs[index].push_str(delta["partial_json"].as_str().unwrap_or_default());
                    }
                    _ => {}
                }
            }
        }
        for (block, arguments) in blocks.iter_mut().zip(inputs).filter(|(_, arguments)| !arguments.is_empty())
        {
            block["input"] = serde_json::from_str(&arguments).expect("JSON");
        }
        Value::from(blocks)
    }

    #[test]
    fn a_whole_reply_has_the_blocks_of_a_stream() {
        let parts = || {
            vec![
                Part::Reasoning("H".to_owned()),
                Part::Reasoning("m".to_owned()),
                text("Look"),
                text("."),
                text(""),
                call(0, Some("look"), "{\"at\":"),
                call(0, None, "1}"),
                text("And"),
                call(1, Some("wait"), ""),
                text("Done"),
                call(7, None, "lost"),
            ]
        };
        let expected = json!([
            {"type": "thinking", "thinking": "Hm", "signature": ""},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "id_look", "name": "look", "input": {"at": 1}},
            {"type": "text", "text": "And"},
            {"type": "tool_use", "id": "id_wait", "name": "wait", "input": {}},
            {"type": "text", "text": "Done"},
        ]);
        assert_eq!(whole_of(parts()), expected);
        assert_eq!(streamed(parts()), expected);
    }

    #[test]
    fn arguments_that_come_after_a_text_belong_to_their_call() {
        let parts = || {
            vec![
                call(0, Some("look"), "{\"at\":"),
                text("And"),
                call(1, Some("wait"), "{}"),
                call(0, None, "1}"),
            ]
        };
        let expected = json!([
            {"type": "tool_use", "id": "id_look", "name": "look", "input": {"at": 1}},
            {"type": "text", "text": "And"},
            {"type": "tool_use", "id": "id_wait", "name": "wait", "input": {}},
        ]);
        assert_eq!(whole_of(parts()), expected);
        assert_eq!(streamed(parts()), expected);
    }

    #[test]
    fn the_input_of_a_call_without_arguments_is_an_object() {
        for (arguments, expected) in
            [("", json!({})), (" ", json!({})), ("{\"a\":1}", json!({"a": 1})), ("{\"a\":", json!("{\"a\":"))]
        {
            let expected = json!([{"type": "tool_use", "id": "id_look", "name": "look", "input": expected}]);
            assert_eq!(whole_of(vec![call(0, Some("look"), arguments)]), expected, "{arguments:?}");
        }
    }
}
