//! Running blocking engine code as asynchronous jobs.

use std::{convert::Infallible, sync::Arc, time::Duration};

use island_protocol::job::Outcome;
use island_runtimes_api::{Phase, RunContext, RunRequest};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{
    error::{EngineError, ErrorKind},
    job::{Answer, Job},
    pipeline::Pipeline,
    stop::{CancelOnDrop, Stop},
};

/// How often a job that computes counts as alive. One run of a large graph takes long, and nothing can be counted within it.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Runs `load` on a blocking thread. `name` is the engine, for the error if it panics.
pub async fn load<T: Send + 'static>(
    name: &str,
    load: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    // The panic was logged by its hook; its text is not for the wire.
    let crashed = |_| EngineError::new(ErrorKind::Crashed, format!("{name} broke down while loading"));
    tokio::task::spawn_blocking(load).await.map_err(crashed)?
}

/// A loaded model and the jobs that use it: at most a fixed number at once, each on its own blocking thread.
pub struct Jobs<M: ?Sized> {
    /// Removed by [`Jobs::shutdown`]; running jobs keep it until they end.
    model: Mutex<Option<Arc<M>>>,
    permits: Arc<Semaphore>,
    limit: u32,
    threads: TaskTracker,
}

impl<M: ?Sized> std::fmt::Debug for Jobs<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<M: ?Sized + Send + Sync + 'static> Jobs<M> {
    /// Jobs of `model`, at most `limit` at once and at least 1.
    pub fn new(model: Arc<M>, limit: u32) -> Self {
        let limit = limit.max(1);
        Self {
            model: Mutex::new(Some(model)),
            permits: Arc::new(Semaphore::new(limit as usize)),
            limit,
            threads: TaskTracker::new(),
        }
    }

    /// The maximum number of concurrent jobs.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The model. An error after [`Jobs::shutdown`].
    pub fn model(&self) -> Result<Arc<M>, EngineError> {
        let model = self.model.lock().clone();
        model.ok_or_else(|| EngineError::new(ErrorKind::Crashed, "the model is no longer loaded"))
    }

    /// Waits for a permit and runs `answer` on a blocking thread. Cancelling the context, or dropping the future, ends the computation that
    /// runs, if it can be ended ([`stop`](crate::stop)), and the job at its next [`Job::step`].
    pub async fn run(
        &self,
        context: RunContext,
        answer: impl FnOnce(&M, &Job) -> Result<Answer, EngineError> + Send + 'static,
    ) -> Outcome {
        context.work.enter(Phase::Wait);
        let permit = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Outcome::failed(EngineError::interrupted().into()),
            permit = Arc::clone(&self.permits).acquire_owned() => permit,
        };
        let model = match self.model() {
            Ok(model) => model,
            Err(error) => return Outcome::failed(error.into()),
        };
        // A dropped run stops its thread too.
        let stop = Stop::new(context.cancel.child_token());
        let _stop = CancelOnDrop(stop.clone());
        let work = context.work.clone();
        let job = Job::new(&context, stop.clone());
        drop(context);
        let counted = job.clone();
        let thread = self.threads.spawn_blocking(move || {
            let _permit = permit;
            job.begin();
            job.stop().clone().within(|| answer(&model, &job))
        });
        let progress = async {
            loop {
                tokio::time::sleep(PROGRESS_INTERVAL).await;
                work.advance(1);
            }
        };
        let cancelled = async {
            stop.end_when_cancelled().await;
            // The thread returns soon, with what it has.
            std::future::pending::<Infallible>().await
        };
        let answered = tokio::select! {
            answered = thread => answered,
            never = cancelled => match never {},
            () = progress => unreachable!("the loop has no end"),
        };
        let used = counted.used();
        // The event sink closes before the outcome is visible.
        drop(counted);
        match answered {
            Ok(Ok(Answer { output, usage, finish_reason, stop_text })) => {
                Outcome::Completed { usage, output: Some(output), finish_reason, stop_text }
            }
            Ok(Err(error)) => Outcome::Failed { failure: error.into(), usage: used },
            Err(_) => Outcome::failed(EngineError::new(ErrorKind::Crashed, "the engine broke down").into()),
        }
    }

    /// Accepts no more jobs, and waits for the running ones.
    pub async fn shutdown(&self) {
        drop(self.model.lock().take());
        self.threads.close();
        self.threads.wait().await;
    }
}

impl Jobs<dyn Pipeline> {
    /// Paths of the pipeline's graphs; empty after [`Jobs::shutdown`].
    pub fn graphs(&self) -> Vec<String> {
        self.model().map(|pipeline| pipeline.graphs()).unwrap_or_default()
    }

    /// Runs the pipeline on a request's input.
    pub async fn answer(&self, request: RunRequest, context: RunContext) -> Outcome {
        self.run(context, move |pipeline, job| pipeline.answer(&request.input, job)).await
    }
}
