//! Jobs: their states, what they used and how an attempt at one ends.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::credits::MicroCredits;

/// State of a job. Only the coordinator's transition table moves a job from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Accepted and paid for, not looked at yet.
    Submitted,
    /// No Island fits right now.
    Pending,
    /// An Island has accepted it and is preparing.
    Queued,
    /// Executing.
    Running,
    /// Finished successfully.
    Completed,
    /// Execution failed; refunded.
    Failed,
    /// Cancelled by the user.
    Cancelled,
    /// Exceeded its time limit; refunded.
    Timeout,
}

impl JobStatus {
    /// All eight, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Pending,
        Self::Queued,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
    ];

    /// Whether the job has ended. Final states never change.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout)
    }

    /// The name on the wire and in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Pending => "pending",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    /// The status of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a job consumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
    /// Their sum.
    pub total_tokens: u64,
    /// Credits charged; absent until the job is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits_used: Option<MicroCredits>,
    /// Instructions a metered wasm Cargo executed, the same on every Island; absent for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
}

impl Usage {
    /// Usage of a prompt and a reply, not priced yet.
    pub fn tokens(prompt: u64, completion: u64) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            ..Self::default()
        }
    }
}

/// Why a reply ended, in the words of the chat API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done, or a stop sequence was met.
    Stop,
    /// The token limit was met.
    Length,
    /// It calls functions.
    ToolCalls,
}

/// Whose fault a failure is. Billing and retry read only this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The job's: it would fail on every Island.
    Job,
    /// This Island's: another may succeed.
    Host,
    /// Nobody's: we stopped it.
    Interrupted,
}

/// Stable code of a job that did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The Island vanished while the job ran.
    IslandLost,
    /// The engine's process died.
    RuntimeCrashed,
    /// The engine stopped making progress.
    RuntimeStalled,
    /// Memory ran out.
    OutOfMemory,
    /// Disk ran out.
    DiskFull,
    /// A file's hash was not the Cargo's.
    ModelHashMismatch,
    /// A file is malformed or not of the Cargo's kind.
    ModelRejected,
    /// A file could not be fetched.
    ModelUnavailable,
    /// The chat template took too long or grew too large.
    TemplateLimit,
    /// Compilation took too long or too much memory.
    CompileLimit,
    /// More output than allowed.
    OutputLimit,
    /// The Cargo's own program said that it failed, or ended as if it had.
    CargoFailed,
    /// Output that is not what the Cargo declares.
    InvalidOutput,
    /// Input the engine cannot take.
    InvalidInput,
    /// Prompt longer than the model's context.
    ContextLengthExceeded,
    /// The time limit was met.
    DeadlineExceeded,
    /// The consumer cancelled.
    CancelledByUser,
    /// The Island's owner wanted the machine back.
    HandedBack,
    /// Nobody could run it.
    NoIslandAvailable,
    /// A bug of ours.
    InternalError,
    /// A code newer than this build.
    #[serde(other)]
    Unknown,
}

impl FailureCode {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IslandLost => "island_lost",
            Self::RuntimeCrashed => "runtime_crashed",
            Self::RuntimeStalled => "runtime_stalled",
            Self::OutOfMemory => "out_of_memory",
            Self::DiskFull => "disk_full",
            Self::ModelHashMismatch => "model_hash_mismatch",
            Self::ModelRejected => "model_rejected",
            Self::ModelUnavailable => "model_unavailable",
            Self::TemplateLimit => "template_limit",
            Self::CompileLimit => "compile_limit",
            Self::OutputLimit => "output_limit",
            Self::CargoFailed => "cargo_failed",
            Self::InvalidOutput => "invalid_output",
            Self::InvalidInput => "invalid_input",
            Self::ContextLengthExceeded => "context_length_exceeded",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::CancelledByUser => "cancelled_by_user",
            Self::HandedBack => "handed_back",
            Self::NoIslandAvailable => "no_island_available",
            Self::InternalError => "internal_error",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure told to somebody else: no paths, no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose fault.
    pub fault: Fault,
    /// Stable code.
    pub code: FailureCode,
    /// What was attempted and what went wrong, for a person.
    pub message: String,
}

impl Failure {
    /// A failure that every Island would meet.
    pub fn of_job(code: FailureCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::Job, code, message: message.into() }
    }

    /// A failure of this Island.
    pub fn of_host(code: FailureCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::Host, code, message: message.into() }
    }

    /// A run that was stopped from outside.
    pub fn interrupted(code: FailureCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::Interrupted, code, message: message.into() }
    }
}

/// How an attempt ended. A job that fails is an outcome, not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Outcome {
    /// It did what was asked.
    Completed {
        /// What it used; `credits_used` is absent here.
        usage: Usage,
        /// Result that is not the joined tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// Why a reply ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<FinishReason>,
    },
    /// It did not.
    Failed {
        /// Why.
        failure: Failure,
        /// What it used until then.
        #[serde(default)]
        usage: Usage,
    },
}

impl Outcome {
    /// A failure that used nothing worth counting.
    pub fn failed(failure: Failure) -> Self {
        Self::Failed { failure, usage: Usage::default() }
    }
}
