//! The engine interface, and where jobs run. Each job has a thread, as many at once as there are slots; but a job that is alone or whose
//! program is known to be quick gets its first time slice on the caller's thread, where most of them complete.

use std::sync::Arc;

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::Device,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{Phase, Probe, RunContext, RunRequest, Runtime, Unavailable};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{
    engine::Engines,
    job::{self, Job},
    program::{Mapped, Programs},
    ticker::Ticker,
    verdict::chain,
};

/// Name of the artifact that is the compiled program.
pub(crate) const MODEL: &str = "model";

/// wasmtime, ready to run compiled programs.
pub struct Wasm {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    slots: u32,
    /// The threads that run programs.
    threads: TaskTracker,
}

/// What all jobs use.
pub(crate) struct Shared {
    pub(crate) engines: Engines,
    pub(crate) programs: Programs,
    pub(crate) ticker: Ticker,
}

impl std::fmt::Debug for Wasm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wasm").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Wasm {
    /// Creates an engine that runs `slots` programs at once.
    pub fn new(slots: u32) -> Result<Self, Failure> {
        let slots = slots.max(1);
        let unusable =
            |why: String| Failure::of_host(FailureCode::InternalError, format!("start wasmtime: {why}"));
        let engines = Engines::new(slots).map_err(|error| unusable(chain(&error)))?;
        let programs = Programs::new(&engines).map_err(|error| unusable(chain(&error)))?;
        let clocked = engines.clone();
        let ticker = Ticker::start(move || clocked.tick()).map_err(|error| unusable(error.to_string()))?;
        let places = Arc::new(Semaphore::new(slots as usize));
        Ok(Self {
            shared: Arc::new(Shared { engines, programs, ticker }),
            places,
            slots,
            threads: TaskTracker::new(),
        })
    }

    /// Jobs at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The program of a job that may start on the caller's thread, if it is mapped: no other job waits, or not for long.
    fn at_hand(&self, job: &Job) -> Option<Arc<Mapped>> {
        let program = self.shared.programs.find(&job.program, job.is_metered())?;
        let others = self.slots as usize - 1 - self.places.available_permits();
        (others == 0 || program.is_quick()).then_some(program)
    }

    /// Version of wasmtime and of its settings.
    pub fn version(&self) -> String {
        self.shared.engines.version()
    }
}

/// Whether a Cargo is charged by executed instructions.
pub fn is_metered(cargo: &CargoSpec) -> bool {
    cargo.engine.get("fuel").and_then(serde_json::Value::as_bool).unwrap_or(false)
}

/// The features of wasmtime.
pub fn probe() -> Result<Probe, Unavailable> {
    let engines = Engines::new(1).map_err(|error| Unavailable { reason: chain(&error) })?;
    Ok(offer(&engines))
}

fn offer(engines: &Engines) -> Probe {
    let devices = vec![Device::cpu()];
    Probe { version: engines.version(), devices, ..Probe::default() }
}

impl Runtime for Wasm {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Wasm
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        Ok(Probe { slots: self.slots, ..offer(&self.shared.engines) })
    }

    fn admit(&self, request: &RunRequest) -> Result<(), Failure> {
        job::program(request).map(drop)
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        context.work.enter(Phase::Wait);
        let program = match job::program(&request) {
            Ok(program) => program.to_owned(),
            Err(failure) => return Outcome::failed(failure),
        };
        let place = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Outcome::failed(job::cancelled()),
            place = Arc::clone(&self.places).acquire_owned() => place,
        };
        // Jobs that arrived with this one take their slots first, so that none counts as alone.
        tokio::task::yield_now().await;
        // A dropped run stops its program.
        let cancel = context.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let job = Job { program, request, context, cancel };
        let rest: Box<dyn FnOnce(&Shared) -> Outcome + Send> = match self.at_hand(&job) {
            None => Box::new(|shared| job.run(shared)),
            Some(program) => match job.start(program, &self.shared).run_a_little() {
                Ok(outcome) => return outcome,
                Err(playing) => Box::new(|_| playing.run()),
            },
        };
        let shared = Arc::clone(&self.shared);
        let thread = self.threads.spawn_blocking(move || {
            let _place = place;
            rest(&shared)
        });
        thread.await.unwrap_or_else(|_| {
            let message = "wasmtime failed while running the program";
            Outcome::failed(Failure::of_host(FailureCode::RuntimeCrashed, message))
        })
    }

    async fn shutdown(&self) {
        self.threads.close();
        self.threads.wait().await;
    }
}
