//! The trait an engine implements.

use std::{collections::BTreeMap, future::Future};

use island_protocol::{
    cargo::RuntimeType,
    host::Device,
    job::{Failure, Outcome},
};

use crate::job::{RunContext, RunRequest};

/// What an engine supports on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probe {
    /// Version of the underlying library.
    pub version: String,
    /// Devices on which it can run models.
    pub devices: Vec<Device>,
    /// The back end that runs its models, if the engine has several: a name of [`island_protocol::host`].
    pub backend: Option<String>,
    /// Jobs it runs at once.
    pub slots: u32,
    /// Further facts for the owner.
    pub details: BTreeMap<String, String>,
    /// What it can do that earlier versions could not: names of [`island_protocol::host`].
    pub features: Vec<String>,
}

/// Why an engine cannot be used on this machine. A fact, not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// For the owner: what is missing and how to add it.
    pub reason: String,
}

/// One engine, shared by its jobs; it holds no state of theirs.
///
/// The contract, which the conformance suite checks:
/// * it never blocks the executor: blocking work runs in its own thread;
/// * it ends within one step of its engine once [`RunContext::cancel`] is triggered;
/// * after a run is dropped, nothing remains of it that the next job could notice;
/// * it writes only inside [`RunContext::scratch`];
/// * state of earlier jobs never changes results;
/// * while a job computes without output its [`RunContext::work`] advances at least once a second, otherwise it counts as stalled;
/// * a failed job is an [`Outcome`] whose failure names the side at fault.
pub trait Runtime: Send + Sync + 'static {
    /// The kind of this engine.
    fn kind(&self) -> RuntimeType;

    /// Called at start and on reload: what the engine supports here, or why it cannot be used.
    fn probe(&self) -> impl Future<Output = Result<Probe, Unavailable>> + Send;

    /// Runs one job to its outcome. Cancel with the token, kill by dropping.
    fn run(&self, request: RunRequest, context: RunContext) -> impl Future<Output = Outcome> + Send;

    /// Checks a request quickly and without I/O.
    fn admit(&self, _request: &RunRequest) -> Result<(), Failure> {
        Ok(())
    }

    /// Releases what outlives jobs: loaded models, pools.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
