//! What an update needs of the machine it runs on.

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use semver::Version;

/// Something the machine could not do.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct MachineError {
    /// What was attempted.
    pub what: String,
    /// What came of it.
    pub why: String,
}

/// How the Island is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Version of the agent that runs.
    pub version: Version,
    /// Whether it is registered with its coordinator.
    pub connected: bool,
    /// Jobs that run.
    pub jobs: usize,
    /// Whether it takes no new work because its owner said so.
    pub held: bool,
}

/// The machine, as an update uses it.
pub trait Machine {
    /// Version of the package that is installed.
    fn installed(&self) -> impl Future<Output = Result<Version, MachineError>>;
    /// How the agent is; none: it does not answer.
    fn health(&self) -> impl Future<Output = Option<Health>>;
    /// Takes no new work.
    fn drain(&self) -> impl Future<Output = Result<(), MachineError>>;
    /// Takes work again.
    fn resume(&self) -> impl Future<Output = Result<(), MachineError>>;
    /// Keeps what is installed as a package in `folder`, to come back to.
    fn keep(&self, folder: &Path) -> impl Future<Output = Result<PathBuf, MachineError>>;
    /// Installs a package over what is there, forwards or backwards, and starts it.
    fn install(&self, package: &Path) -> impl Future<Output = Result<(), MachineError>>;
}
