//! What a running job may say and must obey, and what it answers.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use island_protocol::job::{Failure, FailureCode, FinishReason, Usage};
use island_runtimes_api::{EventSink, Phase, RunContext, WorkCounter};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// One job's side of a run.
#[derive(Debug, Clone)]
pub struct Job {
    events: EventSink,
    cancel: CancellationToken,
    work: WorkCounter,
    /// Tokens read and written so far, for a job that ends before its answer.
    used: Arc<[AtomicU64; 2]>,
}

/// What a task made of an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What the Cargo's output schema describes.
    pub output: Value,
    /// Tokens read and written.
    pub usage: Usage,
    /// Why a text ended, where one was written.
    pub finish_reason: Option<FinishReason>,
}

impl Answer {
    /// An answer to `tokens` tokens of input that wrote none.
    pub fn of(output: Value, tokens: u64) -> Self {
        Self { output, usage: Usage::tokens(tokens, 0), finish_reason: None }
    }
}

impl Job {
    /// The job of a run.
    pub fn new(context: &RunContext) -> Self {
        let RunContext { events, cancel, work, .. } = context;
        Self { events: events.clone(), cancel: cancel.clone(), work: work.clone(), used: Arc::default() }
    }

    /// Called between steps: counts one as done, and says so if the job is to end.
    pub fn step(&self) -> Result<(), Failure> {
        self.work.advance(1);
        if self.cancel.is_cancelled() {
            return Err(Failure::interrupted(FailureCode::CancelledByUser, "the run was stopped"));
        }
        Ok(())
    }

    /// Output is being produced from now on.
    pub fn begin(&self) {
        self.work.enter(Phase::Run);
    }

    /// A piece of text that stands for `count` tokens.
    pub fn token(&self, content: impl Into<String>, count: u32) {
        self.used[1].fetch_add(u64::from(count), Ordering::Relaxed);
        self.events.token(content, count);
    }

    /// So many tokens of the input went into the model.
    pub fn read(&self, count: u64) {
        self.used[0].fetch_add(count, Ordering::Relaxed);
    }

    /// What was read and written so far.
    pub fn used(&self) -> Usage {
        let [read, written] = &*self.used;
        Usage::tokens(read.load(Ordering::Relaxed), written.load(Ordering::Relaxed))
    }

    /// Step `done` of `total`.
    pub fn progress(&self, phase: &str, done: u64, total: u64) {
        self.events.progress(phase, done, total);
    }
}

/// An input in a task's own words.
pub fn input<T: DeserializeOwned>(value: &Value) -> Result<T, Failure> {
    T::deserialize(value).map_err(|error| invalid_input(format!("the input does not fit the task: {error}")))
}

/// An input nobody could answer.
pub fn invalid_input(message: impl Into<String>) -> Failure {
    Failure::of_job(FailureCode::InvalidInput, message)
}

/// A model that is not what its Cargo says.
pub fn invalid_model(message: impl Into<String>) -> Failure {
    Failure::of_job(FailureCode::ModelRejected, message)
}
