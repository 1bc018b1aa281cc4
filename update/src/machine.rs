//! What an update needs of the machine that it runs on.

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use semver::Version;

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct MachineError {
    /// What was attempted.
    pub what: String,
    /// Why it failed.
    pub why: String,
}

/// The state of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Version of the agent that runs.
    pub version: Version,
    /// Whether it is registered with its coordinator.
    pub connected: bool,
    /// Running jobs.
    pub jobs: usize,
}

/// The machine, as an update uses it.
pub trait Machine {
    /// The installed version of the package.
    fn installed(&self) -> impl Future<Output = Result<Version, MachineError>>;
    /// The state of the agent; `None` if it does not answer.
    fn health(&self) -> impl Future<Output = Option<Health>>;
    /// Keeps the agent from accepting jobs for this time, beside what its owner ordered; zero ends that.
    fn hold(&self, time: Duration) -> impl Future<Output = Result<(), MachineError>>;
    /// Saves the installed package in `folder`, so that it can be restored.
    fn keep(&self, folder: &Path) -> impl Future<Output = Result<PathBuf, MachineError>>;
    /// Installs a package over another version, newer or older, and starts it.
    fn install(&self, package: &Path) -> impl Future<Output = Result<(), MachineError>>;
}
