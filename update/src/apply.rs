//! The order of an update: nothing is installed while jobs run, and a version that does not start is reverted.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use semver::Version;
use tokio::time::{Instant, sleep};

use crate::{
    machine::{Machine, MachineError},
    record::{Pending, Record},
};

/// Time between two checks of the agent.
const LOOK: Duration = Duration::from_secs(1);

/// Time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for running jobs to end.
    pub drain: Duration,
    /// Time for the new version to start.
    pub start: Duration,
}

/// Result of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The new version runs.
    Done(Version),
    /// Jobs ran for too long; the next run tries again.
    Busy(usize),
    /// It did not start; the former version is restored.
    TakenBack(Version),
}

/// An update that failed in an unexpected way.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The record cannot be written.
    #[error("write the record in {0}")]
    Record(PathBuf, #[source] io::Error),
    /// Neither the new nor the former version starts.
    #[error("version {0} did not start, and the former version does not start either")]
    Lost(Version),
}

/// Installs `package` of `version`. `folder` contains the record and the former package.
pub async fn apply(
    machine: &impl Machine,
    folder: &Path,
    mut record: Record,
    version: Version,
    package: &Path,
    patience: Timeouts,
) -> Result<Applied, ApplyError> {
    let before = machine.health().await;
    let held = before.as_ref().is_some_and(|health| health.held);
    if let Some(jobs) = quiet(machine, patience.drain).await? {
        resume(machine, held).await?;
        return Ok(Applied::Busy(jobs));
    }
    let previous = match machine.keep(folder).await {
        Ok(previous) => previous,
        Err(error) => {
            resume(machine, held).await?;
            return Err(error.into());
        }
    };
    let was_connected = before.is_some_and(|health| health.connected);
    record.pending = Some(Pending { version, previous, was_connected, held });
    write(&record, folder)?;
    let installed = machine.install(package).await;
    if let Err(error) = &installed {
        tracing::error!(%error, "the package was not installed");
    }
    settle(machine, folder, record, patience.start).await
}

/// Completes an installation, possibly of an earlier run: either the new version starts, or the former one is restored.
pub async fn settle(
    machine: &impl Machine,
    folder: &Path,
    mut record: Record,
    patience: Duration,
) -> Result<Applied, ApplyError> {
    let Some(pending) = record.pending.take() else { return Ok(Applied::Done(machine.installed().await?)) };
    let Pending { version, previous, was_connected, held } = pending;
    if is_up(machine, Some(&version), was_connected, patience).await {
        write(&record, folder)?;
        let _ = fs::remove_file(&previous);
        resume(machine, held).await?;
        return Ok(Applied::Done(version));
    }
    tracing::error!(%version, "the new version does not start: restoring the former version");
    machine.install(&previous).await?;
    record.failed.insert(version.clone());
    write(&record, folder)?;
    if is_up(machine, None, was_connected, patience).await {
        let _ = fs::remove_file(&previous);
        resume(machine, held).await?;
        Ok(Applied::TakenBack(version))
    } else {
        Err(ApplyError::Lost(version))
    }
}

/// Ends the drain, unless the owner had paused or drained the agent before.
async fn resume(machine: &impl Machine, held: bool) -> Result<(), MachineError> {
    if held { Ok(()) } else { machine.resume().await }
}

/// Waits until no job runs; returns the number of jobs that still run after the time limit.
async fn quiet(machine: &impl Machine, patience: Duration) -> Result<Option<usize>, ApplyError> {
    let deadline = Instant::now() + patience;
    if machine.health().await.is_some() {
        machine.drain().await?;
    }
    loop {
        // An agent that does not answer runs no jobs that an update could interrupt.
        let jobs = machine.health().await.map_or(0, |health| health.jobs);
        if jobs == 0 {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            return Ok(Some(jobs));
        }
        sleep(LOOK).await;
    }
}

/// Whether the agent answers, with this version if one is given, and is connected if it was before.
async fn is_up(
    machine: &impl Machine,
    version: Option<&Version>,
    connected: bool,
    patience: Duration,
) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let health = machine.health().await;
        let good = |health: &crate::machine::Health| {
            version.is_none_or(|version| health.version == *version) && (health.connected || !connected)
        };
        if health.as_ref().is_some_and(good) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK).await;
    }
}

fn write(record: &Record, folder: &Path) -> Result<(), ApplyError> {
    record.write(folder).map_err(|error| ApplyError::Record(folder.to_owned(), error))
}
