//! What a running job may say and must obey, and whose fault it is when something is wrong.

use island_protocol::{
    event::Image,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{EventSink, Phase, RunContext, WorkCounter};
use tokio_util::sync::CancellationToken;

/// One job's side of a run.
#[derive(Debug, Clone)]
pub struct Job {
    events: EventSink,
    cancel: CancellationToken,
    work: WorkCounter,
}

impl Job {
    /// The job of a run.
    pub fn new(context: &RunContext) -> Self {
        let RunContext { events, cancel, work, .. } = context;
        Self { events: events.clone(), cancel: cancel.clone(), work: work.clone() }
    }

    /// Output is being produced from now on.
    pub fn begin(&self) {
        self.work.enter(Phase::Run);
    }

    /// Called between steps: counts one as done, and says so if the job is to end.
    pub fn step(&self) -> Result<(), Failure> {
        self.work.advance(1);
        if self.cancel.is_cancelled() {
            return Err(Failure::interrupted(FailureCode::CancelledByUser, "the run was stopped"));
        }
        Ok(())
    }

    /// Step `done` of `total`.
    pub fn progress(&self, phase: &str, done: usize, total: usize) {
        self.events.progress(phase, done as u64, total as u64);
    }

    /// A picture, or a preview of one.
    pub fn image(&self, image: Image) {
        self.events.image(image);
    }
}

/// An input nobody could answer.
pub fn invalid_input(message: impl Into<String>) -> Failure {
    Failure::of_job(FailureCode::InvalidInput, message)
}

/// A model that is not what its Cargo says.
pub fn invalid_model(message: impl Into<String>) -> Failure {
    Failure::of_job(FailureCode::ModelRejected, message)
}

/// A computation that broke down: shapes were checked before, so it is ours or the host's.
pub fn broke(what: &'static str) -> impl Fn(candle_core::Error) -> Failure {
    move |error| Failure::of_host(FailureCode::InternalError, format!("{what}: {error}"))
}
