//! Owns the running attempts.
//!
//! Each attempt is a task of the tracker in this struct, which [`Supervisor::stop`] awaits. Other parts access it through its
//! [`AttemptHandle`].

mod admit;
mod attempt_table;
mod loaded_models;
mod recovery;
pub mod refusals;
mod snapshot;

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc, time::Duration};

use fail::fail_point;
use futures::FutureExt as _;
use island_cache::Cache;
use island_daemon::{
    latest::Latest,
    traces::{Kind, TraceContext, Traces},
};
use island_protocol::{
    artifact::Artifact,
    event::AttemptEvent,
    fabric::{Assignment, Lease, Preload, Refusal, RefusalReason},
    host::{Capabilities, Gpu, Measured},
    ids::AttemptKey,
    job::{Failure, FailureCode, Outcome},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use self::{attempt_table::AttemptTable, refusals::Refusals};
use crate::{
    attempt::{
        handle::AttemptHandle,
        state::{AttemptState, AttemptStep},
    },
    clock,
    config::PreloadSection,
    disk::{
        derived::Derived,
        journal::{Journal, Record, boot_id},
        spool::Spool,
    },
    fabric::Fabric,
    job::{self, JobContext},
    network::egress::EgressMounts,
    owner::{
        earnings::Earnings,
        policy::{Rules, Stance, Verdict},
    },
    pool::{ModelKey, Pool},
    worker::WorkerHandle,
};

/// Time that stopped attempts have to be reported.
const REPORT_GRACE: Duration = Duration::from_secs(5);

/// What the supervisor is built from.
#[derive(Debug)]
pub struct Parts {
    /// Capabilities of this Island; the sandbox is added when workers report it.
    pub capabilities: Capabilities,
    /// The model cache.
    pub cache: Cache,
    /// Address of the coordinator, for files that it serves.
    pub api_url: Arc<str>,
    /// The store of derived files.
    pub derived: Arc<Derived>,
    /// Egress mounts of containers.
    pub egress_mounts: Arc<EgressMounts>,
    /// The pool of workers.
    pub pool: Arc<Pool>,
    /// The connection to the fabric.
    pub fabric: Arc<Fabric>,
    /// Records of the running attempts.
    pub journal: Journal,
    /// Folder of the spools.
    pub spool_dir: PathBuf,
    /// Maximum number of jobs at once.
    pub max_jobs: u32,
    /// Accept jobs with less than a full sandbox.
    pub allow_weak_sandbox: bool,
    /// The owner's rules.
    pub rules: Rules,
    /// The result of the rules and orders now.
    pub stance: watch::Receiver<Stance>,
    /// Records earnings.
    pub earnings: Arc<Earnings>,
    /// The owner's settings of preloads, which apply to hints of the coordinator, too.
    pub preload: PreloadSection,
    /// Records what coordinators record.
    pub traces: Traces,
}

/// Accepts, cancels and stops attempts.
#[derive(Debug)]
pub struct Supervisor {
    parts: Parts,
    table: Mutex<AttemptTable>,
    refusals: Refusals,
    tasks: TaskTracker,
    stop_preloads: CancellationToken,
    /// Held while the files of a hint are downloaded.
    hint: Arc<tokio::sync::Mutex<()>>,
    changes: watch::Sender<u64>,
    hub_reachable: Mutex<Option<bool>>,
    measured: Mutex<Option<Measured>>,
    /// The GPUs that are offered, or why no GPU is.
    gpus: Mutex<(Vec<Gpu>, Option<String>)>,
}

impl Supervisor {
    /// Creates a supervisor without attempts.
    pub fn new(parts: Parts) -> Arc<Self> {
        let gpus = (parts.capabilities.gpus.clone(), parts.capabilities.no_gpu_reason.clone());
        Arc::new(Self {
            gpus: Mutex::new(gpus),
            parts,
            table: Mutex::default(),
            refusals: Refusals::default(),
            tasks: TaskTracker::new(),
            stop_preloads: CancellationToken::new(),
            hint: Arc::default(),
            changes: watch::Sender::new(0),
            hub_reachable: Mutex::default(),
            measured: Mutex::default(),
        })
    }

    /// Accepts an attempt, or returns the reason against it. Fast: downloads and loads nothing. `trace` is its place in a trace.
    pub fn assign(
        self: &Arc<Self>,
        assignment: Assignment,
        trace: Option<TraceContext>,
    ) -> Result<(), Refusal> {
        let key = assignment.key;
        let invalid = |message: &str| Refusal { reason: RefusalReason::Invalid, message: message.to_owned() };
        if assignment.first_event == 0 {
            return Err(invalid("events are numbered from 1"));
        }
        let (known, jobs) = {
            let table = self.lock();
            (table.known(key).map_err(invalid)?, table.live())
        };
        if known.is_some() {
            return Ok(());
        }
        self.admit(&assignment, jobs).inspect_err(|refusal| self.refusals.note(refusal))?;
        let attempt = self.open(assignment).map_err(|message| {
            let reason = RefusalReason::NoDisk;
            Refusal { reason, message }
        })?;
        let older = {
            let mut attempts = self.lock();
            // Checked under the lock: an attempt is either refused here, or seen by the task that enforces a new stance.
            if !self.accepts_work() {
                drop(attempts);
                attempt.with_spool(Spool::remove);
                self.parts.journal.remove(key);
                let message = self.stance().verdict.reason().unwrap_or("the agent is stopping").to_owned();
                return Err(Refusal { reason: RefusalReason::Draining, message });
            }
            attempts.insert(&attempt)
        };
        if let Some(older) = older {
            older.forget();
        }
        tracing::info!(%key, cargo = %attempt.assignment().cargo.slug, "accepted");
        self.spawn(attempt, None, trace);
        Ok(())
    }

    /// Records what coordinators record.
    pub fn traces(&self) -> &Traces {
        &self.parts.traces
    }

    /// Cancels an attempt.
    pub fn cancel(&self, key: AttemptKey, failure: Failure) {
        if let Some(attempt) = self.find(key) {
            tracing::info!(%key, code = %failure.code, "cancelling");
            attempt.cancel(failure);
        }
    }

    /// Stops an attempt that the coordinator dropped, and reports nothing.
    pub fn forget(&self, key: AttemptKey, reason: &str) {
        if let Some(attempt) = self.find(key) {
            tracing::info!(%key, reason, "dropping an attempt");
            attempt.forget();
        }
    }

    /// Applies the answer about one attempt to a renewal sent at `sent_ms`.
    pub fn take_lease(&self, lease: &Lease, sent_ms: u64) {
        if !lease.held {
            return self.forget(lease.key, "its lease is gone");
        }
        if let Some(attempt) = self.find(lease.key) {
            attempt.confirm(sent_ms);
            if let Some(from) = lease.replay_from {
                attempt.replay(from);
            }
        }
    }

    /// Downloads files before they are needed, if the owner allows preloads and while jobs are accepted. Files that cannot be verified are
    /// skipped.
    pub fn preload(self: &Arc<Self>, hint: Preload) {
        let Some(artifacts) = hinted(&self.parts.preload, &hint).filter(|_| self.accepts_work()) else {
            return tracing::info!(cargo = %hint.workload_slug, "a hint to preload is not followed");
        };
        // One at a time: each is limited in size, and all together would not be.
        let Ok(turn) = Arc::clone(&self.hint).try_lock_owned() else { return };
        let (supervisor, stop) = (Arc::clone(self), self.stop_preloads.clone());
        self.tasks.spawn(async move {
            let _turn = turn;
            let fetch = async {
                for artifact in &artifacts {
                    let progress: Arc<island_cache::Progress> = Arc::new(|_| {});
                    match supervisor.parts.cache.get(artifact, progress, &stop).await {
                        Ok(_) => {
                            tracing::info!(cargo = %hint.workload_slug, name = artifact.name, "preloaded");
                        }
                        Err(error) => tracing::info!(cargo = %hint.workload_slug, %error, "not preloaded"),
                    }
                }
            };
            while_accepting(supervisor.stances(), fetch).await;
            supervisor.wake_heartbeat();
        });
    }

    /// Whether new jobs are accepted.
    pub fn accepts_work(&self) -> bool {
        self.stance().accepts_work()
    }

    /// The stance: whether this Island accepts jobs, and which GPUs are paused.
    pub fn stance(&self) -> Stance {
        self.parts.stance.latest()
    }

    /// Follows [`Supervisor::stance`].
    pub fn stances(&self) -> watch::Receiver<Stance> {
        self.parts.stance.clone()
    }

    /// Acts on the owner's rules: hands attempts back and stops their workers where the rules require it.
    pub async fn enforce(&self, stance: &Stance) {
        self.parts.pool.enforce_vram_limits();
        self.parts.pool.enforce_limits();
        let paused_gpus = &stance.paused_gpus;
        if let Verdict::Leave { reason, .. } = &stance.verdict {
            for attempt in self.attempts() {
                hand_back(&attempt, &format!("the Island's owner stopped it ({reason})"));
            }
            self.parts.pool.stop_now(|_| true).await;
        } else if !paused_gpus.is_empty() {
            for attempt in self.attempts() {
                let gpus = self.parts.pool.gpus_of(&ModelKey::of_attempt(attempt.assignment()));
                // One paused GPU of several stops the worker: a model is not moved.
                if let Some(reason) = gpus.iter().find_map(|gpu| paused_gpus.get(gpu)) {
                    hand_back(&attempt, &format!("its GPU is paused ({reason})"));
                }
            }
            let on_paused = |worker: &WorkerHandle| {
                worker.launch.gpus.iter().any(|gpu| paused_gpus.contains_key(&gpu.index))
            };
            self.parts.pool.stop_now(on_paused).await;
        }
    }

    /// Refused jobs by reason.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The pool of workers.
    pub fn pool(&self) -> &Pool {
        &self.parts.pool
    }

    /// Egress mounts of containers.
    #[cfg(test)]
    pub(crate) fn egress_mounts(&self) -> &EgressMounts {
        &self.parts.egress_mounts
    }

    /// Whether there are no attempts.
    pub fn is_idle(&self) -> bool {
        self.lock().is_empty()
    }

    /// Stops in order: lets attempts finish for `limit`, or until `hard`; cancels the others and gives them time to be reported; stops the
    /// workers.
    pub async fn stop(&self, limit: Duration, hard: &CancellationToken) {
        self.stop_preloads.cancel();
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = hard.cancelled() => {}
            () = tokio::time::sleep(limit) => {}
        }
        for attempt in self.attempts() {
            hand_back(&attempt, "the Island is shutting down");
        }
        let grace = if hard.is_cancelled() { Duration::from_secs(1) } else { REPORT_GRACE };
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                left = self.attempts().len(),
                "some attempts could not be reported; the next start will"
            );
        }
        self.parts.pool.stop_all().await;
    }

    /// Records an attempt on disk and creates its handle.
    fn open(&self, assignment: Assignment) -> Result<Arc<AttemptHandle>, String> {
        let now = clock::boot_ms();
        let record = Record { assignment: assignment.clone(), accepted_ms: now, boot_id: boot_id() };
        let spool = Spool::open(&self.parts.spool_dir, assignment.key, assignment.first_event)
            .map_err(|error| error.to_string())?;
        fail_point!("assign.spooled", island_daemon::failpoint::crash);
        if let Err(error) = self.parts.journal.write(&record) {
            spool.remove();
            return Err(error.to_string());
        }
        fail_point!("assign.recorded", island_daemon::failpoint::crash);
        Ok(AttemptHandle::new(assignment, spool, now, now))
    }

    fn spawn(
        self: &Arc<Self>,
        attempt: Arc<AttemptHandle>,
        held: Option<job::RecoveredAttempt>,
        trace: Option<TraceContext>,
    ) {
        let supervisor = Arc::clone(self);
        self.wake_heartbeat();
        // What is logged about the attempt has its ids.
        let log = {
            let (key, cargo) = (attempt.key(), &attempt.assignment().cargo.slug);
            let host = self.parts.fabric.host_id();
            tracing::info_span!(parent: None, "attempt", %host, job = %key.job_id, attempt = key.attempt, %cargo)
        };
        let mut trace = self.parts.traces.follow("attempt", Kind::Internal, trace);
        trace.set("island.host.id", self.parts.fabric.host_id());
        trace.set("island.job.id", attempt.key().job_id);
        trace.set("island.attempt", attempt.key().attempt);
        let run = async move {
            let key = attempt.key();
            let context = JobContext {
                attempt: Arc::clone(&attempt),
                cache: supervisor.parts.cache.clone(),
                api_url: Arc::clone(&supervisor.parts.api_url),
                derived: Arc::clone(&supervisor.parts.derived),
                egress_mounts: Arc::clone(&supervisor.parts.egress_mounts),
                earnings: Arc::clone(&supervisor.parts.earnings),
                pool: Arc::clone(&supervisor.parts.pool),
                fabric: Arc::clone(&supervisor.parts.fabric),
                trace,
            };
            // The guard removes the attempt even if its task panics.
            let _guard = ForgetOnDrop { supervisor: &supervisor, attempt: &attempt };
            // It is large, and waits for most of its life.
            let run = Box::pin(AssertUnwindSafe(job::run(context, held)).catch_unwind());
            if run.await.is_err() {
                tracing::error!(%key, "the task of an attempt panicked");
                supervisor.end_after_panic(&attempt).await;
            }
            tracing::info!(%key, "an attempt is finished");
        };
        self.tasks.spawn(run.instrument(log));
    }

    /// Reports that an attempt failed, after its task panicked: its state and its spool are whole, as no lock was held.
    async fn end_after_panic(&self, attempt: &AttemptHandle) {
        let message = "the Island's agent failed while it ran the job";
        let outcome = Outcome::failed(Failure::of_host(FailureCode::InternalError, message));
        attempt.end(AttemptEvent::Ended { outcome });
        job::finish(attempt, &self.parts.fabric, &self.parts.earnings, async {
            attempt.step(AttemptStep::End);
        })
        .await;
    }

    fn find(&self, key: AttemptKey) -> Option<Arc<AttemptHandle>> {
        self.lock().find(key)
    }

    fn attempts(&self) -> Vec<Arc<AttemptHandle>> {
        self.lock().all()
    }

    /// Makes the next heartbeat be sent at once.
    pub fn wake_heartbeat(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    fn lock(&self) -> MutexGuard<'_, AttemptTable> {
        self.table.lock()
    }
}

/// Runs `work` as long as jobs are accepted; drops it when they are not.
pub async fn while_accepting<T>(
    mut stances: watch::Receiver<Stance>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = stances.wait_for(|stance| !stance.accepts_work()) => None,
        done = work => Some(done),
    }
}

/// The files of a hint that may be downloaded; `None` if the owner's settings exclude it.
fn hinted(settings: &PreloadSection, hint: &Preload) -> Option<Vec<Artifact>> {
    let artifacts = hint.artifacts.iter();
    let verifiable: Vec<_> = artifacts
        .filter(|artifact| artifact.sha256.is_some() && artifact.size_bytes.is_some())
        .cloned()
        .collect();
    let sizes = verifiable.iter().filter_map(|artifact| artifact.size_bytes);
    let bytes = sizes.fold(0, u64::saturating_add);
    (settings.enabled && bytes > 0 && bytes <= settings.max_bytes()).then_some(verifiable)
}

/// Cancels an attempt so that it continues on another Island.
fn hand_back(attempt: &AttemptHandle, message: &str) {
    attempt.cancel(Failure::interrupted(FailureCode::HandedBack, message));
}

struct ForgetOnDrop<'a> {
    supervisor: &'a Supervisor,
    attempt: &'a AttemptHandle,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        // An interrupted attempt stays in the journal for the next start.
        if self.attempt.state() == AttemptState::Reported {
            self.attempt.with_spool(Spool::remove);
            fail_point!("attempt.unspooled", island_daemon::failpoint::crash);
            self.supervisor.parts.journal.remove(self.attempt.key());
        }
        self.supervisor.lock().forget(self.attempt.key());
        self.supervisor.wake_heartbeat();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_pause_ends_a_download() {
        let (stance, stances) = watch::channel(Stance::default());
        assert_eq!(while_accepting(stances.clone(), async { 1 }).await, Some(1));
        let download = tokio::spawn(while_accepting(stances.clone(), pending::<()>()));
        tokio::task::yield_now().await;
        let verdict =
            Verdict::Leave { cause: crate::owner::policy::Cause::Paused, reason: "by the owner".into() };
        stance.send_modify(|stance| stance.verdict = verdict);
        assert_eq!(download.await.expect("no panic"), None);
        assert_eq!(while_accepting(stances, async { 1 }).await, None, "none starts during a pause");
    }

    #[test]
    fn hints_follow_the_owners_settings() {
        let file = |sha256: bool, size_bytes| Artifact {
            name: "model".into(),
            url: "hf://a/b".into(),
            sha256: sha256.then(|| island_cache::digest_of(b"a")),
            size_bytes,
        };
        let hint = |artifacts| {
            let workload_slug = "a".parse().expect("a slug");
            Preload { v: 1, workload_slug, artifacts, sent_at: None }
        };
        let settings = PreloadSection { max_gb: 1, ..PreloadSection::default() };
        let gigabyte = file(true, Some(1 << 30));
        let both = hint(vec![gigabyte.clone(), file(false, Some(5)), file(true, None)]);
        assert_eq!(hinted(&settings, &both), Some(vec![gigabyte.clone()]));
        let off = PreloadSection { enabled: false, ..settings.clone() };
        assert_eq!(hinted(&off, &both), None);
        assert_eq!(
            hinted(&settings, &hint(vec![gigabyte, file(true, Some(1))])),
            None,
            "more than one gigabyte"
        );
        assert_eq!(hinted(&settings, &hint(vec![file(true, Some(u64::MAX)), file(true, Some(2))])), None);
    }
}
