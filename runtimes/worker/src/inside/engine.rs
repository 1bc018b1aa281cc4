//! What a worker binary provides: an engine that can be loaded.

use std::path::Path;

use island_protocol::{
    cargo::RuntimeType,
    ids::InstanceId,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Runtime, Unavailable};
use tokio::sync::watch;

use super::state::LoadState;
use crate::{host::Orphans, launch::Launch, lockdown::Profile};

/// An engine before its model is loaded.
pub trait EngineLoader: Send + 'static {
    /// The loaded engine.
    type Runtime: Runtime;

    /// Its kind.
    fn kind(&self) -> RuntimeType;

    /// What it supports on this machine.
    fn probe(&mut self) -> Result<Probe, Unavailable>;

    /// Before the sandbox is applied, in a process with one thread: loads libraries. Starts no thread and no driver, and reads nothing untrusted.
    fn prepare(&mut self, _launch: &Launch) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes what workers that have ended left outside their processes; `workers` is the folder that contains the workers' folders. Runs in
    /// a process of its own.
    fn reap(&mut self, _workers: &Path, _orphans: &Orphans) -> Result<(), Unavailable> {
        Ok(())
    }

    /// Removes what this worker created outside its process and has existed for longer than any job takes, while it runs. In a process of its
    /// own, too.
    fn reap_expired(&mut self, _workers: &Path, _worker: InstanceId) -> Result<(), Unavailable> {
        Ok(())
    }

    /// What it must be able to access in the sandbox, in addition to its artifacts and its scratch folder.
    fn profile(&self, _launch: &Launch) -> Profile {
        Profile::default()
    }

    /// Derives from a Cargo's file, `launch.artifacts`, the file that jobs read instead, and writes it to `into`: compiled code, an
    /// optimized graph. Runs in a separate process in the sandbox, within its limits; the result is stored by file and engine version.
    fn derive(self, _launch: &Launch, _into: &Path) -> Result<(), Failure>
    where
        Self: Sized,
    {
        Err(Failure::of_host(FailureCode::InternalError, "this engine derives nothing"))
    }

    /// Loads the model in the sandbox. Blocking work needs its own thread.
    fn load(
        self,
        launch: Launch,
        progress: LoadProgress,
    ) -> impl Future<Output = Result<Loaded<Self::Runtime>, Failure>> + Send;
}

/// A loaded engine.
#[derive(Debug)]
pub struct Loaded<R> {
    /// Runs jobs.
    pub runtime: R,
    /// Version of the underlying library.
    pub version: String,
    /// Jobs at once.
    pub slots: u32,
    /// Memory it allocated on GPUs, megabytes.
    pub vram_mb: u64,
}

/// Reports the progress of loading. Cheap, from any thread.
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
