//! The parts of a reply, read from the events of its job.

use std::collections::VecDeque;

use island_protocol::{
    event::JobEvent,
    job::{FinishReason, Usage},
    reply::{CallDelta, TokenLogprob},
};
use island_protocol_api::chat::{FunctionCall, ToolCall};
use serde_json::Value;

/// What was read: a part of a reply, or the error that ended it.
#[derive(Debug)]
pub(crate) enum Piece {
    Part(Part),
    Failed { code: String, message: String },
}

/// A part of a reply; [`Part::Done`] is the last.
#[derive(Debug)]
pub(crate) enum Part {
    Reasoning(String),
    Text {
        text: String,
        logprobs: Vec<TokenLogprob>,
    },
    /// Of a call. The first part of a call has its id and function.
    Call(CallDelta),
    Done(End),
}

/// The end of a complete reply.
#[derive(Debug)]
pub(crate) struct End {
    pub usage: Usage,
    pub finish_reason: FinishReason,
    /// The stop text that ended it.
    pub stop_text: Option<String>,
}

/// Adds a part of a call to the calls before it. Returns whether it continues them.
pub(crate) fn add_part(calls: &mut Vec<ToolCall>, part: &CallDelta) -> bool {
    let index = part.index as usize;
    if let (Some(id), Some(name), true) = (&part.id, &part.name, index == calls.len()) {
        let function = FunctionCall { name: name.clone(), arguments: String::new() };
        calls.push(ToolCall { id: id.clone(), kind: "function".to_owned(), function });
    }
    let call = calls.get_mut(index);
    let is_known = call.is_some();
    if let Some(call) = call {
        call.function.arguments.push_str(&part.arguments);
    }
    is_known
}

/// The parts of `calls` after those that were sent; `None` if they are not what was sent.
fn parts_after(sent: &[ToolCall], calls: &[ToolCall]) -> Option<Vec<CallDelta>> {
    let mut parts = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let before = sent.get(index);
        if before.is_some_and(|before| before.id != call.id || before.function.name != call.function.name) {
            return None;
        }
        let before_arguments = before.map_or("", |before| &before.function.arguments);
        let arguments = call.function.arguments.strip_prefix(before_arguments)?.to_owned();
        if before.is_none() || !arguments.is_empty() {
            parts.push(CallDelta {
                index: index as u32,
                id: before.is_none().then(|| call.id.clone()),
                name: before.is_none().then(|| call.function.name.clone()),
                arguments,
                text: String::new(),
            });
        }
    }
    (calls.len() >= sent.len()).then_some(parts)
}

/// Reads the events of one job, in order.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Whether the client receives the reasoning.
    shows_reasoning: bool,
    wrote_text: bool,
    calls: Vec<ToolCall>,
}

impl Parts {
    /// Before the first event.
    pub(crate) fn new(shows_reasoning: bool) -> Self {
        Self { shows_reasoning, wrote_text: false, calls: Vec::new() }
    }

    /// Adds what an event contains to `ready`.
    pub(crate) fn read(&mut self, event: &JobEvent, ready: &mut VecDeque<Piece>) {
        match event {
            JobEvent::Token { call: Some(part), .. } => {
                if add_part(&mut self.calls, part) {
                    ready.push_back(Piece::Part(Part::Call(part.as_ref().clone())));
                }
            }
            // Tokens of a tool call may have no text.
            JobEvent::Token { content, logprobs, .. } if content.is_empty() && logprobs.is_empty() => {}
            JobEvent::Token { content, reasoning: true, .. } => {
                if self.shows_reasoning {
                    ready.push_back(Piece::Part(Part::Reasoning(content.clone())));
                }
            }
            JobEvent::Token { content, reasoning: false, logprobs, .. } => {
                self.wrote_text = true;
                let (text, logprobs) = (content.clone(), logprobs.clone());
                ready.push_back(Piece::Part(Part::Text { text, logprobs }));
            }
            JobEvent::Done { usage, output, finish_reason, stop_text } => {
                if let (false, Some(Value::String(text))) = (self.wrote_text, output) {
                    let part = Part::Text { text: text.clone(), logprobs: Vec::new() };
                    ready.push_back(Piece::Part(part));
                }
                let calls = output.as_ref().and_then(|output| output.get("tool_calls"));
                // The output was checked against the Cargo's schema when the job ended.
                let calls: Vec<ToolCall> = calls
                    .map(|calls| serde_json::from_value(calls.clone()).unwrap_or_default())
                    .unwrap_or_default();
                let Some(parts) = parts_after(&self.calls, &calls) else {
                    let message = "the Island changed a call after it had sent a part of it".to_owned();
                    ready.push_back(Piece::Failed { code: "invalid_output".to_owned(), message });
                    return;
                };
                ready.extend(parts.into_iter().map(|part| Piece::Part(Part::Call(part))));
                let finish_reason = finish_reason.unwrap_or(FinishReason::Stop);
                let end = End { usage: usage.clone(), finish_reason, stop_text: stop_text.clone() };
                ready.push_back(Piece::Part(Part::Done(end)));
            }
            JobEvent::Error { error, code } => {
                ready.push_back(Piece::Failed { code: code.clone(), message: error.clone() });
            }
            JobEvent::Progress { .. } | JobEvent::Status { .. } | JobEvent::Image(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: u32, begins: Option<&str>, arguments: &str) -> CallDelta {
        let id = begins.map(|name| format!("call_{name}"));
        CallDelta {
            index,
            id,
            name: begins.map(str::to_owned),
            arguments: arguments.to_owned(),
            ..CallDelta::default()
        }
    }

    #[test]
    fn parts_become_calls_and_only_what_was_not_sent_follows() {
        let mut calls = Vec::new();
        assert!(!add_part(&mut calls, &part(1, Some("late"), "{}")));
        assert!(!add_part(&mut calls, &part(0, None, "{}")));
        for (one, is_known) in [
            (part(0, Some("f"), "{"), true),
            (part(0, None, "\"a\":1}"), true),
            (part(1, Some("g"), "{"), true),
        ] {
            assert_eq!(add_part(&mut calls, &one), is_known);
        }
        let sent = calls.clone();
        assert_eq!((sent[0].function.arguments.as_str(), sent.len()), ("{\"a\":1}", 2));
        assert!(add_part(&mut calls, &part(1, None, "}")));
        assert!(add_part(&mut calls, &part(2, Some("h"), "")));
        assert_eq!(parts_after(&sent, &calls), Some(vec![part(1, None, "}"), part(2, Some("h"), "")]));
        assert_eq!(parts_after(&calls, &sent), None);
        calls[0].function.arguments = "{\"a\":2}".to_owned();
        assert_eq!(parts_after(&sent, &calls), None);
    }
}
