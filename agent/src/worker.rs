//! A worker as the agent holds it: one task per worker reads its frames, writes its commands and judges its life.
//!
//! Ends of the task: the worker's process is gone (it says how in [`WorkerState::Gone`]), or the agent lets go of it
//! ([`Command::Detach`]) and the worker lives on.

pub mod stall;
mod task;

use std::{path::PathBuf, sync::Arc, time::Duration};

use island_daemon::latest::Latest;
use island_protocol::{
    event::{AttemptEvent, Numbered},
    host::SandboxReport,
    ids::{AttemptKey, InstanceId},
    job::{Failure, FailureCode},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    host::{self, Exit},
    launch::{EXIT_OUT_OF_MEMORY, EXIT_REFUSED, Launch},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::Instant,
};

use crate::attempt::handle::AttemptHandle;

pub use task::{WorkerTask, run};

/// Commands to the task of a worker.
#[derive(Debug)]
pub enum Command {
    /// Run an attempt.
    Run {
        /// Its attempt, for work seen.
        attempt: Arc<AttemptHandle>,
        /// Number of its first event.
        first_event: u64,
        /// What to run.
        request: Box<RunRequest>,
        /// Takes its events.
        sink: Sink,
    },
    /// Take up an attempt that the worker holds.
    Resume {
        /// Its attempt.
        attempt: Arc<AttemptHandle>,
        /// First event wanted.
        from: u64,
        /// Takes its events.
        sink: Sink,
    },
    /// End an attempt.
    Cancel(AttemptKey, Failure),
    /// Events below a number are spooled.
    Spooled(AttemptKey, u64),
    /// Drop the handle and sink of an attempt: its task takes no more events from this worker.
    Release(AttemptKey),
    /// Stop: once no attempt is left, or at once.
    Stop {
        /// At once.
        now: bool,
    },
    /// Kill, for this.
    Kill(WorkerExit),
    /// Let go of it; it lives on.
    Detach,
}

/// Where an attempt's events go. Closed when the worker is gone.
pub type Sink = mpsc::UnboundedSender<Vec<Numbered<AttemptEvent>>>;

/// Where a worker stands.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerState {
    /// Loading its model.
    Loading {
        /// Parts loaded.
        done: u64,
        /// All parts; 0 while not known.
        total: u64,
    },
    /// Taking jobs.
    Ready,
    /// Gone, and how.
    Gone(WorkerExit),
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerExit {
    /// Its model could not be loaded.
    LoadFailed(Failure),
    /// It was hung and killed.
    Stalled,
    /// It took more of a GPU than jobs may have there, and was killed.
    VramExceeded {
        /// What it took, megabytes.
        used_mb: u64,
    },
    /// It ended by itself.
    Exited(Exit),
    /// It was told to.
    Stopped,
}

impl WorkerExit {
    /// What this means for a job that was in it.
    pub fn failure(&self) -> Failure {
        let of_host = |code, message: &str| Failure::of_host(code, message);
        match self {
            Self::LoadFailed(failure) => failure.clone(),
            Self::Stalled => {
                of_host(FailureCode::RuntimeStalled, "the engine made no progress and was stopped")
            }
            Self::VramExceeded { used_mb } => of_host(
                FailureCode::OutOfMemory,
                &format!("the engine took {used_mb} MB of GPU memory, more than this Island has for it"),
            ),
            Self::Exited(Exit::Code(EXIT_OUT_OF_MEMORY)) => {
                of_host(FailureCode::OutOfMemory, "the engine ran out of memory")
            }
            Self::Exited(Exit::Code(EXIT_REFUSED)) => {
                of_host(FailureCode::RuntimeCrashed, "the engine's process refused to start")
            }
            Self::Exited(_) | Self::Stopped => {
                of_host(FailureCode::RuntimeCrashed, "the engine's process ended while the job ran")
            }
        }
    }

    /// Whether a fresh worker may do better.
    pub fn is_worth_a_retry(&self) -> bool {
        !matches!(self, Self::LoadFailed(_) | Self::VramExceeded { .. })
    }
}

/// What was measured of a worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerStats {
    /// Jobs in it or waiting for it.
    pub jobs: u32,
    /// Resident memory, megabytes.
    pub rss_mb: u64,
    /// GPU memory, megabytes.
    pub vram_mb: u64,
    /// Since when it is here.
    pub since: Instant,
    /// When it became idle.
    pub idle_since: Instant,
    /// What loading took.
    pub load: Duration,
}

/// A handle on a worker.
#[derive(Debug)]
pub struct WorkerHandle {
    /// Which one.
    pub instance: InstanceId,
    /// What was asked of it when it was started.
    pub launch: Launch,
    /// Its folder.
    pub dir: PathBuf,
    /// Its process, for logs.
    pub pid: u32,
    /// Free places; a place is held while a job is inside.
    pub slots: Arc<Semaphore>,
    commands: mpsc::UnboundedSender<Command>,
    state: watch::Receiver<WorkerState>,
    stats: Mutex<WorkerStats>,
    sandbox: Mutex<Option<SandboxReport>>,
}

impl WorkerHandle {
    /// Sends a command. Does nothing if the worker is gone.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Follows where it stands.
    pub fn state(&self) -> watch::Receiver<WorkerState> {
        self.state.clone()
    }

    /// Whether its process is gone.
    pub fn has_exited(&self) -> bool {
        matches!(self.state.latest(), WorkerState::Gone(_))
    }

    /// Whether it takes no more commands: it is gone, or was let go of.
    pub fn is_gone(&self) -> bool {
        self.has_exited() || self.commands.is_closed()
    }

    /// Whether it takes jobs.
    pub fn is_ready(&self) -> bool {
        self.state.latest() == WorkerState::Ready
    }

    /// What was measured.
    pub fn stats(&self) -> WorkerStats {
        *self.stats_mut()
    }

    /// The walls around it, once it has told.
    pub fn sandbox(&self) -> Option<SandboxReport> {
        self.sandbox.lock().clone()
    }

    /// How it ended; waits for that.
    pub async fn death(&self) -> WorkerExit {
        let mut state = self.state();
        let gone =
            state.wait_for(|state| matches!(state, WorkerState::Gone(_))).await.map(|state| state.clone());
        match gone {
            Ok(WorkerState::Gone(death)) => death,
            _ => WorkerExit::Stopped,
        }
    }

    /// Last lines of its log.
    pub fn log_tail(&self) -> String {
        host::stderr_tail(&self.dir, 2000)
    }

    fn stats_mut(&self) -> MutexGuard<'_, WorkerStats> {
        self.stats.lock()
    }

    fn set_sandbox(&self, report: SandboxReport) {
        *self.sandbox.lock() = Some(report);
    }
}

/// A job's claim on a worker, counted from the moment it waits for a slot.
#[derive(Debug)]
pub struct WorkerClaim(Arc<WorkerHandle>);

impl WorkerClaim {
    /// Counts a job in.
    pub fn new(worker: Arc<WorkerHandle>) -> Self {
        worker.stats_mut().jobs += 1;
        Self(worker)
    }

    /// The worker.
    pub fn worker(&self) -> &Arc<WorkerHandle> {
        &self.0
    }
}

impl Drop for WorkerClaim {
    fn drop(&mut self) {
        let mut stats = self.0.stats_mut();
        stats.jobs -= 1;
        stats.idle_since = Instant::now();
    }
}
