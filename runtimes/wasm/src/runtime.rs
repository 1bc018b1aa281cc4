//! The seam to the rest: each program runs on a thread of its own, as many at once as there are slots.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{
    Phase, Probe, RunContext, RunRequest, Runtime, Unavailable,
    lines::{Exit, Lines},
};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    drive::{Bounds, Left, drive},
    engine::Engines,
    guest::Means,
    program::Programs,
    stdio::Stdout,
    ticker::Ticker,
    verdict::{self, chain},
};

/// Name of the artifact that is the compiled program.
pub(crate) const MODEL: &str = "model";
/// Memory of a program whose Cargo names none, megabytes.
const USUAL_MEMORY_MB: u64 = 256;
/// Fuel of a metered program: its deadline ends it long before.
const FULL_TANK: u64 = u64::MAX;

/// wasmtime, ready to run compiled programs.
pub struct Wasm {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    slots: u32,
    /// The threads that run programs.
    threads: TaskTracker,
}

struct Shared {
    engines: Engines,
    programs: Programs,
    ticker: Ticker,
}

impl std::fmt::Debug for Wasm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wasm").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Wasm {
    /// An engine that runs `slots` programs at once.
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

    /// Version of wasmtime and of its settings.
    pub fn version(&self) -> String {
        self.shared.engines.version()
    }
}

/// Whether a Cargo is charged by the instructions it executes.
pub fn is_metered(cargo: &CargoSpec) -> bool {
    cargo.engine.get("fuel").and_then(serde_json::Value::as_bool).unwrap_or(false)
}

/// What wasmtime offers here.
pub fn probe() -> Result<Probe, Unavailable> {
    let engines = Engines::new(1).map_err(|error| Unavailable { reason: chain(&error) })?;
    Ok(offer(&engines))
}

fn offer(engines: &Engines) -> Probe {
    let devices = vec![std::env::consts::ARCH.to_owned()];
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
        Job::program(request).map(drop)
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        context.work.enter(Phase::Wait);
        let program = match Job::program(&request) {
            Ok(program) => program,
            Err(failure) => return Outcome::failed(failure),
        };
        let place = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Outcome::failed(cancelled()),
            place = Arc::clone(&self.places).acquire_owned() => place,
        };
        // A run that is dropped stops its program too.
        let cancel = context.cancel.child_token();
        let _stop = cancel.clone().drop_guard();
        let job = Job { program, request, context, cancel };
        let shared = Arc::clone(&self.shared);
        let thread = self.threads.spawn_blocking(move || {
            let _place = place;
            job.run(&shared)
        });
        thread.await.unwrap_or_else(|_| {
            Outcome::failed(Failure::of_host(
                FailureCode::RuntimeCrashed,
                "wasmtime broke down while running the program",
            ))
        })
    }

    async fn shutdown(&self) {
        self.threads.close();
        self.threads.wait().await;
    }
}

/// One job on its thread.
struct Job {
    program: PathBuf,
    request: RunRequest,
    context: RunContext,
    cancel: CancellationToken,
}

impl Job {
    fn program(request: &RunRequest) -> Result<PathBuf, Failure> {
        request
            .artifacts
            .get(MODEL)
            .or_else(|| request.artifacts.values().next())
            .cloned()
            .ok_or_else(|| Failure::of_job(FailureCode::ModelUnavailable, "the Cargo names no program"))
    }

    fn run(self, shared: &Shared) -> Outcome {
        let Self { program, request, context, cancel } = self;
        let metered = is_metered(&request.cargo);
        context.work.enter(Phase::Load);
        let program = match shared.programs.get(&program, metered) {
            Ok(program) => program,
            Err(failure) => return Outcome::failed(failure),
        };
        let limits = request.cargo.limits;
        let lines = Lines::new(context.events, context.log.clone(), limits.max_output_bytes);
        let stdout = Stdout::new(lines, context.work.clone());
        let means = Means {
            input: Bytes::from(request.input.to_string()),
            stdout: stdout.clone(),
            log: context.log,
            memory_bytes: memory_bytes(&request.cargo),
            metered,
        };
        let mut store = means.store(shared.engines.get(metered));
        if metered {
            store.set_fuel(FULL_TANK).expect("the engine of metered programs has a tank");
        }
        context.work.enter(Phase::Run);
        let _running = shared.ticker.running();
        let deadline = Instant::now() + Duration::from_secs(limits.timeout_s);
        let exit = match drive(program.run(&mut store), &Bounds { deadline, cancel, work: context.work }) {
            Ok(ended) => verdict::exit(ended),
            Err(Left::Cancelled) => Exit::Failed(cancelled()),
            Err(Left::Deadline) => Exit::Failed(late(limits.timeout_s)),
        };
        let fuel = metered.then(|| FULL_TANK - store.get_fuel().unwrap_or(FULL_TANK));
        drop(store);
        let mut outcome = stdout.finish(exit);
        let (Outcome::Completed { usage, .. } | Outcome::Failed { usage, .. }) = &mut outcome;
        usage.fuel = fuel;
        outcome
    }
}

fn memory_bytes(cargo: &CargoSpec) -> usize {
    let megabytes = if cargo.required_ram_mb == 0 { USUAL_MEMORY_MB } else { cargo.required_ram_mb };
    usize::try_from(megabytes.saturating_mul(1 << 20)).unwrap_or(usize::MAX)
}

fn cancelled() -> Failure {
    Failure::interrupted(FailureCode::CancelledByUser, "the run was cancelled")
}

fn late(seconds: u64) -> Failure {
    Failure::of_job(FailureCode::DeadlineExceeded, format!("the program ran for more than {seconds} s"))
}
