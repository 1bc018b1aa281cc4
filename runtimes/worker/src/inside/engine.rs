//! What a worker binary brings: an engine that can be loaded.

use std::path::Path;

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Runtime, Unavailable};
use tokio::sync::watch;

use super::state::LoadState;
use crate::{launch::Launch, lockdown::Profile};

/// An engine before its model is loaded.
pub trait EngineLoader: Send + 'static {
    /// What it becomes.
    type Runtime: Runtime;

    /// Which engine it is.
    fn kind(&self) -> RuntimeType;

    /// What it can do on this machine.
    fn probe(&mut self) -> Result<Probe, Unavailable>;

    /// Before lock-down, in a process with one thread: opens devices, loads libraries. Reads nothing that strangers made.
    fn prepare(&mut self, _launch: &Launch) -> Result<(), Failure> {
        Ok(())
    }

    /// What it must still reach once it is locked in, besides its artifacts and its scratch folder.
    fn profile(&self, _launch: &Launch) -> Profile {
        Profile::default()
    }

    /// Makes of a Cargo's file, `launch.artifacts`, what its runs read instead, and writes it to `into`: compiled code, an
    /// optimised graph. In a process of its own, inside the walls, within its limits; the result is kept by file and engine version.
    fn derive(self, _launch: &Launch, _into: &Path) -> Result<(), Failure>
    where
        Self: Sized,
    {
        Err(Failure::of_host(FailureCode::InternalError, "this engine derives nothing"))
    }

    /// Loads the model, inside the walls. Blocking work has its own thread.
    fn load(
        self,
        launch: Launch,
        progress: LoadProgress,
    ) -> impl Future<Output = Result<Loaded<Self::Runtime>, Failure>> + Send;
}

/// A loaded engine.
#[derive(Debug)]
pub struct Loaded<R> {
    /// Ready to run jobs.
    pub runtime: R,
    /// Version of the engine underneath.
    pub version: String,
    /// Jobs at once.
    pub slots: u32,
    /// Memory it allocated on GPUs, megabytes.
    pub vram_mb: u64,
}

/// Tells the agent how far loading is. Cheap, and callable from any thread.
#[derive(Debug, Clone)]
pub struct LoadProgress(pub(super) watch::Sender<LoadState>);

impl LoadProgress {
    /// `done` of `total` parts are loaded.
    pub fn report(&self, done: u64, total: u64) {
        self.0.send_if_modified(|state| {
            let next = LoadState::Loading { done, total };
            let changed = *state != next;
            *state = next;
            changed
        });
    }
}
