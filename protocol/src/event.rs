//! Job events. Numbers belong to the job, not to the attempt: an attempt continues where the last one stopped.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{FinishReason, Outcome, Usage};

/// An event with its number in the job's one sequence, from 1, without gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbered<E> {
    /// Position in the job's sequence; the SSE `id`.
    pub n: u64,
    /// The event itself.
    #[serde(flatten)]
    pub event: E,
}

/// What an attempt emits, as it travels from a worker through the agent to the job's owner coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum AttemptEvent {
    /// A piece of text, cut at whole characters.
    Token {
        /// The text.
        content: String,
        /// How many model tokens it stands for.
        #[serde(default)]
        count: u32,
    },
    /// Step `step` of `total`.
    Progress {
        /// Done so far.
        step: u64,
        /// All there is.
        total: u64,
        /// What is progressing: `fetch`, `load`, `prompt`, or what the Cargo calls it.
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
    /// The attempt's last event, written by the worker's host, never by an engine.
    Ended {
        /// How it ended.
        outcome: Outcome,
    },
}

/// An encoded image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Image {
    /// Base64 of the file.
    pub data: String,
    /// Its format, such as `png`.
    pub format: String,
    /// Pixels across.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Seed it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether it is a preview of one that is still being made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
}

/// What consumers read on `GET /jobs/:id/stream` and in `job.<id>.events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum JobEvent {
    /// A piece of text.
    Token {
        /// The text.
        content: String,
    },
    /// Step `step` of `total`.
    Progress {
        /// Done so far.
        step: u64,
        /// All there is.
        total: u64,
        /// What is progressing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    /// A new state or phase of the job.
    Status {
        /// Its name.
        state: String,
    },
    /// An image, or a preview of one.
    Image(Image),
    /// The job completed: always the last event.
    Done {
        /// What it used and cost.
        usage: Usage,
        /// The result, where it is not the joined tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// Why a reply ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<FinishReason>,
    },
    /// The job failed, was cancelled or timed out: always the last event.
    Error {
        /// For a person.
        error: String,
        /// For a program.
        code: String,
    },
}

impl JobEvent {
    /// All SSE event names.
    pub const NAMES: [&str; 6] = ["token", "progress", "status", "image", "done", "error"];

    /// The SSE event name.
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

    /// Whether nothing can follow.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Error { .. })
    }

    /// Whether a consumer that saw this has received part of the result, so that a silent re-run is out.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Token { .. } | Self::Image(_))
    }
}
