//! Owns the running attempts and the workers they run in.
//!
//! Every attempt is one task of the tracker in here, which [`Supervisor::stop`] awaits. What others see of it is its
//! [`JobCell`].

mod admit;
mod books;
pub mod pool;
mod recovery;
pub mod refusals;
mod view;
mod warm;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use island_cache::Cache;
use island_daemon::latest::Latest;
use island_protocol::{
    fabric::{Assignment, Lease, Preload, Refusal, RefusalReason},
    host::{Capabilities, Gpu, Measured},
    ids::AttemptKey,
    job::{Failure, FailureCode},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    books::Books,
    pool::{ModelKey, Pool},
    refusals::Refusals,
};
use crate::{
    clock,
    derived::Derived,
    earnings::Earnings,
    egress::Exits,
    job::{self, JobContext, cell::JobCell, state::JobState},
    journal::{Journal, Record, boot_id},
    link::fabric::Fabric,
    policy::{Rules, Verdict, gpus::Resting},
    spool::Spool,
};

/// Time that stopped attempts get to be reported.
const REPORT_GRACE: Duration = Duration::from_secs(5);

/// What the supervisor works with.
#[derive(Debug)]
pub struct Parts {
    /// What this Island has; the walls are filled in as workers tell.
    pub capabilities: Capabilities,
    /// The store of models.
    pub cache: Cache,
    /// Its folder, for the room on its disk.
    pub cache_dir: PathBuf,
    /// Address of the coordinator, for files that lie there.
    pub api_url: Arc<str>,
    /// What was made of the files in it.
    pub derived: Arc<Derived>,
    /// Ways out for containers.
    pub exits: Arc<Exits>,
    /// The workers.
    pub pool: Arc<Pool>,
    /// The way out.
    pub fabric: Arc<Fabric>,
    /// What runs, on disk.
    pub journal: Journal,
    /// Events, on disk.
    pub spool_dir: PathBuf,
    /// Jobs at once.
    pub max_jobs: u32,
    /// Take less than full walls.
    pub allow_weak_sandbox: bool,
    /// What the owner allows.
    pub rules: Rules,
    /// What this Island earned.
    pub earnings: Arc<Earnings>,
}

/// The attempts of this Island.
#[derive(Debug)]
pub struct Supervisor {
    parts: Parts,
    books: Mutex<Books>,
    draining: AtomicBool,
    /// What follows from the owner's rules.
    verdict: Mutex<Verdict>,
    refusals: Refusals,
    tasks: TaskTracker,
    stop_preloads: CancellationToken,
    news: watch::Sender<u64>,
    hub_reachable: Mutex<Option<bool>>,
    measured: Mutex<Option<Measured>>,
    /// GPUs that are offered, or why none is.
    gpus: Mutex<(Vec<Gpu>, Option<String>)>,
}

impl Supervisor {
    /// A supervisor of nothing yet.
    pub fn new(parts: Parts) -> Arc<Self> {
        let gpus = (parts.capabilities.gpus.clone(), parts.capabilities.no_gpu_reason.clone());
        Arc::new(Self {
            gpus: Mutex::new(gpus),
            parts,
            books: Mutex::default(),
            draining: AtomicBool::new(false),
            verdict: Mutex::new(Verdict::Yes),
            refusals: Refusals::default(),
            tasks: TaskTracker::new(),
            stop_preloads: CancellationToken::new(),
            news: watch::Sender::new(0),
            hub_reachable: Mutex::default(),
            measured: Mutex::default(),
        })
    }

    /// Takes an attempt, or says why not. Quick: nothing is fetched or loaded in here.
    pub fn assign(self: &Arc<Self>, assignment: Assignment) -> Result<(), Refusal> {
        let key = assignment.key;
        let invalid = |message: &str| Refusal { reason: RefusalReason::Invalid, message: message.to_owned() };
        if assignment.first_event == 0 {
            return Err(invalid("events are numbered from 1"));
        }
        let (known, jobs) = {
            let books = self.lock();
            (books.known(key).map_err(invalid)?, books.live())
        };
        if known.is_some() {
            return Ok(());
        }
        self.admit(&assignment, jobs).inspect_err(|refusal| self.refusals.note(refusal))?;
        let cell = self.open(assignment).map_err(|message| {
            let reason = RefusalReason::NoDisk;
            Refusal { reason, message }
        })?;
        let older = self.lock().insert(&cell);
        if let Some(older) = older {
            older.forget();
        }
        tracing::info!(%key, cargo = %cell.assignment().cargo.slug, "accepted");
        self.spawn(cell, None);
        Ok(())
    }

    /// Asks an attempt to end.
    pub fn cancel(&self, key: AttemptKey, failure: Failure) {
        if let Some(cell) = self.find(key) {
            tracing::info!(%key, code = %failure.code, "cancelling");
            cell.cancel(failure);
        }
    }

    /// Stops an attempt that nobody wants any more, and says nothing about it.
    pub fn forget(&self, key: AttemptKey, reason: &str) {
        if let Some(cell) = self.find(key) {
            tracing::info!(%key, reason, "dropping an attempt");
            cell.forget();
        }
    }

    /// What a renewal sent at `sent_ms` said about one attempt.
    pub fn take_lease(&self, lease: &Lease, sent_ms: u64) {
        if !lease.held {
            return self.forget(lease.key, "its lease is gone");
        }
        if let Some(cell) = self.find(lease.key) {
            cell.confirm(sent_ms);
            if let Some(from) = lease.replay_from {
                cell.replay(from);
            }
        }
    }

    /// Fetches files before they are needed. Unverifiable ones are left alone.
    pub fn preload(self: &Arc<Self>, hint: Preload) {
        if self.is_draining() {
            return;
        }
        let (supervisor, stop) = (Arc::clone(self), self.stop_preloads.clone());
        self.tasks.spawn(async move {
            for artifact in hint.artifacts.iter().filter(|artifact| artifact.sha256.is_some()) {
                let progress: Arc<island_cache::Progress> = Arc::new(|_, _| {});
                match supervisor.parts.cache.get(artifact, progress, &stop).await {
                    Ok(_) => tracing::info!(cargo = %hint.workload_slug, name = artifact.name, "preloaded"),
                    Err(error) => tracing::info!(cargo = %hint.workload_slug, %error, "not preloaded"),
                }
            }
            supervisor.tell();
        });
    }

    /// Takes no new work from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.stop_preloads.cancel();
        self.tell();
    }

    /// Whether new work is refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether new work is welcome.
    pub fn takes_work(&self) -> bool {
        !self.is_draining() && *self.verdict() == Verdict::Yes
    }

    /// Takes in what now follows from the owner's rules, and gives it: from here on no job is accepted against it.
    pub fn heed(&self, verdicts: &watch::Receiver<Verdict>) -> Verdict {
        let mut held = self.verdict();
        // Read while it is held: whoever heeds last has the latest.
        let verdict = verdicts.latest();
        let before = std::mem::replace(&mut *held, verdict.clone());
        drop(held);
        if before != verdict {
            self.tell();
        }
        verdict
    }

    /// Acts on the owner's rules: hands back what runs and frees its memory where they say so; the same for GPUs that rest.
    pub async fn obey(&self, verdict: &Verdict, resting: &Resting) {
        self.parts.pool.end_overdrafts();
        if self.parts.pool.rest(resting) {
            self.tell();
        }
        if let Verdict::Leave { reason, .. } = verdict {
            for cell in self.cells() {
                hand_back(&cell, &format!("the Island's owner wants the machine back ({reason})"));
            }
            self.parts.pool.leave(|_| true).await;
        } else if !resting.is_empty() {
            for cell in self.cells() {
                let gpu = self.parts.pool.gpu_of(&ModelKey::of_attempt(cell.assignment()));
                if let Some(reason) = gpu.and_then(|gpu| resting.get(&gpu)) {
                    hand_back(&cell, &format!("its GPU rests ({reason})"));
                }
            }
            self.parts
                .pool
                .leave(|worker| worker.launch.gpu.is_some_and(|gpu| resting.contains_key(&gpu)))
                .await;
        }
    }

    /// What follows from the owner's rules.
    pub fn stance(&self) -> Verdict {
        self.verdict().clone()
    }

    /// What was asked of this Island and not taken.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The workers.
    pub fn pool(&self) -> &Pool {
        &self.parts.pool
    }

    fn verdict(&self) -> MutexGuard<'_, Verdict> {
        self.verdict.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether no attempt is here.
    pub fn is_idle(&self) -> bool {
        self.lock().is_empty()
    }

    /// Stops in order: lets attempts finish for `limit`, or until `hard`; ends the others and gives them a moment to
    /// be reported; stops the workers.
    pub async fn stop(&self, limit: Duration, hard: &CancellationToken) {
        self.drain();
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = hard.cancelled() => {}
            () = tokio::time::sleep(limit) => {}
        }
        for cell in self.cells() {
            cell.cancel(Failure::of_host(FailureCode::IslandLost, "the Island is shutting down"));
        }
        let grace = if hard.is_cancelled() { Duration::from_secs(1) } else { REPORT_GRACE };
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                left = self.cells().len(),
                "some attempts could not be reported; the next start will"
            );
        }
        self.parts.pool.stop_all().await;
    }

    /// Notes an attempt on disk and makes its cell.
    fn open(&self, assignment: Assignment) -> Result<Arc<JobCell>, String> {
        let record = Record { assignment: assignment.clone(), accepted_at: clock::now(), boot_id: boot_id() };
        let spool = Spool::open(&self.parts.spool_dir, assignment.key, assignment.first_event)
            .map_err(|error| error.to_string())?;
        self.parts.journal.write(&record).map_err(|error| error.to_string())?;
        let now = clock::boot_ms();
        Ok(JobCell::new(assignment, spool, now, now))
    }

    fn spawn(self: &Arc<Self>, cell: Arc<JobCell>, held: Option<job::Held>) {
        let supervisor = Arc::clone(self);
        self.tell();
        self.tasks.spawn(async move {
            let key = cell.key();
            let context = JobContext {
                cell: Arc::clone(&cell),
                cache: supervisor.parts.cache.clone(),
                api_url: Arc::clone(&supervisor.parts.api_url),
                derived: Arc::clone(&supervisor.parts.derived),
                exits: Arc::clone(&supervisor.parts.exits),
                earnings: Arc::clone(&supervisor.parts.earnings),
                pool: Arc::clone(&supervisor.parts.pool),
                fabric: Arc::clone(&supervisor.parts.fabric),
            };
            // The guard forgets the attempt even if its task panics.
            let _guard = ForgetOnDrop { supervisor: &supervisor, cell: &cell };
            job::run(context, held).await;
            tracing::info!(%key, "done with an attempt");
        });
    }

    fn find(&self, key: AttemptKey) -> Option<Arc<JobCell>> {
        self.lock().find(key)
    }

    fn cells(&self) -> Vec<Arc<JobCell>> {
        self.lock().all()
    }

    /// Has the next heartbeat go out at once.
    pub fn tell(&self) {
        self.news.send_modify(|number| *number += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Has an attempt go on elsewhere.
fn hand_back(cell: &JobCell, message: &str) {
    cell.cancel(Failure::interrupted(FailureCode::HandedBack, message));
}

struct ForgetOnDrop<'a> {
    supervisor: &'a Supervisor,
    cell: &'a JobCell,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        // An attempt cut off in the middle stays in the journal for the next start.
        if self.cell.state() == JobState::Reported {
            self.cell.with_spool(Spool::remove);
            self.supervisor.parts.journal.remove(self.cell.key());
        }
        self.supervisor.lock().forget(self.cell.key());
        self.supervisor.tell();
    }
}
