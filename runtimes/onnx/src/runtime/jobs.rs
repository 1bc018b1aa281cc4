//! Jobs of one pipeline: as many at once as it has slots, each on a thread of its own.

use std::sync::Arc;

use island_protocol::job::{Failure, FailureCode, Outcome};
use island_runtimes_api::{Phase, RunContext, RunRequest};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{run::Job, task::Pipeline};

/// A loaded pipeline and those who ask it.
pub struct Jobs {
    /// Taken away by the shutdown: whoever runs still holds it.
    pipeline: Mutex<Option<Arc<dyn Pipeline>>>,
    graphs: Vec<String>,
    places: Arc<Semaphore>,
    slots: u32,
    /// The threads that run jobs.
    threads: TaskTracker,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs")
            .field("graphs", &self.graphs)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl Jobs {
    /// Of a pipeline that answers so many at once.
    pub fn new(pipeline: Arc<dyn Pipeline>, slots: u32) -> Self {
        let slots = slots.max(1);
        Self {
            graphs: pipeline.graphs(),
            pipeline: Mutex::new(Some(pipeline)),
            places: Arc::new(Semaphore::new(slots as usize)),
            slots,
            threads: TaskTracker::new(),
        }
    }

    /// Jobs at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The graphs that the pipeline runs.
    pub fn graphs(&self) -> &[String] {
        &self.graphs
    }

    fn pipeline(&self) -> Option<Arc<dyn Pipeline>> {
        self.pipeline.lock().clone()
    }

    /// Runs one job to its outcome.
    pub async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        context.work.enter(Phase::Wait);
        let gone = || Failure::of_host(FailureCode::RuntimeCrashed, "the model is no longer loaded");
        let stopped = || Failure::interrupted(FailureCode::CancelledByUser, "the run was stopped");
        let place = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Outcome::failed(stopped()),
            place = Arc::clone(&self.places).acquire_owned() => place,
        };
        let Some(pipeline) = self.pipeline() else { return Outcome::failed(gone()) };
        // A run that is dropped stops its thread too.
        let cancel = context.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let work = context.work.clone();
        let job = Job::new(&RunContext { cancel, ..context });
        let told = job.clone();
        let thread = self.threads.spawn_blocking(move || {
            let _place = place;
            job.begin();
            pipeline.answer(&request.input, &job)
        });
        let beats = async {
            // One run of a large graph can take long; within it nothing can be counted.
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                work.advance(1);
            }
        };
        let answered =
            tokio::select! { answered = thread => answered, () = beats => unreachable!("it beats for ever") };
        let used = told.used();
        // The sink goes with the job, before the outcome is seen.
        drop(told);
        match answered {
            Ok(Ok(answer)) => Outcome::Completed {
                usage: answer.usage,
                output: Some(answer.output),
                finish_reason: answer.finish_reason,
            },
            Ok(Err(failure)) => Outcome::Failed { failure, usage: used },
            Err(_) => Outcome::failed(Failure::of_host(FailureCode::RuntimeCrashed, "the engine broke down")),
        }
    }

    /// Takes no more, and waits for those that run.
    pub async fn shutdown(&self) {
        drop(self.pipeline.lock().take());
        self.threads.close();
        self.threads.wait().await;
    }
}
