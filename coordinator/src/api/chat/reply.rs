//! Reads the reply of a job, whatever the API in whose form it is answered.

use std::{collections::VecDeque, ops::Add, sync::Arc, time::Duration};

use island_protocol::{
    chat::{CallDelta, FunctionCall, TokenLogprob, ToolCall},
    event::JobEvent,
    ids::{HostId, JobId},
    job::{CompletionTokensDetails, FinishReason, Usage},
    problem::Code,
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    api::{ApiError, availability, jobs::follow::CancelOnDrop},
    execution::{job_handle::JobHandle, log::Reader},
    job::Job,
};

/// What is known of a reply before its first part.
#[derive(Debug, Clone)]
pub(in crate::api) struct Head {
    pub job: JobId,
    /// Slug of the Cargo that runs.
    pub model: String,
    /// Unix seconds.
    pub created: i64,
}

/// A reply in progress. Dropped before its end, it cancels the job.
#[derive(Debug)]
pub(in crate::api) struct Reply {
    handle: Arc<JobHandle>,
    reader: Reader,
    guard: CancelOnDrop,
    head: Head,
    /// Whether the client receives the reasoning.
    shows_reasoning: bool,
    /// Read but not yet returned.
    ready: VecDeque<Piece>,
    wrote_text: bool,
    calls: Vec<ToolCall>,
}

/// What was read: a part of a reply, or the error that ended it.
#[derive(Debug)]
pub(super) enum Piece {
    Part(Part),
    Failed { code: String, message: String },
}

/// A part of a reply; [`Part::Done`] is the last.
#[derive(Debug)]
pub(in crate::api) enum Part {
    Reasoning(String),
    Text {
        text: String,
        logprobs: Vec<TokenLogprob>,
    },
    /// Of a call. The first part of a call has its id and function.
    Call(CallDelta),
    Done {
        usage: Usage,
        finish_reason: FinishReason,
    },
}

/// A whole reply.
#[derive(Debug)]
pub(in crate::api) struct Whole {
    pub reasoning: String,
    pub text: String,
    /// Probabilities of the tokens of the text, if requested.
    pub logprobs: Vec<TokenLogprob>,
    pub calls: Option<Vec<ToolCall>>,
    pub usage: Usage,
    pub finish_reason: FinishReason,
}

/// Adds a part of a call to the calls before it. Returns whether it continues them.
pub(in crate::api) fn add_part(calls: &mut Vec<ToolCall>, part: &CallDelta) -> bool {
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

/// What several replies used.
pub(in crate::api) fn sum<'u>(all: impl IntoIterator<Item = &'u Usage>) -> Usage {
    all.into_iter().fold(Usage::default(), |total, one| {
        let details = [total.completion_tokens_details, one.completion_tokens_details];
        let reasoning_tokens = details.iter().flatten().map(|details| details.reasoning_tokens).sum();
        Usage {
            completion_tokens_details: details
                .iter()
                .any(Option::is_some)
                .then_some(CompletionTokensDetails { reasoning_tokens }),
            credits_used: [total.credits_used, one.credits_used].into_iter().flatten().reduce(Add::add),
            fuel: total.fuel.or(one.fuel),
            device: total.device.or_else(|| one.device.clone()),
            ..Usage::tokens(
                total.prompt_tokens.saturating_add(one.prompt_tokens),
                total.completion_tokens.saturating_add(one.completion_tokens),
            )
        }
    })
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
    pub(super) fn new(guard: CancelOnDrop, job: &Job, shows_reasoning: bool) -> Self {
        let handle = guard.handle();
        let reader = handle.log.read(0);
        let (model, created) = (job.workload.to_string(), job.created_at.unix_ms() / 1000);
        let head = Head { job: handle.id, model, created };
        Self {
            handle,
            reader,
            guard,
            head,
            shows_reasoning,
            ready: VecDeque::new(),
            wrote_text: false,
            calls: Vec::new(),
        }
    }

    /// What is known before the first part.
    pub(in crate::api) fn head(&self) -> &Head {
        &self.head
    }

    /// The Island that runs the job, and whether it ran the last one of the same conversation.
    pub(super) fn island(&self) -> Option<(HostId, bool)> {
        self.handle.island()
    }

    /// Whether there is nothing to send yet.
    pub(super) fn is_silent(&self) -> bool {
        self.ready.is_empty()
    }

    /// The next piece that was read.
    pub(super) fn next_ready(&mut self) -> Option<Piece> {
        self.ready.pop_front()
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
                    return Err(availability::not_accepted(&handle, &self.head.model));
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
    pub(super) async fn fill(&mut self) -> bool {
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
            JobEvent::Token { call: Some(part), .. } => {
                if add_part(&mut self.calls, part) {
                    self.ready.push_back(Piece::Part(Part::Call(part.as_ref().clone())));
                }
            }
            // Tokens of a tool call may have no text.
            JobEvent::Token { content, logprobs, .. } if content.is_empty() && logprobs.is_empty() => {}
            JobEvent::Token { content, reasoning: true, .. } => {
                if self.shows_reasoning {
                    self.ready.push_back(Piece::Part(Part::Reasoning(content.clone())));
                }
            }
            JobEvent::Token { content, reasoning: false, logprobs, .. } => {
                self.wrote_text = true;
                let (text, logprobs) = (content.clone(), logprobs.clone());
                self.ready.push_back(Piece::Part(Part::Text { text, logprobs }));
            }
            JobEvent::Done { usage, output, finish_reason } => {
                if let (false, Some(Value::String(text))) = (self.wrote_text, output) {
                    let part = Part::Text { text: text.clone(), logprobs: Vec::new() };
                    self.ready.push_back(Piece::Part(part));
                }
                let calls = output.as_ref().and_then(|output| output.get("tool_calls"));
                // The output was checked against the Cargo's schema when the job ended.
                let calls: Vec<ToolCall> = calls
                    .map(|calls| serde_json::from_value(calls.clone()).unwrap_or_default())
                    .unwrap_or_default();
                let Some(parts) = parts_after(&self.calls, &calls) else {
                    let message = "the Island changed a call after it had sent a part of it".to_owned();
                    self.ready.push_back(Piece::Failed { code: "invalid_output".to_owned(), message });
                    return;
                };
                self.ready.extend(parts.into_iter().map(|part| Piece::Part(Part::Call(part))));
                let finish_reason = finish_reason.unwrap_or(FinishReason::Stop);
                self.ready.push_back(Piece::Part(Part::Done { usage: usage.clone(), finish_reason }));
            }
            JobEvent::Error { error, code } => {
                self.ready.push_back(Piece::Failed { code: code.clone(), message: error.clone() });
            }
            JobEvent::Progress { .. } | JobEvent::Status { .. } | JobEvent::Image(_) => {}
        }
    }

    /// Waits for the whole reply.
    pub(in crate::api) async fn whole(mut self) -> Result<Whole, ApiError> {
        let (mut reasoning, mut text, mut logprobs, mut calls) =
            (String::new(), String::new(), Vec::new(), Vec::new());
        while self.fill().await {
            while let Some(piece) = self.ready.pop_front() {
                match piece {
                    Piece::Failed { code, message } => return Err(problem(&code, &message)),
                    Piece::Part(Part::Reasoning(more)) => reasoning.push_str(&more),
                    Piece::Part(Part::Text { text: more, logprobs: of_more }) => {
                        text.push_str(&more);
                        logprobs.extend(of_more);
                    }
                    Piece::Part(Part::Call(part)) => {
                        add_part(&mut calls, &part);
                    }
                    Piece::Part(Part::Done { usage, finish_reason }) => {
                        let calls = (!calls.is_empty()).then_some(calls);
                        return Ok(Whole { reasoning, text, logprobs, calls, usage, finish_reason });
                    }
                }
            }
        }
        Err(ApiError::new(Code::ServiceUnavailable, "the job moved to another coordinator; try again"))
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
