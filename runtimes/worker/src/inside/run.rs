//! One run: the engine works, its events are numbered, its outcome becomes the last event.

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc};

use futures::FutureExt;
use island_protocol::{
    ids::AttemptKey,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{EventSink, JobLog, Phase, RunContext, RunRequest, Runtime};
use tokio::sync::watch;

use super::state::{RunHandles, State};

/// Where a run may write.
#[derive(Debug)]
pub(super) struct Places {
    /// Its scratch folder, removed after it.
    pub(super) scratch: PathBuf,
    /// Path of its debug log.
    pub(super) log: Option<PathBuf>,
}

/// Runs one attempt to its end, once the engine is loaded.
pub(super) async fn run<R: Runtime>(
    mut engine: watch::Receiver<Option<Arc<R>>>,
    state: Arc<State>,
    key: AttemptKey,
    request: RunRequest,
    handles: RunHandles,
    places: Places,
) {
    handles.work.enter(Phase::Load);
    let cancelled = handles.cancel.clone();
    let ready = tokio::select! {
        biased;
        () = cancelled.cancelled() => Err(interrupted()),
        ready = engine.wait_for(Option::is_some) => ready.ok().and_then(|ready| ready.clone()).ok_or_else(not_loaded),
    };
    let outcome = match ready {
        Ok(runtime) => attempt(&*runtime, &state, key, request, handles, places).await,
        Err(failure) => Outcome::failed(failure),
    };
    state.end(key, outcome);
}

async fn attempt<R: Runtime>(
    runtime: &R,
    state: &State,
    key: AttemptKey,
    request: RunRequest,
    handles: RunHandles,
    places: Places,
) -> Outcome {
    let scratch = places.scratch;
    if let Err(failure) = runtime.admit(&request) {
        return Outcome::failed(failure);
    }
    if let Err(error) = std::fs::create_dir_all(&scratch) {
        return Outcome::failed(Failure::of_host(
            FailureCode::DiskFull,
            format!("create a scratch folder: {error}"),
        ));
    }
    let (events, mut emitted) = EventSink::channel();
    let log = JobLog::default();
    let context = RunContext {
        key,
        events,
        cancel: handles.cancel,
        scratch: scratch.clone(),
        work: handles.work,
        log: log.clone(),
    };
    let running = AssertUnwindSafe(runtime.run(request, context)).catch_unwind();
    tokio::pin!(running);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(event) = emitted.recv() => state.append(key, event),
            outcome = &mut running => break outcome,
        }
    };
    while let Ok(event) = emitted.try_recv() {
        state.append(key, event);
    }
    if let Err(error) = std::fs::remove_dir_all(&scratch) {
        tracing::warn!(%key, %error, "a scratch folder could not be removed");
    }
    if let Some(path) = places.log.filter(|_| !log.is_empty())
        && let Err(error) = std::fs::write(path, log.text())
    {
        tracing::warn!(%key, %error, "a job's debug log could not be written");
    }
    outcome.unwrap_or_else(|_| {
        Outcome::failed(Failure::of_host(
            FailureCode::RuntimeCrashed,
            "the engine failed while running the job",
        ))
    })
}

fn interrupted() -> Failure {
    Failure::interrupted(FailureCode::CancelledByUser, "the run was stopped")
}

fn not_loaded() -> Failure {
    Failure::of_host(FailureCode::ModelUnavailable, "the model could not be loaded")
}
