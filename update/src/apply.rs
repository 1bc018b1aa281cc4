//! The order of an update: nothing is installed while jobs run, and a version that does not start is reverted.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use semver::Version;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    machine::{Health, Machine, MachineError},
    record::{Pending, Record},
};

/// Time between two checks of the agent.
const LOOK: Duration = Duration::from_secs(1);
/// Time for which the agent is held at once; renewed while jobs end. An updater that was killed holds it no longer.
const HOLD: Duration = Duration::from_mins(2);
/// Time for one answer of the agent. A version that hangs accepts connections and does not answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Number of successive queries without an answer after which an agent counts as one that hangs, whatever the time for running jobs.
const SILENT_QUERIES: u32 = 4;
/// Time for one operation of the package manager. A script of a package can wait for something that never happens.
const OPERATION: Duration = Duration::from_hours(1);
/// Time after which an update no longer waits for jobs: a job that never ends must not keep a version with known faults.
const LONGEST_WAIT_S: i64 = 7 * 24 * 3600;

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
    /// It was not installed, or nothing could be registered meanwhile; the former version runs, and the next run tries again.
    Postponed(Version),
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

/// Installs `package` of `version`. `folder` contains the record and the former package; `now` is in seconds since 1970.
pub async fn apply(
    machine: &impl Machine,
    folder: &Path,
    mut record: Record,
    version: Version,
    package: &Path,
    patience: Timeouts,
    now: i64,
) -> Result<Applied, ApplyError> {
    let before = health(machine).await;
    let jobs = quiet(machine, patience.drain).await?;
    let since = *record.busy_since.get_or_insert(now);
    if jobs == 0 || now - since >= LONGEST_WAIT_S {
        record.busy_since = None;
    } else {
        write(&record, folder)?;
        release(machine).await;
        return Ok(Applied::Busy(jobs));
    }
    let kept = within(OPERATION, "repack the installed package", machine.keep(folder)).await;
    let previous = match kept {
        Ok(previous) => previous,
        Err(error) => {
            release(machine).await;
            return Err(error.into());
        }
    };
    let was_connected = before.is_some_and(|health| health.connected);
    record.pending = Some(Pending { version, previous, was_connected });
    write(&record, folder)?;
    let installed = install(machine, package).await;
    if let Err(error) = &installed {
        tracing::error!(%error, "the package was not installed");
    }
    settle(machine, folder, record, patience.start).await
}

/// Completes an installation, possibly of an earlier run: either the new version starts, or the former one is restored. Only a version that
/// was installed and did not start, although the former one does, is never tried again.
pub async fn settle(
    machine: &impl Machine,
    folder: &Path,
    mut record: Record,
    patience: Duration,
) -> Result<Applied, ApplyError> {
    let Some(pending) = record.pending.take() else { return Ok(Applied::Done(machine.installed().await?)) };
    let Pending { version, previous, was_connected } = pending;
    let was_installed = machine.installed().await.is_ok_and(|installed| installed == version);
    if was_installed && is_up(machine, Some(&version), was_connected, patience).await {
        write(&record, folder)?;
        let _ = fs::remove_file(&previous);
        release(machine).await;
        return Ok(Applied::Done(version));
    }
    let starts_without = |connected| is_up(machine, None, connected, patience);
    if !was_installed && starts_without(false).await {
        // Another program used the package manager, or the machine was switched off before.
        write(&record, folder)?;
        let _ = fs::remove_file(&previous);
        release(machine).await;
        return Ok(Applied::Postponed(version));
    }
    tracing::error!(%version, "the new version does not start: restoring the former version");
    install(machine, &previous).await?;
    let is_its_fault = was_installed && starts_without(was_connected).await;
    if is_its_fault {
        record.failed.insert(version.clone());
    }
    write(&record, folder)?;
    if is_its_fault || is_up(machine, None, false, LOOK).await {
        let _ = fs::remove_file(&previous);
        release(machine).await;
        return Ok(if is_its_fault { Applied::TakenBack(version) } else { Applied::Postponed(version) });
    }
    Err(ApplyError::Lost(version))
}

/// The state of the agent; `None` if it does not answer in time.
async fn health(machine: &impl Machine) -> Option<Health> {
    timeout(ANSWER, machine.health()).await.ok().flatten()
}

async fn hold(machine: &impl Machine, time: Duration) -> Result<(), MachineError> {
    within(ANSWER, "hold the agent", machine.hold(time)).await
}

async fn install(machine: &impl Machine, package: &Path) -> Result<(), MachineError> {
    within(OPERATION, &format!("install {}", package.display()), machine.install(package)).await
}

/// The result of an operation; an error if it takes longer than `limit`.
async fn within<T>(
    limit: Duration,
    what: &str,
    operation: impl Future<Output = Result<T, MachineError>>,
) -> Result<T, MachineError> {
    timeout(limit, operation).await.unwrap_or_else(|_| {
        let why = format!("it did not end within {} s", limit.as_secs());
        Err(MachineError { what: what.to_owned(), why })
    })
}

/// Ends the hold. A new agent was never held, and a hold expires, so a failure changes nothing.
async fn release(machine: &impl Machine) {
    if let Err(error) = hold(machine, Duration::ZERO).await {
        tracing::warn!(%error, "the agent is held for two minutes more");
    }
}

/// Waits until no job runs; returns the number of jobs that still run after the time limit.
async fn quiet(machine: &impl Machine, patience: Duration) -> Result<usize, ApplyError> {
    let deadline = Instant::now() + patience;
    let (mut known, mut silent) = (0, 0);
    loop {
        match jobs_while_held(machine).await? {
            Some(0) => return Ok(0),
            Some(jobs) => (known, silent) = (jobs, 0),
            // An agent that answers late, because its machine is busy, may run jobs; one that hangs does so until the time limit.
            None => silent += 1,
        }
        let is_clear = silent == 0 || silent >= SILENT_QUERIES;
        if is_clear && Instant::now() >= deadline {
            return Ok(known);
        }
        sleep(LOOK).await;
    }
}

/// Holds the agent, and returns the number of its jobs; `None` if it does not answer in time.
async fn jobs_while_held(machine: &impl Machine) -> Result<Option<usize>, ApplyError> {
    let Ok(before) = timeout(ANSWER, machine.health()).await else { return Ok(None) };
    // An agent that is not there runs no jobs that an update could interrupt.
    let Some(before) = before else { return Ok(Some(0)) };
    hold(machine, HOLD).await?;
    // Again, because a job may have been accepted before the hold.
    let after = timeout(ANSWER, machine.health()).await;
    Ok(after.ok().map(|after| after.map_or(before.jobs, |health| health.jobs)))
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
        let good = |health: &Health| {
            version.is_none_or(|version| health.version == *version) && (health.connected || !connected)
        };
        if health(machine).await.as_ref().is_some_and(good) {
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
