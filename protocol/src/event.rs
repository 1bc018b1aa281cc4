//! Job events. Numbers belong to the job, not to the attempt: an attempt continues where the previous one stopped.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    job::{FinishReason, Outcome, Usage, present},
    reply::{CallDelta, TokenLogprob},
};

/// Added to the number of a job's end where events before it were lost with the coordinator and the Island that had them: no consumer has
/// seen a number as high, so one that continues after its last event gets the end.
pub const END_GAP: u64 = 1_000_000_000;

/// An event with its number in the job's sequence, from 1, without gaps except [`END_GAP`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbered<E> {
    /// Position in the job's sequence; the SSE `id`.
    pub n: u64,
    /// The event itself.
    #[serde(flatten)]
    pub event: E,
}

/// What an attempt emits: from a worker through the agent to the coordinator that executes the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum AttemptEvent {
    /// A piece of text, split only between characters.
    Token {
        /// The text.
        content: String,
        /// Number of model tokens in it.
        #[serde(default)]
        count: u32,
        /// Whether it belongs to the reasoning before the answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reasoning: bool,
        /// Probabilities of its tokens, if the job requests them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        logprobs: Vec<TokenLogprob>,
        /// A part of a tool call, for which the tokens stand instead of text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<Box<CallDelta>>,
    },
    /// Step `step` of `total`.
    Progress {
        /// Steps done.
        step: u64,
        /// Total number of steps.
        total: u64,
        /// What is progressing: `fetch`, `load`, `prompt`, or the name that the Cargo uses.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    /// A new phase, such as `loading` or `streaming`.
    Status {
        /// Its name.
        state: String,
    },
    /// An image, or a preview of one.
    Image(Image),
    /// The attempt's last event, created by the worker process around the engine, never by the engine.
    Ended {
        /// The outcome.
        outcome: Outcome,
    },
}

impl AttemptEvent {
    /// A piece of an answer that stands for `count` model tokens.
    pub fn token(content: String, count: u32) -> Self {
        Self::Token { content, count, reasoning: false, logprobs: Vec::new(), call: None }
    }
}

/// An encoded image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Image {
    /// Base64 of the file.
    pub data: String,
    /// File format, such as `png`.
    pub format: String,
    /// Width in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Height in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Seed of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether it is a preview of an unfinished image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
}

/// What consumers read from `GET /jobs/:id/stream` and `job.<id>.events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum JobEvent {
    /// A piece of text.
    Token {
        /// The text.
        content: String,
        /// Whether it belongs to the reasoning before the answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reasoning: bool,
        /// Probabilities of its tokens, if the job requests them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        logprobs: Vec<TokenLogprob>,
        /// A part of a tool call; the text is empty then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<Box<CallDelta>>,
    },
    /// Step `step` of `total`.
    Progress {
        /// Steps done.
        step: u64,
        /// Total number of steps.
        total: u64,
        /// What is progressing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    /// A new state or phase of the job.
    Status {
        /// Its name.
        state: String,
        /// Why the job is in this state, in words, if a consumer cannot guess it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An image, or a preview of one.
    Image(Image),
    /// The job completed: always the last event.
    Done {
        /// Resources used and credits charged.
        usage: Usage,
        /// The result, if it is not the joined tokens.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        #[cfg_attr(feature = "openapi", schemars(with = "Option<Value>"))]
        output: Option<Value>,
        /// Why the reply ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<FinishReason>,
        /// The stop text that ended the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_text: Option<String>,
    },
    /// The job failed, was cancelled or timed out: always the last event.
    Error {
        /// Message for a person.
        error: String,
        /// Code for a program.
        code: String,
    },
}

impl JobEvent {
    /// All SSE event names.
    pub const NAMES: [&str; 6] = ["token", "progress", "status", "image", "done", "error"];

    /// A piece of an answer.
    pub fn token(content: String) -> Self {
        Self::Token { content, reasoning: false, logprobs: Vec::new(), call: None }
    }

    /// A state without a reason.
    pub fn status(state: impl Into<String>) -> Self {
        Self::Status { state: state.into(), reason: None }
    }

    /// Returns the SSE event name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Progress { .. } => "progress",
            Self::Status { .. } => "status",
            Self::Image(_) => "image",
            Self::Done { .. } => "done",
            Self::Error { .. } => "error",
        }
    }

    /// Returns whether this is the last event.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Error { .. })
    }

    /// Returns whether a consumer of this event has received part of the result, so that the job cannot be rerun unnoticed.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Token { .. } | Self::Image(_))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_that_is_null_survives_the_wire() {
        let outcome = |output| Outcome::Completed {
            usage: Usage::default(),
            output,
            finish_reason: None,
            stop_text: None,
        };
        for output in [None, Some(Value::Null), Some(json!([]))] {
            let event = Numbered { n: 1, event: AttemptEvent::Ended { outcome: outcome(output.clone()) } };
            let read: Numbered<AttemptEvent> =
                serde_json::from_str(&serde_json::to_string(&event).expect("JSON")).expect("an event");
            assert_eq!(read, event);
            let done =
                JobEvent::Done { usage: Usage::default(), output, finish_reason: None, stop_text: None };
            let read: JobEvent =
                serde_json::from_str(&serde_json::to_string(&done).expect("JSON")).expect("an event");
            assert_eq!(read, done);
        }
    }
}
