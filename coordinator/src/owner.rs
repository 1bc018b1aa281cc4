//! Owns the jobs that run: one task per job (`runner`), beside it one that writes the job's events to the fabric
//! (`publisher`). Around them: `accept` stores new jobs, `placer` chooses Islands (`first`: before a new job is stored), `inbox`
//! receives what Islands send, `clerk` writes what may be written late, `peers` takes jobs over from coordinators that are gone,
//! `reconcile` finds open jobs without a runner, `recover` takes them up where they stood, `feed` follows a job for a reader wherever
//! it runs (`relay`: elsewhere), `errand` asks other coordinators.
//!
//! A runner alone changes its job. Everybody else sends it a command, or reads the job's log and live state.

mod accept;
mod clerk;
mod errand;
pub(crate) mod feed;
mod finish;
mod first;
pub(crate) mod inbox;
pub(crate) mod live;
pub(crate) mod log;
mod peers;
mod placer;
mod publisher;
mod reconcile;
mod recover;
mod relay;
mod runner;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use island_protocol::{
    ids::{AccountId, HostId, InstanceId, JobId},
    job::JobStatus,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    catalogue::Catalogue,
    clock::Clock,
    fabric::link::Link,
    fleet::Fleet,
    job::{Job, Standing},
    lease::Patience,
    storage::{self, Store, StoreError, coordinator},
};
use accept::{Entry, Reservation};
use first::First;
use live::Live;
use log::Log;

/// What the owner of jobs works with.
#[derive(Debug)]
pub(crate) struct Context {
    pub store: Store,
    pub link: Link,
    pub fleet: Arc<Fleet>,
    pub catalogue: Arc<Catalogue>,
    pub clock: Clock,
    pub instance: InstanceId,
    pub patience: Patience,
    pub heartbeat: Duration,
    /// Attempts after the first one, while nothing was delivered.
    pub retries: u32,
    /// How long another coordinator may be silent before its jobs are taken over.
    pub takeover: Duration,
}

/// The running jobs. A clone of the `Arc` is the same owner.
#[derive(Debug)]
pub(crate) struct Owner {
    context: Arc<Context>,
    jobs: Mutex<HashMap<JobId, Entry>>,
    placer: mpsc::UnboundedSender<placer::Ask>,
    clerk: mpsc::UnboundedSender<clerk::Started>,
    /// Triggered when jobs of another coordinator became ours.
    adopted: Notify,
    tasks: TaskTracker,
    hard: CancellationToken,
    /// Triggered when one of the tasks panicked.
    failed: CancellationToken,
    /// Triggered when other coordinators have taken this one for dead.
    deposed: CancellationToken,
}

/// Reports the panic of the task that holds it.
struct PanicGuard(CancellationToken);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// What came of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The job is cancelled now, or was before.
    Yes,
    /// It had ended otherwise.
    AlreadyFinal(JobStatus),
    /// It is between two coordinators.
    Moving,
    /// There is no such job.
    Unknown,
}

impl Owner {
    /// Starts the tasks around the jobs and takes up the jobs that nobody looks after. They stop when `hard` is triggered.
    pub(crate) async fn start(context: Context, hard: CancellationToken) -> Result<Arc<Self>, StoreError> {
        let (placer, asks) = mpsc::unbounded_channel();
        let (clerk, notes) = mpsc::unbounded_channel();
        let context = Arc::new(context);
        let tasks = TaskTracker::new();
        let (failed, deposed) = (CancellationToken::new(), CancellationToken::new());
        coordinator::enter(&context.store, context.instance).await?;
        let owner = Arc::new(Self {
            context: context.clone(),
            jobs: Mutex::default(),
            placer,
            clerk,
            adopted: Notify::new(),
            tasks,
            hard,
            failed,
            deposed,
        });
        owner.spawn_task(placer::run(context.fleet.clone(), asks, owner.hard.clone()));
        owner.spawn_task(clerk::run(context.store.clone(), context.instance, notes, owner.hard.clone()));
        peers::adopt(&owner).await?;
        reconcile::round(&owner).await?;
        owner.spawn_task(reconcile::run(owner.clone()));
        if let Some(pulse) = context.store.pulse() {
            owner.spawn_task(peers::run(owner.clone(), pulse.clone()));
        }
        Ok(owner)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(
        self: &Arc<Self>,
        reservation: Reservation,
        job: Job,
        log: Log,
        published: publisher::Published,
        run: Option<live::Run>,
        first: Option<First>,
    ) -> Arc<Live> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let live = Arc::new(Live::new(&job, log, commands));
        live.state().run = run;
        reservation.fill(live.clone());
        let runner = runner::Runner::new(self.clone(), live.clone(), job, inbox);
        self.spawn_task(runner.run(first));
        let (link, hard) = (self.context.link.clone(), self.hard.clone());
        let dialect = self.context.store.dialect();
        self.spawn_task(publisher::run(link, live.clone(), published, dialect, hard));
        live
    }

    /// Runs a task that [`Self::stopped`] waits for; its panic is noticed.
    pub(crate) fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        let guard = PanicGuard(self.failed.clone());
        self.tasks.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// Waits until one of the tasks has panicked: the program must stop then.
    pub(crate) async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Waits until other coordinators have taken this one for dead: whatever it would write is refused then.
    pub(crate) async fn deposed(&self) {
        self.deposed.cancelled().await;
    }

    /// Lets others take the open jobs over at once. Nothing may run here any more.
    pub(crate) async fn leave(&self) {
        if let Err(error) = coordinator::leave(&self.context.store, self.context.instance).await {
            tracing::warn!(error = %island_daemon::chain::Chain(&error), "left without a word: others take over later");
        }
    }

    /// Account and public key of an Island, which another coordinator may have enrolled.
    pub(crate) async fn known(&self, host: HostId) -> Result<Option<(AccountId, String)>, StoreError> {
        let fleet = &self.context.fleet;
        if let Some(known) = fleet.owner_and_key(host) {
            return Ok(Some(known));
        }
        if let Some(enrolled) = storage::host::get(self.context.store.reader(), host).await? {
            fleet.enrol(enrolled);
        }
        Ok(fleet.owner_and_key(host))
    }

    /// A job that runs here.
    pub(crate) fn find(&self, job: JobId) -> Option<Arc<Live>> {
        match self.lock().get(&job)? {
            Entry::Live(live) => Some(live.clone()),
            Entry::Reserved => None,
        }
    }

    /// State of a job that runs here and is open. Call it before the job's row is read: a runner ends a job in SQL before it does in
    /// memory, so a row that is read afterwards holds the end, or the job was open when this returned.
    pub(crate) fn standing(&self, job: JobId) -> Option<Standing> {
        self.find(job)?.standing()
    }

    /// [`Self::standing`] of every job of an account.
    pub(crate) fn standings(&self, account: AccountId) -> HashMap<JobId, Standing> {
        let lives = self.all().into_iter().filter(|live| live.account == account);
        lives.filter_map(|live| Some((live.id, live.standing()?))).collect()
    }

    fn forget(&self, job: JobId) {
        self.lock().remove(&job);
    }

    fn all(&self) -> Vec<Arc<Live>> {
        let jobs = self.lock();
        let lives = jobs.values().filter_map(|entry| match entry {
            Entry::Live(live) => Some(live.clone()),
            Entry::Reserved => None,
        });
        lives.collect()
    }

    /// Waits until every task has ended; they do once `hard` is triggered.
    pub(crate) async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Cancelled {
    fn of(status: JobStatus) -> Self {
        if status == JobStatus::Cancelled { Self::Yes } else { Self::AlreadyFinal(status) }
    }
}
