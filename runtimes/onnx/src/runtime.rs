//! The seam to the rest: one model, and as many jobs at once as it has slots.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{Phase, Probe, RunContext, RunRequest, Runtime, Unavailable};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{
    devices,
    graph::{Threads, watch::Watch},
    library,
    repository::Repository,
    run::Job,
    task::{self, Loader, Pipeline},
};

/// How to run a model.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its files, by their path in the repository.
    pub files: BTreeMap<String, PathBuf>,
    /// The Cargo it belongs to.
    pub cargo: CargoSpec,
    /// Jobs at once.
    pub slots: u32,
    /// Processor threads of one run.
    pub threads: u32,
    /// GPU memory it may use, megabytes.
    pub vram_limit_mb: u64,
    /// Who looks at what passes through graphs.
    pub watch: Watch,
}

/// A loaded model.
pub struct Onnx {
    /// Taken away by the shutdown: whoever runs still holds it.
    pipeline: Mutex<Option<Arc<dyn Pipeline>>>,
    graphs: Vec<String>,
    places: Arc<Semaphore>,
    slots: u32,
    /// The threads that run jobs.
    threads: TaskTracker,
}

impl std::fmt::Debug for Onnx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Onnx")
            .field("graphs", &self.graphs)
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl Onnx {
    /// Loads a model, on a thread of its own.
    pub async fn load(settings: Settings) -> Result<Self, Failure> {
        let slots = settings.slots.max(1);
        let loading = tokio::task::spawn_blocking(move || load(settings));
        let broke =
            |_| Failure::of_host(FailureCode::RuntimeCrashed, "ONNX Runtime broke down while loading");
        let pipeline = loading.await.map_err(broke)??;
        let graphs = pipeline.graphs();
        tracing::info!(?graphs, "model loaded");
        Ok(Self {
            pipeline: Mutex::new(Some(pipeline)),
            graphs,
            places: Arc::new(Semaphore::new(slots as usize)),
            slots,
            threads: TaskTracker::new(),
        })
    }

    /// Jobs at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Version of ONNX Runtime, and which graphs it runs.
    pub fn version(&self) -> String {
        format!("ONNX Runtime {}, {}", library::version(), self.graphs.join(", "))
    }

    fn pipeline(&self) -> Option<Arc<dyn Pipeline>> {
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn load(settings: Settings) -> Result<Arc<dyn Pipeline>, Failure> {
    let environment =
        library::open().map_err(|error| Failure::of_host(FailureCode::InternalError, error.reason))?;
    let loader = Loader {
        environment,
        repository: Repository::open(settings.files, settings.vram_limit_mb > 0)?,
        threads: Threads { threads: settings.threads as usize, vram_limit_mb: settings.vram_limit_mb },
        settings: settings.cargo.engine.clone(),
        watch: settings.watch,
    };
    task::load(&settings.cargo, &loader).map(Arc::from)
}

/// What ONNX Runtime offers here.
pub fn probe() -> Result<Probe, Unavailable> {
    library::open()?;
    Ok(Probe {
        version: format!("ONNX Runtime {}", library::version()),
        devices: devices::names(),
        ..Probe::default()
    })
}

impl Runtime for Onnx {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Onnx
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        probe().map(|probe| Probe { slots: self.slots, ..probe })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
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
        match answered {
            Ok(Ok(answer)) => Outcome::Completed {
                usage: answer.usage,
                output: Some(answer.output),
                finish_reason: answer.finish_reason,
            },
            Ok(Err(failure)) => Outcome::failed(failure),
            Err(_) => Outcome::failed(Failure::of_host(FailureCode::RuntimeCrashed, "the engine broke down")),
        }
    }

    async fn shutdown(&self) {
        drop(self.pipeline.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.threads.close();
        self.threads.wait().await;
    }
}
