//! A worker as the agent sees it: one task per worker reads its frames, writes its commands and detects stalls.
//!
//! The task ends when the process has ended (see [`WorkerState::Gone`]), or when the agent detaches from it ([`Command::Detach`]) and the
//! worker continues to run.

mod reports;
pub mod stall;
mod task;
mod turns;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use island_daemon::latest::Latest;
use island_protocol::{
    cargo::CargoSpec,
    event::{AttemptEvent, Numbered},
    host::SandboxReport,
    ids::{AttemptKey, InstanceId},
    job::{Failure, FailureCode, Fault},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    host::{self, Exit},
    launch::{EXIT_OUT_OF_MEMORY, EXIT_REFUSED, Launch},
    lockdown::WorkerMemory,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::attempt::handle::AttemptHandle;

pub use task::{WorkerTask, run};

/// Time to wait for the end of a worker that was killed. A process that hangs in a driver ends only when the driver lets it, and nothing else may
/// wait for that.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(2);

/// Commands to the task of a worker.
#[derive(Debug)]
pub enum Command {
    /// Run an attempt.
    Run {
        /// Its attempt, for counting work.
        attempt: Arc<AttemptHandle>,
        /// Number of its first event.
        first_event: u64,
        /// The assignment.
        request: Box<RunRequest>,
        /// Whether the worker reports the steps of the run.
        reports_steps: bool,
        /// Receives its events.
        sink: Sink,
    },
    /// Adopt an attempt that the worker holds.
    Resume {
        /// Its attempt.
        attempt: Arc<AttemptHandle>,
        /// Number of the first event to send.
        from: u64,
        /// Receives its events.
        sink: Sink,
    },
    /// Cancel an attempt.
    Cancel(AttemptKey, Failure),
    /// Acknowledge events below a number: they are spooled.
    Spooled(AttemptKey, u64),
    /// Drop the handle and sink of an attempt: its task receives no more events from this worker.
    Release(AttemptKey),
    /// Stop when no attempt is left, or at once.
    Stop {
        /// At once.
        now: bool,
    },
    /// Kill it for this reason.
    Kill(WorkerExit),
    /// Detach from it; it continues to run.
    Detach,
}

/// Receives an attempt's events. Closed when the worker has ended.
pub type Sink = mpsc::UnboundedSender<Vec<Numbered<AttemptEvent>>>;

/// The state of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerState {
    /// Loading its model.
    Loading {
        /// Loaded parts.
        done: u64,
        /// Total parts; 0 if unknown.
        total: u64,
    },
    /// Accepting jobs.
    Ready,
    /// Its process has ended.
    Gone(WorkerExit),
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerExit {
    /// Its model could not be loaded.
    LoadFailed(Failure),
    /// It stalled and was killed.
    Stalled,
    /// It used more memory of a GPU than jobs may, and was killed.
    VramExceeded {
        /// Memory that it used, megabytes.
        used_mb: u64,
    },
    /// It allocated more memory than it may, and was killed because it did not end itself.
    MemoryExceeded {
        /// Memory that it allocated, megabytes.
        used_mb: u64,
    },
    /// It sent more output than its job may have, and was killed.
    OutputExceeded,
    /// It sent what no engine's process sends, and was killed.
    ProtocolViolated,
    /// It wrote more scratch files than jobs may, and was killed.
    ScratchExceeded,
    /// It started more threads than an engine needs, and was killed.
    ThreadsExceeded,
    /// It exited without a command.
    Exited(Exit),
    /// It was stopped.
    Stopped,
}

impl WorkerExit {
    /// Converts this into the failure of a job that ran in it.
    pub fn failure(&self) -> Failure {
        let of_host = |code, message: &str| Failure::of_host(code, message);
        match self {
            Self::LoadFailed(failure) => failure.clone(),
            Self::Stalled => {
                of_host(FailureCode::RuntimeStalled, "the engine made no progress and was stopped")
            }
            Self::VramExceeded { used_mb } => of_host(
                FailureCode::OutOfMemory,
                &format!("the engine used {used_mb} MB of GPU memory, more than this Island allows"),
            ),
            Self::Exited(Exit::Code(EXIT_OUT_OF_MEMORY)) | Self::MemoryExceeded { .. } => {
                of_host(FailureCode::OutOfMemory, "the engine ran out of memory")
            }
            Self::OutputExceeded => {
                of_host(FailureCode::RuntimeCrashed, "the engine sent more output than the job may have")
            }
            Self::ProtocolViolated => {
                of_host(FailureCode::RuntimeCrashed, "the engine's process sent invalid messages")
            }
            Self::ScratchExceeded => {
                of_host(FailureCode::DiskFull, "the engine wrote more files than this Island allows")
            }
            Self::ThreadsExceeded => of_host(
                FailureCode::RuntimeCrashed,
                "the engine started more threads than this Island allows",
            ),
            Self::Exited(Exit::Code(EXIT_REFUSED)) => {
                of_host(FailureCode::RuntimeCrashed, "the engine's process refused to start")
            }
            Self::Exited(_) | Self::Stopped => {
                of_host(FailureCode::RuntimeCrashed, "the engine's process ended while the job ran")
            }
        }
    }

    /// Whether a driver may be the reason, if the worker had a GPU: it could not open the GPU, or it crashed.
    pub fn may_be_of_a_driver(&self) -> bool {
        match self {
            Self::LoadFailed(failure) => {
                let codes = [FailureCode::InternalError, FailureCode::RuntimeCrashed];
                failure.fault == Fault::Host && codes.contains(&failure.code)
            }
            Self::Exited(Exit::Code(code)) => ![0, EXIT_OUT_OF_MEMORY, EXIT_REFUSED].contains(code),
            Self::Exited(Exit::Signal(_)) | Self::Stalled => true,
            _ => false,
        }
    }

    /// Whether it may be the fault of this machine. A process that breaks the limits of its sandbox or the protocol was probably taken over by
    /// a job.
    pub fn may_be_of_this_island(&self) -> bool {
        match self {
            Self::Exited(Exit::Code(code)) => ![0, EXIT_REFUSED].contains(code),
            other => other.may_be_of_a_driver(),
        }
    }

    /// Whether a new worker may succeed.
    pub fn is_worth_a_retry(&self) -> bool {
        let is_final = matches!(
            self,
            Self::LoadFailed(_)
                | Self::VramExceeded { .. }
                | Self::MemoryExceeded { .. }
                | Self::OutputExceeded
                | Self::ProtocolViolated
                | Self::ScratchExceeded
                | Self::ThreadsExceeded
        );
        !is_final
    }
}

/// Measurements of a worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerStats {
    /// Running and queued jobs.
    pub jobs: u32,
    /// Main memory that these jobs may allocate in addition to the worker, megabytes.
    pub claimed_mb: u64,
    /// Since when it has allocated more memory than it may; `None` if it has not.
    pub over_since: Option<Instant>,
    /// Attempts whose events its task forwards.
    pub held: u32,
    /// Resident memory as it reports it, megabytes.
    pub rss_mb: u64,
    /// GPU memory as it reports it, megabytes; at most what it may use.
    pub vram_mb: u64,
    /// When it was started or adopted.
    pub since: Instant,
    /// When it became idle.
    pub idle_since: Instant,
    /// Duration of loading.
    pub load: Duration,
}

impl WorkerStats {
    /// Those of a worker without jobs, of which nothing is known yet.
    fn new(now: Instant) -> Self {
        Self {
            jobs: 0,
            claimed_mb: 0,
            over_since: None,
            held: 0,
            rss_mb: 0,
            vram_mb: 0,
            since: now,
            idle_since: now,
            load: Duration::ZERO,
        }
    }
}

/// A handle on a worker.
#[derive(Debug)]
pub struct WorkerHandle {
    /// Its identifier.
    pub instance: InstanceId,
    /// What it was launched with.
    pub launch: Launch,
    /// Its folder.
    pub dir: PathBuf,
    /// Its process id, for logs.
    pub pid: u32,
    /// Free slots; a permit is held while a job runs.
    pub slots: Arc<Semaphore>,
    /// Its memory as the kernel reports it; `None` for a worker that was found running and that the system hides.
    pub(crate) memory: Option<WorkerMemory>,
    commands: mpsc::UnboundedSender<Command>,
    state: watch::Receiver<WorkerState>,
    stats: Mutex<WorkerStats>,
    sandbox: Mutex<Option<SandboxReport>>,
    /// Triggered when it was killed and has not ended in time.
    hung: CancellationToken,
    /// Why its task ends it, from before it is killed.
    end_reason: OnceLock<WorkerExit>,
}

impl WorkerHandle {
    /// Sends a command. Does nothing if the worker is gone, or hangs: its task reads no more commands, and they would be kept for ever.
    pub fn send(&self, command: Command) {
        if !self.hangs() {
            let _ = self.commands.send(command);
        }
    }

    /// Follows its state.
    pub fn state(&self) -> watch::Receiver<WorkerState> {
        self.state.clone()
    }

    /// Whether its process has ended.
    pub fn has_exited(&self) -> bool {
        matches!(self.state.latest(), WorkerState::Gone(_))
    }

    /// Whether it accepts no more commands: it has ended, or the agent detached from it.
    pub fn is_gone(&self) -> bool {
        self.has_exited() || self.commands.is_closed()
    }

    /// Whether it accepts jobs.
    pub fn is_ready(&self) -> bool {
        self.state.latest() == WorkerState::Ready
    }

    /// Waits until it is ready, has ended or hangs.
    pub async fn loaded(&self) {
        let mut state = self.state();
        tokio::select! {
            biased;
            () = self.hung() => {}
            // An error means that it has ended.
            _ = state.wait_for(|state| !matches!(state, WorkerState::Loading { .. })) => {}
        }
    }

    /// The measurements.
    pub fn stats(&self) -> WorkerStats {
        *self.stats_mut()
    }

    /// Main memory that it allocated, megabytes: as the kernel reports it, or what it reports itself, at most its limit, where the system hides it.
    pub fn allocated_mb(&self) -> u64 {
        let measured = self.memory.as_ref().and_then(WorkerMemory::allocated_mb);
        believed_mb(measured, self.stats().rss_mb, self.launch.memory_limit_mb)
    }

    /// Notes whether it has allocated more memory than it may, and returns for how long by now.
    pub(crate) fn note_excess(&self, is_over: bool, now: Instant) -> Duration {
        let mut stats = self.stats_mut();
        let since = is_over.then(|| stats.over_since.unwrap_or(now));
        stats.over_since = since;
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Whether it was killed and has not ended in time, as a process that hangs in a driver. It keeps its memory, and nothing waits for it.
    pub fn hangs(&self) -> bool {
        self.hung.is_cancelled()
    }

    /// Waits until it hangs.
    pub async fn hung(&self) {
        self.hung.cancelled().await;
    }

    /// Notes that it was killed and has not ended in time.
    pub(crate) fn note_hang(&self) {
        if !self.hangs() {
            tracing::error!(instance = %self.instance, pid = self.pid, "a worker that was killed does not end");
        }
        self.hung.cancel();
        // Jobs that wait for a slot get another worker.
        self.slots.close();
    }

    /// Its resident memory, megabytes: as the kernel reports it, or what it reports itself where the system hides it.
    pub fn resident_mb(&self) -> u64 {
        let measured = self.memory.as_ref().and_then(WorkerMemory::resident_mb);
        measured.unwrap_or_else(|| self.stats().rss_mb)
    }

    /// Its sandbox, once it has reported it: before it read an untrusted byte. `None` for a worker that was found running.
    pub fn sandbox(&self) -> Option<SandboxReport> {
        self.sandbox.lock().clone()
    }

    /// Waits for its end and returns the reason.
    pub async fn death(&self) -> WorkerExit {
        let mut state = self.state();
        let gone =
            state.wait_for(|state| matches!(state, WorkerState::Gone(_))).await.map(|state| state.clone());
        match gone {
            Ok(WorkerState::Gone(death)) => death,
            _ => WorkerExit::Stopped,
        }
    }

    /// Waits until its jobs are lost, and returns why: it has ended, or it hangs.
    pub async fn loss(&self) -> WorkerExit {
        tokio::select! {
            biased;
            death = self.death() => death,
            () = self.hung() => self.end_reason.get().cloned().unwrap_or(WorkerExit::Stalled),
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

/// What a worker allocated: what was measured, or what it reports itself, at most its limit.
fn believed_mb(measured: Option<u64>, reported: u64, limit: u64) -> u64 {
    measured.unwrap_or_else(|| reported.min(limit))
}

/// A job's claim on a worker, and on memory where jobs allocate their own, counted from the moment at which it waits for a slot.
#[derive(Debug)]
pub struct WorkerClaim {
    worker: Arc<WorkerHandle>,
    ram_mb: u64,
}

impl WorkerClaim {
    /// Counts a job of this Cargo.
    pub fn new(worker: Arc<WorkerHandle>, cargo: &CargoSpec) -> Self {
        let ram_mb = if cargo.is_shared() { cargo.ram_mb() } else { 0 };
        let mut stats = worker.stats_mut();
        stats.jobs += 1;
        stats.claimed_mb = stats.claimed_mb.saturating_add(ram_mb);
        drop(stats);
        Self { worker, ram_mb }
    }

    /// The worker.
    pub fn worker(&self) -> &Arc<WorkerHandle> {
        &self.worker
    }
}

impl Drop for WorkerClaim {
    fn drop(&mut self) {
        let mut stats = self.worker.stats_mut();
        stats.jobs -= 1;
        stats.claimed_mb = stats.claimed_mb.saturating_sub(self.ram_mb);
        stats.idle_since = Instant::now();
    }
}

#[cfg(test)]
impl WorkerHandle {
    /// A worker without a process, which counts as running while the receiver of its commands exists.
    pub(crate) fn without_process(cargo: CargoSpec) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        Self::on_gpus(cargo, Vec::new())
    }

    /// The same with these grants.
    pub(crate) fn on_gpus(
        cargo: CargoSpec,
        gpus: Vec<island_runtimes_worker::launch::GpuGrant>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        Self::in_state(cargo, gpus, watch::channel(WorkerState::Ready).1)
    }

    /// The same with this measurement of its memory.
    #[cfg(target_os = "linux")]
    pub(crate) fn measured(
        cargo: CargoSpec,
        memory: WorkerMemory,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (handle, received) = Self::without_process(cargo);
        let mut handle = Arc::into_inner(handle).expect("no other part has it yet");
        handle.memory = Some(memory);
        (Arc::new(handle), received)
    }

    /// The same, which has not ended as long as the sender of its state exists and sends nothing else.
    pub(crate) fn in_state(
        cargo: CargoSpec,
        gpus: Vec<island_runtimes_worker::launch::GpuGrant>,
        state: watch::Receiver<WorkerState>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let launch = Launch { gpus, ..Launch::new(InstanceId(uuid::Uuid::new_v4()), cargo) };
        let (commands, received) = mpsc::unbounded_channel();
        let handle = Self {
            instance: launch.instance,
            launch,
            dir: PathBuf::new(),
            pid: 0,
            slots: Arc::new(Semaphore::new(0)),
            memory: None,
            commands,
            state,
            stats: WorkerStats::new(Instant::now()).into(),
            sandbox: None.into(),
            hung: CancellationToken::new(),
            end_reason: OnceLock::new(),
        };
        (Arc::new(handle), received)
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::cargo::RuntimeType;

    use super::*;
    use crate::testing;

    fn worker_of(cargo: CargoSpec) -> Arc<WorkerHandle> {
        WorkerHandle::without_process(cargo).0
    }

    #[test]
    fn jobs_of_a_shared_worker_claim_their_memory() {
        let mut wasm = testing::assignment(1, 1).cargo;
        wasm.engine = serde_json::Value::Null;
        (wasm.runtime_type, wasm.required_ram_mb) = (RuntimeType::Wasm, 600);
        let worker = worker_of(wasm.clone());
        let first = WorkerClaim::new(Arc::clone(&worker), &wasm);
        let second = WorkerClaim::new(Arc::clone(&worker), &CargoSpec { required_ram_mb: 50, ..wasm });
        assert_eq!((worker.stats().jobs, worker.stats().claimed_mb), (2, 650));
        drop(first);
        assert_eq!((worker.stats().jobs, worker.stats().claimed_mb), (1, 50));
        drop(second);
        assert_eq!((worker.stats().jobs, worker.stats().claimed_mb), (0, 0));
        // The memory of a model is that of its worker.
        let model = testing::assignment(1, 1).cargo;
        let worker = worker_of(model.clone());
        let _claim = WorkerClaim::new(Arc::clone(&worker), &model);
        assert_eq!((worker.stats().jobs, worker.stats().claimed_mb), (1, 0));
    }

    #[test]
    fn ends_that_a_driver_may_have_caused_are_distinguished() {
        let load_failed = |code| WorkerExit::LoadFailed(Failure::of_host(code, "find GPU 0: none"));
        let of_a_driver = [
            load_failed(FailureCode::InternalError),
            WorkerExit::Exited(Exit::Signal(6)),
            WorkerExit::Exited(Exit::Code(1)),
            WorkerExit::Stalled,
        ];
        assert!(of_a_driver.iter().all(WorkerExit::may_be_of_a_driver));
        let of_another_cause = [
            load_failed(FailureCode::OutOfMemory),
            WorkerExit::LoadFailed(Failure::of_job(FailureCode::ModelRejected, "the file is damaged")),
            WorkerExit::Exited(Exit::Code(EXIT_OUT_OF_MEMORY)),
            WorkerExit::Exited(Exit::Code(0)),
            WorkerExit::Stopped,
        ];
        assert!(!of_another_cause.iter().any(WorkerExit::may_be_of_a_driver));
    }

    #[test]
    fn ends_by_broken_limits_are_not_of_this_island() {
        let ends = |exit: WorkerExit| exit.may_be_of_this_island();
        let exited = |code| ends(WorkerExit::Exited(Exit::Code(code)));
        assert!(ends(WorkerExit::Stalled) && ends(WorkerExit::Exited(Exit::Signal(6))));
        assert!(exited(1) && exited(EXIT_OUT_OF_MEMORY) && !exited(0) && !exited(EXIT_REFUSED));
        let broken = [WorkerExit::OutputExceeded, WorkerExit::ProtocolViolated, WorkerExit::ThreadsExceeded];
        assert!(!broken.into_iter().any(ends) && !ends(WorkerExit::Stopped));
    }

    #[test]
    fn an_excess_counts_from_its_first_measurement() {
        let worker = worker_of(testing::assignment(1, 1).cargo);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(worker.note_excess(true, start), Duration::ZERO);
        assert_eq!(worker.note_excess(true, at(3)), Duration::from_secs(3));
        assert_eq!(worker.note_excess(false, at(4)), Duration::ZERO);
        assert_eq!(worker.note_excess(true, at(5)), Duration::ZERO, "it begins anew");
    }

    #[test]
    fn a_measurement_overrides_a_report() {
        assert_eq!(believed_mb(Some(300), u64::MAX, 1000), 300);
        assert_eq!(believed_mb(None, u64::MAX, 1000), 1000, "its end would not free more than it may have");
        assert_eq!(believed_mb(None, 200, 1000), 200);
    }
}
