//! A running job as other tasks see it: its events, its state, and the commands to its runner.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use island_protocol::{
    fabric::{Lease, LeasedJob, Output},
    ids::{AccountId, AttemptKey, HostId, JobId, Slug},
    job::JobStatus,
};
use island_protocol_api::admin::WaitingJob;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    Context,
    inbox::Held,
    log::Log,
    machine::{Input, Machine},
};
use island_coordinator_domain::{
    catalogue::Cargo,
    job::{Canceller, Job, LiveState},
};

/// Bytes of output that wait for a job's runner, which may wait for the database. One message waits whatever its size.
const MAX_QUEUED: usize = 4 << 20;

/// A command to a runner.
#[derive(Debug)]
pub(super) enum Command {
    /// An input of the job's machine.
    Input(Input),
    /// Output of an Island, with the memory that it takes until it is handled.
    Output { input: Input, queued: Queued },
    /// The job is cancelled. `answer` receives the status afterwards.
    Cancel { canceller: Canceller, answer: oneshot::Sender<JobStatus> },
}

/// Output that waits for a runner, until it is dropped.
#[derive(Debug)]
pub(super) struct Queued {
    total: Arc<AtomicUsize>,
    bytes: usize,
    _held: Held,
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Whose output a message contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputOwner {
    /// The current attempt's, or that of a job that has just ended.
    Current,
    /// Another attempt's, or another Island's.
    Other,
}

/// Why output was not sent to a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputError {
    /// Too much output waits for it.
    Full,
    /// It has ended.
    Ended,
}

/// A running job.
#[derive(Debug)]
pub struct JobHandle {
    pub id: JobId,
    pub account: AccountId,
    pub log: Arc<Log>,
    pub workload: Slug,
    /// The Cargo as the job runs it.
    pub(super) cargo: Option<Arc<Cargo>>,
    machine: Mutex<Machine>,
    /// Priority and creation, by which waiting jobs are ordered.
    order: (u8, i64),
    /// Whether an Island has ever accepted the job.
    accepted: watch::Sender<bool>,
    commands: mpsc::UnboundedSender<Command>,
    /// Bytes of output that wait for the runner.
    queued: Arc<AtomicUsize>,
    is_read_elsewhere: AtomicBool,
}

impl JobHandle {
    pub(super) fn new(machine: Machine, log: Arc<Log>, commands: mpsc::UnboundedSender<Command>) -> Self {
        let job = machine.job();
        Self {
            id: job.id,
            account: job.account,
            workload: job.workload.clone(),
            cargo: machine.cargo().cloned(),
            order: (job.priority, job.created_at.unix_ms()),
            accepted: watch::Sender::new(machine.is_accepted()),
            log,
            machine: Mutex::new(machine),
            commands,
            queued: Arc::default(),
            is_read_elsewhere: AtomicBool::new(false),
        }
    }

    /// A job that has ended. It has no runner, and its log is empty: its events are in SQL.
    pub fn ended(context: &Context, job: Job) -> Self {
        let log = Arc::new(Log::new(Vec::new()));
        let cargo = context.catalogue().get(job.workload.as_str()).cloned();
        let machine = Machine::new(job, log.clone(), cargo, context.terms(), context.now());
        let (commands, _) = mpsc::unbounded_channel();
        Self::new(machine, log, commands)
    }

    /// Locks the machine. Do not hold the guard across an await.
    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// Priority and creation in milliseconds since 1970, by which waiting jobs are ordered.
    pub(super) fn order(&self) -> (u8, i64) {
        self.order
    }

    /// Sends an input to the runner. Returns `false` if the runner has ended.
    pub(super) fn send(&self, input: Input) -> bool {
        self.command(Command::Input(input))
    }

    /// Whose output a message is. Only the current attempt's goes to the runner: anybody may know the id of a job.
    pub(super) fn owner(&self, host: HostId, key: AttemptKey) -> OutputOwner {
        let machine = self.machine();
        let is_current = machine.is_current(host, key) || machine.is_over();
        if is_current { OutputOwner::Current } else { OutputOwner::Other }
    }

    /// Sends output to the runner. `reply` is the subject that waits for the commit of the end.
    pub(super) fn send_output(
        &self,
        host: HostId,
        output: Output,
        reply: Option<String>,
        held: Held,
    ) -> Result<(), OutputError> {
        let bytes = held.bytes();
        let before = self.queued.fetch_add(bytes, Ordering::Relaxed);
        let queued = Queued { total: self.queued.clone(), bytes, _held: held };
        if before > 0 && before + bytes > MAX_QUEUED {
            return Err(OutputError::Full);
        }
        let input = Input::Output { host, output, reply };
        if self.command(Command::Output { input, queued }) { Ok(()) } else { Err(OutputError::Ended) }
    }

    /// Sends a command to the runner. Returns `false` if the runner has ended.
    pub(super) fn command(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    /// A sender of commands to the runner.
    pub(super) fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    /// Records that an Island accepted the job. Returns whether it is the first one.
    pub(super) fn accept(&self) -> bool {
        !self.accepted.send_replace(true)
    }

    /// Waits until an Island has accepted the job.
    pub async fn accepted(&self) {
        let mut accepted = self.accepted.subscribe();
        // The sender lives as long as `self`.
        let _ = accepted.wait_for(|accepted| *accepted).await;
    }

    /// The Island of the current attempt, and whether it ran the last job of the same conversation.
    pub fn island(&self) -> Option<(HostId, bool)> {
        let machine = self.machine();
        let host = machine.job().host?;
        Some((host, machine.job().holder == Some(host)))
    }

    /// Whether a consumer reads the job's events here, besides the publisher.
    pub(super) fn is_read_here(&self) -> bool {
        self.log.readers() > 1
    }

    /// Whether a consumer reads the job's events, as far as is known.
    pub(super) fn has_readers(&self) -> bool {
        self.is_read_here() || self.is_read_elsewhere.load(Ordering::Relaxed)
    }

    /// Records whether a consumer reads the job's events at another coordinator.
    pub(super) fn set_read_elsewhere(&self, is_read: bool) {
        self.is_read_elsewhere.store(is_read, Ordering::Relaxed);
    }

    /// Whether the job is cancelled unless a consumer reads it.
    pub(super) fn needs_readers(&self) -> bool {
        self.machine().needs_readers()
    }

    /// Whether the job has ended here, or is another coordinator's.
    pub(super) fn is_over(&self) -> bool {
        self.machine().is_over()
    }

    pub(super) fn status(&self) -> JobStatus {
        self.machine().status()
    }

    /// The current attempt and its Island.
    pub(super) fn attempt(&self) -> Option<(HostId, AttemptKey)> {
        self.machine().attempt()
    }

    /// Renews the lease of an attempt. The reply states whether it is still valid and from which number events are
    /// missing.
    pub(super) fn renew(
        &self,
        host: HostId,
        job: &LeasedJob,
        now: Instant,
        connected_since: Instant,
    ) -> Lease {
        self.machine().renew(host, job, now, connected_since)
    }

    /// State of the job, or `None` if it has ended: an end is read only from SQL, which has all of its parts.
    pub fn live_state(&self) -> Option<LiveState> {
        self.machine().live_state()
    }

    /// The job as operators see it while no Island can take it, unless it is an Island's check of itself.
    pub(super) fn waiting_job(&self) -> Option<WaitingJob> {
        let machine = self.machine();
        let job = machine.job();
        let waiting = machine.waiting().filter(|_| job.only.is_none())?.clone();
        Some(WaitingJob {
            id: job.id,
            account: job.account,
            workload_slug: job.workload.clone(),
            priority: job.priority,
            created_at: job.created_at,
            waiting: Some(waiting),
            waiting_reason: None,
        })
    }

    /// Number of Islands for each reason, while no Island can take the job.
    pub fn waiting(&self) -> Option<BTreeMap<String, u64>> {
        self.machine().waiting().cloned()
    }
}
