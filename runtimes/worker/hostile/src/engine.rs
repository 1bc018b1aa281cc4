//! An engine that makes attempts instead of running jobs.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, Outcome, Usage},
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_worker::{
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::acts::attempt;

/// Setting of a test's Cargo: the version of landlock's interface.
pub const ABI: &str = "landlock_abi";

/// Another engine until its sandbox is applied, and then the attacker's.
#[derive(Debug)]
pub struct TakenOver<E>(
    /// The other engine.
    pub E,
);

impl<E: EngineLoader> EngineLoader for TakenOver<E> {
    type Runtime = Attempts;

    fn kind(&self) -> RuntimeType {
        self.0.kind()
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        self.0.probe()
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), Failure> {
        self.0.prepare(launch)
    }

    fn profile(&self, launch: &Launch) -> Profile {
        let landlock_abi = launch.cargo.engine[ABI].as_u64().unwrap_or_default() as u32;
        Profile { landlock_abi, ..self.0.profile(launch) }
    }

    async fn load(self, _launch: Launch, _progress: LoadProgress) -> Result<Loaded<Attempts>, Failure> {
        Ok(Loaded { runtime: Attempts, version: String::new(), slots: 1, vram_mb: 0 })
    }
}

/// Makes the attempt that a job names.
#[derive(Debug)]
pub struct Attempts;

impl Runtime for Attempts {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Unknown("hostile".to_owned())
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        Ok(Probe::default())
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        let name = request.input["try"].as_str().unwrap_or_default().to_owned();
        let result = attempt(&name, &request.input, &context.scratch);
        context.events.token(result, 1);
        Outcome::Completed { usage: Usage::tokens(1, 1), output: None, finish_reason: None, stop_text: None }
    }
}
