//! The order of an update: nothing is installed while jobs run, and what does not come up is taken back.

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

/// Between two looks at the agent.
const LOOK: Duration = Duration::from_secs(1);

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For running jobs to end.
    pub drain: Duration,
    /// For the new version to come up.
    pub start: Duration,
}

/// What became of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The new version runs.
    Done(Version),
    /// Jobs ran for too long: another time.
    Busy(usize),
    /// It did not come up; the former version is back.
    TakenBack(Version),
}

/// An update that went wrong in a way that nobody foresaw.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The record.
    #[error("keep the record in {0}")]
    Record(PathBuf, #[source] io::Error),
    /// Neither the new nor the former version runs.
    #[error("version {0} did not come up, and what was there before does not either")]
    Lost(Version),
}

/// Installs `package` of `version`. `folder` keeps the record and the former package.
pub async fn apply(
    machine: &impl Machine,
    folder: &Path,
    mut record: Record,
    version: Version,
    package: &Path,
    patience: Patience,
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

/// Ends an installation that began, maybe in an earlier run: either the new version comes up, or the former one is put back.
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
    tracing::error!(%version, "it does not come up: the former version is put back");
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

/// Takes work again, unless its owner had it take none before.
async fn resume(machine: &impl Machine, held: bool) -> Result<(), MachineError> {
    if held { Ok(()) } else { machine.resume().await }
}

/// Waits until no job runs; some number: so many still do.
async fn quiet(machine: &impl Machine, patience: Duration) -> Result<Option<usize>, ApplyError> {
    let deadline = Instant::now() + patience;
    if machine.health().await.is_some() {
        machine.drain().await?;
    }
    loop {
        // An agent that does not answer runs nothing that an update could disturb.
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

/// Whether the agent answers, with this version where one is named, and as connected as it was.
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
