//! The trait an engine implements.

use std::{collections::BTreeMap, future::Future};

use island_protocol::{
    cargo::RuntimeType,
    ids::AttemptKey,
    job::{Failure, Outcome},
};

use crate::job::{RunContext, RunRequest};

/// What an engine found it can do here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probe {
    /// Version of the engine underneath.
    pub version: String,
    /// Devices it can use, in its own words.
    pub devices: Vec<String>,
    /// What runs its models, where the engine has a choice: a name of [`island_protocol::host`].
    pub backend: Option<String>,
    /// Jobs it runs at once.
    pub slots: u32,
    /// Anything else worth showing to the owner.
    pub details: BTreeMap<String, String>,
}

/// Why an engine cannot be used here. A fact about the host, not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// For the owner: what is missing and what would help.
    pub reason: String,
}

/// One engine, shared by reference between its jobs; it holds no state of theirs.
///
/// The contract, which the conformance suite checks:
/// * it never blocks the executor: blocking work has its own thread;
/// * it ends within one step of its engine once [`RunContext::cancel`] is triggered;
/// * a dropped run leaves nothing that [`Runtime::reap`] would not find;
/// * it writes only inside [`RunContext::scratch`];
/// * what is warm is its own affair and never shows in results;
/// * while a job computes in silence its [`RunContext::work`] advances at least once a second, or it is taken for hung;
/// * a job that fails is an [`Outcome`], and the failure says whose fault it is.
pub trait Runtime: Send + Sync + 'static {
    /// Which engine this is.
    fn kind(&self) -> RuntimeType;

    /// Asked at start and on reload: what can it do here, or why nothing?
    fn probe(&self) -> impl Future<Output = Result<Probe, Unavailable>> + Send;

    /// Runs one job to its outcome. Cancel by the token, wait by awaiting, kill by dropping.
    fn run(&self, request: RunRequest, context: RunContext) -> impl Future<Output = Outcome> + Send;

    /// Quick, without I/O: does this request make sense for this engine at all?
    fn admit(&self, _request: &RunRequest) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes whatever bears our mark and belongs to none of `alive`.
    fn reap(&self, _alive: &[AttemptKey]) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Releases what outlives jobs: loaded models, pools.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
