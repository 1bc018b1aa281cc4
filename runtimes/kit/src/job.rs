//! A running job as engine code sees it, and its result.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use island_protocol::{
    event::Image,
    job::{FinishReason, Usage},
};
use island_runtimes_api::{EventSink, Phase, RunContext, WorkCounter};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{EngineError, invalid_input},
    stop::Stop,
};

/// A running job: where its events go, and whether it is cancelled.
#[derive(Debug, Clone)]
pub struct Job {
    events: EventSink,
    stop: Stop,
    work: WorkCounter,
    /// Tokens read and generated so far: the usage of a job that ends without an answer.
    used: Arc<[AtomicU64; 2]>,
    /// The steps that a trial may still take; `None` for other jobs.
    steps_left: Option<Arc<AtomicU64>>,
}

/// Maximum number of steps of a trial: more than the vocoder of a voice is away, and few of the tokens of a text.
const TRIAL_STEPS: u64 = 16;

/// The result of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The output that the Cargo's output schema describes.
    pub output: Value,
    /// Tokens read and generated.
    pub usage: Usage,
    /// Why generation ended, for tasks that generate text.
    pub finish_reason: Option<FinishReason>,
    /// The stop text of the input that ended the text.
    pub stop_text: Option<String>,
}

impl Answer {
    /// The result of a task that read `tokens` tokens and generated none.
    pub fn of(output: Value, tokens: u64) -> Self {
        Self { output, usage: Usage::tokens(tokens, 0), finish_reason: None, stop_text: None }
    }
}

impl Job {
    /// The job of a run, cancelled by `stop`.
    pub fn new(context: &RunContext, stop: Stop) -> Self {
        let RunContext { events, work, .. } = context;
        Self { events: events.clone(), stop, work: work.clone(), used: Arc::default(), steps_left: None }
    }

    /// A job without a consumer, interrupted after its first token or some steps.
    pub(crate) fn trial() -> Self {
        let (events, _) = EventSink::channel();
        Self {
            events,
            stop: Stop::new(CancellationToken::new()),
            work: WorkCounter::default(),
            used: Arc::default(),
            steps_left: Some(Arc::new(TRIAL_STEPS.into())),
        }
    }

    /// A job whose events `events` receives.
    #[cfg(test)]
    pub(crate) fn sending(events: EventSink) -> Self {
        let stop = Stop::new(CancellationToken::new());
        Self { events, stop, work: WorkCounter::default(), used: Arc::default(), steps_left: None }
    }

    /// Its cancellation.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Counts a step as done. Returns an error if the job is cancelled. Called between steps.
    pub fn step(&self) -> Result<(), EngineError> {
        self.work.advance(1);
        if let Some(left) = &self.steps_left {
            let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            taken.map_err(|_| EngineError::interrupted())?;
        }
        self.stop.check()
    }

    /// Marks the begin of the computation.
    pub fn begin(&self) {
        self.work.enter(Phase::Run);
    }

    /// Sends a piece of text that stands for `count` tokens.
    pub fn token(&self, content: impl Into<String>, count: u32) {
        self.used[1].fetch_add(u64::from(count), Ordering::Relaxed);
        self.events.token(content, count);
        if let Some(left) = &self.steps_left {
            left.store(0, Ordering::Relaxed);
        }
    }

    /// Counts `count` tokens of the input as read.
    pub fn read(&self, count: u64) {
        self.used[0].fetch_add(count, Ordering::Relaxed);
    }

    /// Tokens read and generated so far.
    pub fn used(&self) -> Usage {
        let [read, generated] = &*self.used;
        Usage::tokens(read.load(Ordering::Relaxed), generated.load(Ordering::Relaxed))
    }

    /// Reports that `done` of `total` steps are done.
    pub fn progress(&self, phase: &str, done: u64, total: u64) {
        self.events.progress(phase, done, total);
    }

    /// Sends an image, or a preview of one.
    pub fn image(&self, image: Image) {
        self.events.image(image);
    }
}

/// Reads an input as the type of its task.
pub fn parse_input<T: DeserializeOwned>(value: &Value) -> Result<T, EngineError> {
    T::deserialize(value).map_err(|error| invalid_input("the input does not fit the task").because(error))
}
