//! Executes jobs: one task for each job (`runner`), which drives the job's state machine (`machine`), and one that
//! publishes its events to the fabric (`publisher`), which `purger` removes after the end. Around them: `accept` stores new jobs, `placer` chooses Islands (`initial_placement` does so before a new job is
//! stored), `inbox` receives what Islands send, `peers` takes over jobs of coordinators that are gone, `reconcile`
//! finds open jobs without a runner, `recover` resumes them, `feed` reads a job's events wherever it is executed
//! (`relays`: by another coordinator; `stored_events`: after its end), `remote_cancel` cancels a job that another coordinator executes, `input_memory`
//! limits what open jobs take.
//!
//! Only its machine changes a job, and only its runner gives the machine an input, apart from renewals of the lease.
//! Other tasks send the runner a command, or read the job's log and its [`JobHandle`].

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]
#![expect(
    missing_docs,
    reason = "items are public for the coordinator's other crates; documented where names and types do not suffice"
)]

mod accept;
pub mod deferred_writes;
pub mod feed;
pub mod inbox;
mod initial_placement;
mod input_memory;
pub mod job_handle;
pub mod log;
mod machine;
pub mod maintenance;
pub mod network;
mod peers;
mod placer;
mod publisher;
mod purger;
mod reconcile;
mod recover;
mod relays;
mod remote_cancel;
mod runner;
#[cfg(test)]
mod simulation;
pub mod stored_events;
pub mod tasks;
pub mod webhooks;

use std::{collections::HashMap, sync::Arc, time::Duration};

use island_daemon::traces::{Span, Traces};
use island_protocol::{
    ids::{AccountId, HostId, InstanceId, JobId},
    job::JobStatus,
    subjects,
};
use island_protocol_api::admin::WaitingJob;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use accept::{Entry, Reservation};
use inbox::{Backlog, Budget, Rates, Unknown, Unread};
use input_memory::{InputMemory, ReservedInput};
use island_coordinator_domain::{
    catalogue::Catalogue,
    clock::Clock,
    fleet::Fleet,
    job::{Job, LiveState},
    lease::LeaseTimeouts,
    metrics::Metrics,
    peers::{Peers, Share},
};
use island_coordinator_fabric::link::Link;
use island_coordinator_storage as storage;
use island_coordinator_storage::{Store, StoreError, coordinator};
use job_handle::JobHandle;
use log::Log;
use machine::{Machine, Now, Terms};
use network::Network;
use relays::Relays;
use tasks::Tasks;

/// Interval between checks of the fence while it is closed.
const FENCE_INTERVAL: Duration = Duration::from_millis(100);

/// Dependencies of job execution.
#[derive(Debug)]
pub struct Context {
    pub store: Store,
    pub link: Link,
    pub fleet: Arc<Fleet>,
    /// Which Cargos are served, and of which of them jobs are accepted.
    pub network: Arc<Network>,
    pub clock: Clock,
    pub instance: InstanceId,
    pub deferred: deferred_writes::Sender,
    pub metrics: Metrics,
    pub traces: Traces,
    pub timeouts: LeaseTimeouts,
    pub heartbeat: Duration,
    /// Attempts after the first one, while nothing was delivered.
    pub retries: u32,
    /// Time without a heartbeat after which another coordinator's jobs are taken over.
    pub takeover: Duration,
    /// MiB of memory for the inputs of open jobs.
    pub max_input_mb: u32,
}

impl Context {
    /// The catalogue of this moment.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.network.catalogue()
    }

    fn terms(&self) -> Terms {
        Terms { timeouts: self.timeouts, retries: self.retries }
    }

    fn now(&self) -> Now {
        Now { instant: Instant::now(), wall: self.clock.now() }
    }
}

/// The jobs that this coordinator executes.
#[derive(Debug)]
pub struct Execution {
    context: Arc<Context>,
    jobs: Mutex<HashMap<JobId, Entry>>,
    placer: mpsc::UnboundedSender<placer::Request>,
    /// Jobs that wait for an Island.
    queue: Arc<placer::Queue>,
    /// Jobs whose events are removed from the stream.
    purges: mpsc::UnboundedSender<purger::Published>,
    /// Notified when jobs of another coordinator became this one's.
    adopted: Notify,
    peers: Mutex<Peers>,
    input_memory: InputMemory,
    relays: Relays,
    /// Permits to look up attempts of other coordinators.
    foreign_attempts: Arc<Semaphore>,
    /// Permits to look up Islands of other coordinators.
    unknown_islands: Semaphore,
    unknown: Unknown,
    unread: Unread,
    rates: Rates,
    budget: Arc<Budget>,
    /// Renewals that are received but not applied yet.
    renewals: Arc<Backlog>,
    tasks: Tasks,
    hard: CancellationToken,
    /// Triggered when other coordinators have removed this one and taken its jobs over.
    removed: CancellationToken,
}

/// Result of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The job is cancelled, now or earlier.
    Yes,
    /// The job had ended in another state.
    AlreadyFinal(JobStatus),
    /// The job is being moved between coordinators.
    Moving,
    /// The job does not exist.
    Unknown,
}

impl Execution {
    /// Starts the tasks, which resume the open jobs that no coordinator executes, and stop when `hard` is triggered.
    pub async fn start(
        context: Context,
        tasks: Tasks,
        hard: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let (placer, requests) = mpsc::unbounded_channel();
        let (purges, published) = mpsc::unbounded_channel();
        let queue = Arc::<placer::Queue>::default();
        let context = Arc::new(context);
        let has_peers = context.store.heartbeats().is_some();
        let peers = Mutex::new(Peers::new(context.instance, context.takeover, has_peers, Instant::now()));
        let removed = CancellationToken::new();
        coordinator::register(&context.store, context.instance).await?;
        let execution = Arc::new(Self {
            context: context.clone(),
            jobs: Mutex::default(),
            placer,
            queue: queue.clone(),
            purges,
            adopted: Notify::new(),
            peers,
            input_memory: InputMemory::new(context.max_input_mb),
            relays: Relays::default(),
            foreign_attempts: Arc::new(Semaphore::new(inbox::FOREIGN_ATTEMPTS)),
            unknown_islands: Semaphore::new(inbox::UNKNOWN_ISLANDS),
            unknown: Unknown::default(),
            unread: Unread::default(),
            rates: Rates::default(),
            budget: Arc::default(),
            renewals: Arc::new(Backlog::new(context.metrics.fabric.subject(subjects::LEASE))),
            tasks,
            hard,
            removed,
        });
        execution.spawn_task(placer::run(context.fleet.clone(), queue, requests, execution.hard.clone()));
        execution.spawn_task(purger::run(context.link.clone(), published, execution.hard.clone()));
        if !has_peers {
            peers::adopt(&execution, &Share::all()).await?;
        }
        execution.spawn_task(reconcile::run(execution.clone()));
        execution.spawn_task(relays::check(execution.clone()));
        if let Some(heartbeats) = context.store.heartbeats() {
            execution.spawn_task(peers::run(execution.clone(), heartbeats.clone()));
            execution.spawn_task(peers::refresh(execution.clone()));
        }
        Ok(execution)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        self.jobs.lock()
    }

    /// Starts the runner and the publisher of a job.
    fn spawn(
        self: &Arc<Self>,
        reservation: Reservation,
        input: ReservedInput,
        machine: Machine,
        log: Arc<Log>,
        published: publisher::Published,
        trace: Span,
    ) -> Arc<JobHandle> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let handle = Arc::new(JobHandle::new(machine, log, commands));
        reservation.fill(handle.clone());
        // What is logged about the job has its ids.
        let (job, account, cargo) = (handle.id, handle.account, &handle.workload);
        let log = tracing::info_span!(parent: None, "job", %job, %account, %cargo);
        let runner = runner::Runner::new(self.clone(), handle.clone(), inbox, input, trace);
        self.spawn_task(runner.run().instrument(log.clone()));
        self.spawn_task(publisher::run(self.clone(), handle.clone(), published).instrument(log));
        handle
    }

    /// The time of an input.
    fn now(&self) -> Now {
        self.context.now()
    }

    /// Runs a task of the execution of jobs.
    fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// A handle of a job that has ended, for readers of its events.
    pub fn ended_handle(&self, job: Job) -> Arc<JobHandle> {
        Arc::new(JobHandle::ended(&self.context, job))
    }

    /// Waits until other coordinators have removed this one. Its writes about jobs have no effect then.
    pub async fn removed(&self) {
        self.removed.cancelled().await;
    }

    /// Whether other coordinators may have taken this one's jobs over. Until it knows that they have not, it shows and
    /// publishes nothing new of its jobs: another coordinator may show other events under the same numbers.
    fn is_fenced(&self) -> bool {
        self.peers.lock().is_fenced(Instant::now())
    }

    /// Waits while [`Self::is_fenced`].
    async fn unfenced(&self) {
        while self.is_fenced() {
            tokio::time::sleep(FENCE_INTERVAL).await;
        }
    }

    /// Lets other coordinators take the open jobs over at once. No job may run here any longer.
    pub async fn unregister(&self) {
        if let Err(error) = coordinator::unregister(&self.context.store, self.context.instance).await {
            tracing::warn!(error = %island_daemon::chain::Chain(&error), "coordinator not unregistered; others take its jobs over after the timeout");
        }
    }

    /// Account and public key of an Island, also if another coordinator enrolled it.
    pub async fn account_and_key(&self, host: HostId) -> Result<Option<(AccountId, String)>, StoreError> {
        let fleet = &self.context.fleet;
        if let Some(found) = fleet.account_and_key(host) {
            return Ok(Some(found));
        }
        if let Some(enrolled) = storage::host::get(self.context.store.reader(), host).await? {
            fleet.enroll(enrolled);
        }
        Ok(fleet.account_and_key(host))
    }

    /// Returns the handle of a job that this coordinator executes.
    pub fn find(&self, job: JobId) -> Option<Arc<JobHandle>> {
        match self.lock().get(&job)? {
            Entry::Running(handle) => Some(handle.clone()),
            Entry::Reserved => None,
        }
    }

    /// State of an open job that this coordinator executes. Call it before reading the job's row: a runner ends a job
    /// in SQL before it does so in memory. A row read afterwards therefore contains the end, or the job was open when
    /// this function returned.
    pub fn live_state(&self, job: JobId) -> Option<LiveState> {
        self.find(job)?.live_state()
    }

    /// [`Self::live_state`] of every job of an account.
    pub fn live_states(&self, account: AccountId) -> HashMap<JobId, LiveState> {
        let handles = self.all().into_iter().filter(|handle| handle.account == account);
        handles.filter_map(|handle| Some((handle.id, handle.live_state()?))).collect()
    }

    /// The jobs of consumers that this coordinator executes and that no Island can take now, with the reasons.
    pub fn waiting(&self) -> Vec<WaitingJob> {
        self.all().iter().filter_map(|handle| handle.waiting_job()).collect()
    }

    /// Number of jobs that are executed by other coordinators and read here.
    pub fn relayed(&self) -> usize {
        self.relays.len()
    }

    fn forget(&self, job: JobId) {
        self.lock().remove(&job);
    }

    fn all(&self) -> Vec<Arc<JobHandle>> {
        let jobs = self.lock();
        let handles = jobs.values().filter_map(|entry| match entry {
            Entry::Running(handle) => Some(handle.clone()),
            Entry::Reserved => None,
        });
        handles.collect()
    }
}

impl Cancelled {
    fn from_status(status: JobStatus) -> Self {
        if status == JobStatus::Cancelled { Self::Yes } else { Self::AlreadyFinal(status) }
    }
}
