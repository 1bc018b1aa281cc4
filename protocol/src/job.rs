//! Jobs: their states, usage, and outcomes of attempts.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use strum::VariantArray;

use crate::credits::MicroCredits;

/// State of a job. Only the coordinator's transition table changes it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum JobStatus {
    /// Accepted, with credits on hold; not placed yet.
    Submitted,
    /// No Island fits at the moment.
    Pending,
    /// An Island has accepted it and is preparing it.
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
    /// Every status, in the order of the specification.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns whether the job has ended. Final states never change.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout)
    }

    /// Returns the name on the wire and in SQL; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Resources that a job used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Tokens in the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// The sum of both.
    pub total_tokens: u64,
    /// What the generated tokens are; absent if all of them are the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
    /// Credits charged; absent until the job is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits_used: Option<MicroCredits>,
    /// Instructions that a metered wasm Cargo executed, the same on every Island; absent for other engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// The device on which the model ran, as its API and name: `cpu`, `vulkan: NAME`, `webgpu: NAME`. Absent if the engine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// What generated tokens are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CompletionTokensDetails {
    /// Tokens of the reasoning before the answer.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Returns the usage of a prompt and a reply, without a price. A program may report any number: the sum ends at the largest.
    pub fn tokens(prompt: u64, completion: u64) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt.saturating_add(completion),
            ..Self::default()
        }
    }
}

/// Why a reply ended, in the terms of OpenAI's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model finished, or generated a stop sequence.
    Stop,
    /// The token limit was reached.
    Length,
    /// The reply calls functions.
    ToolCalls,
}

/// Cause of a failure. Billing and retries depend only on this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The job: it would fail on every Island.
    Job,
    /// This Island: another one may succeed.
    Host,
    /// Neither: the run was stopped from outside.
    Interrupted,
}

/// Stable code of a job that did not complete.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureCode {
    /// The Island disappeared while the job ran.
    IslandLost,
    /// The engine's process died.
    RuntimeCrashed,
    /// The engine stopped making progress.
    RuntimeStalled,
    /// Out of memory.
    OutOfMemory,
    /// Out of disk space.
    DiskFull,
    /// The hash of a file differs from the Cargo's.
    ModelHashMismatch,
    /// A file is malformed or of the wrong kind.
    ModelRejected,
    /// A file could not be downloaded.
    ModelUnavailable,
    /// The chat template exceeded its limit of time or size.
    TemplateLimit,
    /// Compilation exceeded its limit of time or memory.
    CompileLimit,
    /// The output is too large.
    OutputLimit,
    /// The Cargo's program reported a failure or exited with one.
    CargoFailed,
    /// The output does not match the Cargo's schema.
    InvalidOutput,
    /// The engine cannot process the input.
    InvalidInput,
    /// The prompt is longer than the model's context.
    ContextLengthExceeded,
    /// The time limit was reached.
    DeadlineExceeded,
    /// The consumer cancelled.
    CancelledByUser,
    /// The Island's owner reclaimed the machine.
    HandedBack,
    /// No Island could run it.
    NoIslandAvailable,
    /// The Cargo was replaced while the job waited.
    CargoChanged,
    /// An internal error.
    InternalError,
    /// A code newer than this build.
    #[serde(other)]
    Unknown,
}

impl FailureCode {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A failure as reported to others: without paths and secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Cause of the failure.
    pub fault: Fault,
    /// Stable code.
    pub code: FailureCode,
    /// What was attempted and why it failed, for a person.
    pub message: String,
}

impl Failure {
    /// Creates a failure that every Island would have.
    pub fn of_job(code: FailureCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::Job, code, message: message.into() }
    }

    /// Creates a failure of this Island.
    pub fn of_host(code: FailureCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::Host, code, message: message.into() }
    }

    /// Creates a failure of a run that was stopped from outside.
    pub fn interrupted(code: FailureCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::Interrupted, code, message: message.into() }
    }
}

/// How an attempt ended. A failed job is an outcome, not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Outcome {
    /// It completed.
    Completed {
        /// Usage; `credits_used` is absent here.
        usage: Usage,
        /// The result, if it is not the joined tokens.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        output: Option<Value>,
        /// Why the reply ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<FinishReason>,
        /// The stop text that ended the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_text: Option<String>,
    },
    /// It failed.
    Failed {
        /// Why it failed.
        failure: Failure,
        /// Usage until then.
        #[serde(default)]
        usage: Usage,
    },
}

/// Reads a value that is there, null among them, which serde reads as none.
pub fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Outcome {
    /// Creates the outcome of a failure without usage.
    pub fn failed(failure: Failure) -> Self {
        Self::Failed { failure, usage: Usage::default() }
    }

    /// Adds to its usage the device on which the model ran.
    #[must_use]
    pub fn on(mut self, device: &str) -> Self {
        let (Self::Completed { usage, .. } | Self::Failed { usage, .. }) = &mut self;
        usage.device = Some(device.to_owned());
        self
    }
}
