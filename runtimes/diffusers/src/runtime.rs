//! The seam to the rest: one model, whose jobs take turns.

mod device;
mod make;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    job::{Failure, FailureCode, Outcome, Usage},
};
use island_runtimes_api::{Phase, Probe, RunContext, RunRequest, Runtime, Unavailable};
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{model::Model, repository::Repository, request::Request, run::Job};
pub use device::{probe, profile};
use make::Maker;

/// How often a job that computes shows that it does.
const BEAT: Duration = Duration::from_millis(500);

/// How to run a model.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its files, by their path in the repository.
    pub files: BTreeMap<String, PathBuf>,
    /// The Cargo it belongs to.
    pub cargo: CargoSpec,
    /// Jobs that may be given at once; they take turns, as one already uses every thread.
    pub slots: u32,
    /// Processor threads.
    pub threads: u32,
    /// Memory it may use, megabytes; 0 where nobody counts.
    pub memory_limit_mb: u64,
    /// GPU memory it may use, megabytes; 0 keeps it on the processor.
    pub vram_limit_mb: u64,
}

/// A loaded model.
pub struct Diffusers {
    /// Taken away by the shutdown: whoever runs still holds it.
    maker: Mutex<Option<Arc<Maker>>>,
    turn: Arc<Semaphore>,
    slots: u32,
    vram_mb: u64,
    version: String,
    /// The threads that run jobs.
    threads: TaskTracker,
}

impl std::fmt::Debug for Diffusers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Diffusers").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Diffusers {
    /// Loads a model, on a thread of its own.
    pub async fn load(settings: Settings) -> Result<Self, Failure> {
        let slots = settings.slots.max(1);
        let loading = tokio::task::spawn_blocking(move || load(settings));
        let broke = |_| Failure::of_host(FailureCode::RuntimeCrashed, "the engine broke down while loading");
        let maker = loading.await.map_err(broke)??;
        let model = &maker.model;
        let on_gpu = !model.place.device.is_cpu();
        let version = format!("candle, {} on {}", model.class_name(), device::name(&model.place.device));
        tracing::info!(bytes = model.weights_bytes(), version, "model loaded");
        Ok(Self {
            vram_mb: if on_gpu { model.weights_bytes() >> 20 } else { 0 },
            maker: Mutex::new(Some(Arc::new(maker))),
            turn: Arc::new(Semaphore::new(1)),
            slots,
            version,
            threads: TaskTracker::new(),
        })
    }

    /// Jobs that may be given at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// GPU memory that the weights take, megabytes.
    pub fn vram_mb(&self) -> u64 {
        self.vram_mb
    }

    /// What runs here.
    pub fn version(&self) -> String {
        self.version.clone()
    }

    fn maker(&self) -> Option<Arc<Maker>> {
        self.maker.lock().clone()
    }
}

fn load(settings: Settings) -> Result<Maker, Failure> {
    let threads = settings.threads.max(1) as usize;
    let pool: ThreadPool =
        ThreadPoolBuilder::new().num_threads(threads).thread_name(|at| format!("sd-{at}")).build().map_err(
            |error| {
                Failure::of_host(FailureCode::InternalError, format!("start the engine's threads: {error}"))
            },
        )?;
    let place = device::place(settings.vram_limit_mb)?;
    let limit = if place.device.is_cpu() { settings.memory_limit_mb } else { settings.vram_limit_mb };
    let limit = (limit > 0).then_some(limit << 20);
    let repository = Repository::new(settings.files);
    let model = pool.install(|| Model::load(repository, &settings.cargo.engine, place, limit))?;
    let CargoSpec { slug, limits, .. } = settings.cargo;
    Ok(Maker { model, pool, limit, slug: slug.to_string(), max_output_bytes: limits.max_output_bytes })
}

impl Runtime for Diffusers {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Diffusers
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        Ok(Probe { slots: self.slots, ..probe() })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        context.work.enter(Phase::Wait);
        let gone = || Failure::of_host(FailureCode::RuntimeCrashed, "the model is no longer loaded");
        let stopped = || Failure::interrupted(FailureCode::CancelledByUser, "the run was stopped");
        let Some(maker) = self.maker() else { return Outcome::failed(gone()) };
        // Nonsense is refused at once, not when its turn has come.
        let wanted = match Request::read(&request.input, &maker.defaults()) {
            Ok(wanted) => wanted,
            Err(failure) => return Outcome::failed(failure),
        };
        let turn = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Outcome::failed(stopped()),
            turn = Arc::clone(&self.turn).acquire_owned() => turn,
        };
        // A run that is dropped stops its thread too.
        let cancel = context.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let work = context.work.clone();
        let job = Job::new(&RunContext { cancel, ..context });
        let thread = self.threads.spawn_blocking(move || {
            let _turn = turn;
            job.begin();
            maker.answer(wanted, &job)
        });
        let beats = async {
            // A step of a large picture can take long; within it nothing can be counted.
            loop {
                tokio::time::sleep(BEAT).await;
                work.advance(1);
            }
        };
        let answered =
            tokio::select! { answered = thread => answered, () = beats => unreachable!("it beats for ever") };
        match answered {
            Ok(Ok(output)) => {
                Outcome::Completed { usage: Usage::default(), output: Some(output), finish_reason: None }
            }
            Ok(Err(failure)) => Outcome::failed(failure),
            Err(_) => Outcome::failed(Failure::of_host(FailureCode::RuntimeCrashed, "the engine broke down")),
        }
    }

    async fn shutdown(&self) {
        drop(self.maker.lock().take());
        self.threads.close();
        self.threads.wait().await;
    }
}
