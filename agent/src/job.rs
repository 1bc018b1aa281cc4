//! One attempt from its acceptance to its committed end: a task that prepares, runs and reports.

mod prepare;

use std::{sync::Arc, time::Duration};

use fail::fail_point;
use island_cache::Cache;
use island_daemon::{
    chain::Chain,
    latest::Latest,
    traces::{Kind, Span},
};
use island_protocol::{
    FABRIC_VERSION,
    cargo::CargoSpec,
    event::{AttemptEvent, Numbered},
    fabric::{Assignment, Status},
    ids::AttemptKey,
    job::{Failure, FailureCode, Fault, Outcome},
};
use island_runtimes_api::{RunRequest, Step};
use tokio::sync::mpsc;

use crate::{
    attempt::{
        handle::AttemptHandle,
        state::{AttemptState, AttemptStep},
    },
    clock,
    disk::{
        artifacts::Files,
        derived::Derived,
        spool::{Spool, SpoolError},
    },
    fabric::Fabric,
    network::egress::{EgressMount, EgressMounts, beside},
    owner::earnings::Earnings,
    pool::{ModelKey, Pool},
    report,
    worker::{Command, WorkerClaim, WorkerExit, WorkerHandle, WorkerState},
};

/// Time an engine has to end a cancelled attempt.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What the task of an attempt uses.
#[derive(Debug)]
pub struct JobContext {
    /// The attempt.
    pub attempt: Arc<AttemptHandle>,
    /// The model cache.
    pub cache: Cache,
    /// Address of the coordinator, for files that it serves.
    pub api_url: Arc<str>,
    /// The store of derived files.
    pub derived: Arc<Derived>,
    /// Creates egress mounts for containers.
    pub egress_mounts: Arc<EgressMounts>,
    /// Records earnings.
    pub earnings: Arc<Earnings>,
    /// The pool of workers.
    pub pool: Arc<Pool>,
    /// Reports events to the coordinator.
    pub fabric: Arc<Fabric>,
    /// From the acceptance of the attempt to its end on this Island.
    pub trace: Span,
}

/// Where an attempt of an earlier run of the agent was found.
#[derive(Debug)]
pub enum RecoveredAttempt {
    /// In a worker that still runs.
    InWorker(Arc<WorkerHandle>),
    /// Only in the journal.
    JournalOnly,
}

/// Why a try in a worker ended without an event of the worker.
#[derive(Debug)]
enum Broken {
    /// The attempt failed.
    Failed(Failure),
    /// The worker failed, for a reason that is not the attempt's.
    Worker { failure: Failure, retry: bool },
}

/// Name of the programs of engines in traces.
const WORKER: &str = "island-worker";
/// Bytes of its worker's folder that a job may be expected to fill, and of its debug log.
const SCRATCH_BYTES: u64 = 32 << 20;

/// Bytes on the disk that a job of this Cargo may need beside its files: its events, its debug log and its worker's folder.
pub fn job_space(cargo: &CargoSpec) -> u64 {
    cargo.limits.max_output_bytes.saturating_add(SCRATCH_BYTES)
}

/// Runs an attempt until its end is committed or the coordinator drops it.
pub async fn run(mut context: JobContext, held: Option<RecoveredAttempt>) {
    let (attempt, fabric) = (Arc::clone(&context.attempt), Arc::clone(&context.fabric));
    let (earnings, pool) = (Arc::clone(&context.earnings), Arc::clone(&context.pool));
    let execute = async {
        let own_worker = OwnWorker { pool: &pool, assignment: attempt.assignment() };
        let executed = context.execute(held).await;
        drop(own_worker);
        if let Err(failure) = executed {
            let outcome = Outcome::failed(failure);
            attempt.end(AttemptEvent::Ended { outcome });
        }
        attempt.step(AttemptStep::End);
        context.record_end();
        context.publish_end_status().await;
    };
    Box::pin(finish(&attempt, &fabric, &earnings, execute)).await;
}

/// Reports an attempt while `execute` runs, until both are done or the coordinator drops it.
pub async fn finish(
    attempt: &AttemptHandle,
    fabric: &Fabric,
    earnings: &Earnings,
    execute: impl Future<Output = ()>,
) {
    let work = async { tokio::join!(execute, report::run(attempt, fabric, earnings)) };
    tokio::select! {
        biased;
        () = attempt.forgotten().cancelled() => {
            attempt.step(AttemptStep::Drop);
        }
        ((), ()) = work => {
            attempt.step(AttemptStep::Commit);
        }
    }
}

impl JobContext {
    /// Returns `Ok` when the attempt's end is in its spool.
    async fn execute(&self, held: Option<RecoveredAttempt>) -> Result<(), Failure> {
        if self.attempt.with_spool(|spool| spool.end().is_some()) {
            return Ok(());
        }
        let mut broken = match held {
            None => None,
            Some(RecoveredAttempt::InWorker(worker)) => self.resume(worker).await.err(),
            Some(RecoveredAttempt::JournalOnly) => {
                let message = "the Island's agent was restarted and the engine's process is gone";
                let failure = Failure::of_host(FailureCode::RuntimeCrashed, message);
                Some(Broken::Worker { failure, retry: true })
                    .filter(|_| self.attempt.with_spool(Spool::has_output))
            }
        };
        let resumed = matches!(self.attempt.state(), AttemptState::Running) && broken.is_none();
        if resumed {
            return Ok(());
        }
        let mut tries_left = 2;
        loop {
            match broken.take() {
                Some(Broken::Failed(failure)) => return Err(failure),
                Some(Broken::Worker { failure, retry }) => {
                    let delivered = self.attempt.with_spool(Spool::has_output);
                    if delivered || !retry || tries_left == 0 || self.attempt.cancelled().is_cancelled() {
                        return Err(self.attempt.reason().unwrap_or(failure));
                    }
                    tracing::info!(key = %self.attempt.key(), code = %failure.code, "retrying in a new worker");
                    self.attempt.step(AttemptStep::Retry);
                }
                None => {}
            }
            tries_left -= 1;
            match self.try_once().await {
                Ok(()) => return Ok(()),
                Err(error) => broken = Some(error),
            }
        }
    }

    /// Prepares the attempt and runs it in a worker from the pool.
    async fn try_once(&self) -> Result<(), Broken> {
        self.attempt.step(AttemptStep::Prepare);
        self.publish_status("preparing", None).await;
        let prepare = async {
            let trace = self.trace.child("prepare", Kind::Internal);
            let space = self.reserve(job_space(&self.attempt.assignment().cargo)).await?;
            Ok::<_, Broken>((space, self.prepare(&trace).await?))
        };
        let (_space, (files, visit)) = self.until_stopped(prepare).await.map_err(Broken::Failed)??;
        self.run_in(&files, visit).await
    }

    async fn run_in(&self, files: &Files, visit: WorkerClaim) -> Result<(), Broken> {
        let slots = Arc::clone(&visit.worker().slots);
        let place = self.until_stopped(slots.acquire_owned()).await.map_err(Broken::Failed)?;
        let Ok(_place) = place else { return Err(broken_by(visit.worker()).await) };
        self.push(AttemptEvent::Status { state: "running".into() })?;
        self.attempt.step(AttemptStep::Start);
        self.publish_status("started", None).await;
        let trace = self.trace.child("run", Kind::Internal);
        let assignment = self.attempt.assignment();
        let request = RunRequest {
            cargo: assignment.cargo.clone(),
            input: assignment.input.clone(),
            artifacts: files.paths.clone(),
            continues: assignment.continues.clone(),
            continues_reasoning: assignment.continues_reasoning.clone(),
            scope: assignment.scope.clone(),
        };
        // Before the worker receives the attempt: it mounts the folder into the container.
        let mut exit = self.exit()?;
        let (sink, events) = mpsc::unbounded_channel();
        let command = Command::Run {
            attempt: Arc::clone(&self.attempt),
            first_event: self.attempt.with_spool(Spool::next),
            request: Box::new(request),
            reports_steps: trace.is_recorded(),
            sink,
        };
        fail_point!("job.begin", island_daemon::failpoint::crash);
        let guard = RunGuard::begin(visit.worker(), self.attempt.key(), command);
        let done = beside(exit.as_mut(), self.follow(guard, events, &trace)).await;
        self.record_steps(&trace);
        // Before the list of connections, which is appended when `exit` is dropped.
        self.pool.collect_log(visit.worker(), self.attempt.key());
        self.replace_if_failed(visit.worker());
        self.learn_from(visit.worker(), &done);
        done
    }

    /// Follows an attempt that a worker still holds.
    async fn resume(&self, worker: Arc<WorkerHandle>) -> Result<(), Broken> {
        let visit = WorkerClaim::new(worker, &self.attempt.assignment().cargo);
        // The job already has its slot in the worker; the permit is released for others.
        let _place = visit.worker().slots.clone().try_acquire_owned().ok();
        self.attempt.step(AttemptStep::Start);
        // At the path that the container has mounted.
        let mut exit = self.exit()?;
        let (sink, events) = mpsc::unbounded_channel();
        let from = self.attempt.with_spool(Spool::next);
        let command = Command::Resume { attempt: Arc::clone(&self.attempt), from, sink };
        let guard = RunGuard::begin(visit.worker(), self.attempt.key(), command);
        // The worker was not requested to report its steps.
        let done = beside(exit.as_mut(), self.follow(guard, events, &Span::default())).await;
        // Before the list of connections, which is appended when `exit` is dropped.
        self.pool.collect_log(visit.worker(), self.attempt.key());
        self.replace_if_failed(visit.worker());
        self.learn_from(visit.worker(), &done);
        done
    }

    /// Counts how a run ended for what this Island withholds: that of a job that was stopped does not count, nor a failure of the job.
    fn learn_from(&self, worker: &WorkerHandle, done: &Result<(), Broken>) {
        if self.attempt.cancelled().is_cancelled() {
            return;
        }
        let (cargo, key) = (&self.attempt.assignment().cargo, self.attempt.key());
        let failure = match (done, self.attempt.with_spool(|spool| spool.end().cloned())) {
            (Ok(()), Some(AttemptEvent::Ended { outcome: Outcome::Completed { .. } })) => {
                return self.pool.note_success(worker, cargo);
            }
            (Ok(()), Some(AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } })) => failure,
            (Err(Broken::Worker { failure, .. }), _) => failure.clone(),
            _ => return,
        };
        if let WorkerState::Gone(exit) = worker.state().latest()
            && !exit.may_be_of_this_island()
        {
            return;
        }
        if is_of_the_engine(&failure) || failure.code == FailureCode::RuntimeStalled {
            self.pool.note_failure(cargo, &worker.launch.gpus, Some(key.job_id), &failure.message);
        }
    }

    /// Replaces the worker if the attempt ended with a failure of its engine.
    fn replace_if_failed(&self, worker: &Arc<WorkerHandle>) {
        let end = self.attempt.with_spool(|spool| spool.end().cloned());
        if let Some(AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }) = end
            && is_of_the_engine(&failure)
        {
            self.pool.replace_failed(worker);
            if self.attempt.assignment().isolated {
                // By now it may not be listed under its key, by which [`OwnWorker`] finds it.
                drop(self.pool.end(worker));
            }
        }
    }

    fn exit(&self) -> Result<Option<EgressMount>, Broken> {
        self.egress_mounts.open(self.attempt.key(), &self.attempt.assignment().cargo).map_err(Broken::Failed)
    }

    /// Receives a worker's events until the end.
    async fn follow(
        &self,
        mut guard: RunGuard<'_>,
        mut events: mpsc::UnboundedReceiver<Vec<Numbered<AttemptEvent>>>,
        trace: &Span,
    ) -> Result<(), Broken> {
        let mut first_output = Some(trace.child("first output", Kind::Internal));
        let (key, worker) = (guard.key, guard.worker);
        let mut told_to_end = false;
        let stop = self.stopped();
        tokio::pin!(stop);
        let grace = tokio::time::sleep(Duration::MAX);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                biased;
                failure = &mut stop, if !told_to_end => {
                    told_to_end = true;
                    worker.send(Command::Cancel(key, failure));
                    grace.as_mut().reset(tokio::time::Instant::now() + CANCEL_GRACE);
                }
                batch = events.recv() => {
                    let Some(batch) = batch else {
                        guard.ended = true;
                        return Err(broken_by(worker).await);
                    };
                    let ended = self.take(worker, batch)?;
                    first_output = first_output.filter(|_| !self.attempt.with_spool(Spool::has_output));
                    if ended {
                        guard.ended = true;
                        return Ok(());
                    }
                }
                // Its task, which keeps the sender of the events, waits for its end.
                () = worker.hung() => return Err(broken_by(worker).await),
                () = &mut grace, if told_to_end => {
                    let ends_worker = is_alone(worker.stats().jobs);
                    tracing::warn!(%key, instance = %worker.instance, ends_worker, "an engine did not end a cancelled attempt");
                    if ends_worker {
                        worker.send(Command::Kill(WorkerExit::Stalled));
                    }
                    return Err(Broken::Failed(self.attempt.reason().unwrap_or_else(deadline_failure)));
                }
            }
        }
    }

    /// Records the steps that the worker reported.
    fn record_steps(&self, run: &Span) {
        for Step { phase, begin_us, length_us } in self.attempt.take_steps() {
            let (begin, length) = (Duration::from_micros(begin_us), Duration::from_micros(length_us));
            run.record_step(WORKER, phase.as_str(), begin, length);
        }
    }

    /// Records the end of the attempt.
    fn record_end(&mut self) {
        let end = self.attempt.with_spool(|spool| spool.end().cloned());
        if let Some(AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }) = end {
            self.trace.fail(failure.code);
        }
    }

    /// Appends a batch to the spool. Returns `true` when the attempt has ended.
    fn take(&self, worker: &WorkerHandle, batch: Vec<Numbered<AttemptEvent>>) -> Result<bool, Broken> {
        let key = self.attempt.key();
        self.attempt.append(batch).map_err(|error| Broken::Failed(spool_failure(&error)))?;
        let (next, ended) = self.attempt.with_spool(|spool| (spool.next(), spool.end().is_some()));
        fail_point!("job.spooled", island_daemon::failpoint::crash);
        worker.send(Command::Spooled(key, next));
        Ok(ended)
    }

    /// Runs `work` unless the attempt is stopped first.
    async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            failure = self.stopped() => Err(failure),
            done = work => Ok(done),
        }
    }

    /// Resolves with the reason when the attempt is cancelled or past its deadline.
    async fn stopped(&self) -> Failure {
        loop {
            let left = self.attempt.time_left(clock::boot_ms());
            if left.is_zero() {
                self.attempt.cancel(deadline_failure());
                break;
            }
            tokio::select! {
                biased;
                () = self.attempt.cancelled().cancelled() => break,
                // Downloads may have added time meanwhile.
                () = tokio::time::sleep(left) => {}
            }
        }
        self.attempt.reason().unwrap_or_else(deadline_failure)
    }

    fn push(&self, event: AttemptEvent) -> Result<(), Broken> {
        self.attempt.push(event).map_err(|error| Broken::Failed(spool_failure(&error)))
    }

    async fn publish_status(&self, state: &str, code: Option<FailureCode>) {
        if self.attempt.is_fenced(clock::boot_ms(), self.fabric.fence_ms()) {
            return;
        }
        let (key, timestamp) = (self.attempt.key(), clock::now());
        let status = Status { v: FABRIC_VERSION, key, state: state.to_owned(), code, timestamp };
        self.fabric.publish_status(&status).await;
    }

    async fn publish_end_status(&self) {
        match self.attempt.with_spool(|spool| spool.end().cloned()) {
            Some(AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }) => {
                self.publish_status("failed", Some(failure.code)).await;
            }
            _ => self.publish_status("completed", None).await,
        }
    }
}

/// The worker of an isolated attempt, if it is one: no other job can use it. On drop it is ended, also if the attempt was cancelled before it
/// ran, or dropped.
struct OwnWorker<'a> {
    pool: &'a Pool,
    assignment: &'a Assignment,
}

impl Drop for OwnWorker<'_> {
    fn drop(&mut self) {
        if self.assignment.isolated {
            self.pool.end_of(&ModelKey::of_attempt(self.assignment));
        }
    }
}

/// An attempt in a worker, from the command that starts or adopts it. On drop, releases what the worker's task holds for the attempt, and
/// cancels the attempt in the worker unless it has ended there.
struct RunGuard<'a> {
    worker: &'a WorkerHandle,
    key: AttemptKey,
    ended: bool,
}

impl<'a> RunGuard<'a> {
    /// Sends the command, which must start or adopt the attempt.
    fn begin(worker: &'a WorkerHandle, key: AttemptKey, command: Command) -> Self {
        let guard = Self { worker, key, ended: false };
        worker.send(command);
        guard
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let message = "the attempt is no longer followed on this Island";
            self.worker
                .send(Command::Cancel(self.key, Failure::interrupted(FailureCode::InternalError, message)));
            self.worker.send(Command::Spooled(self.key, u64::MAX));
        }
        self.worker.send(Command::Release(self.key));
    }
}

/// Whether a worker that runs this many jobs may be ended because one of them does not end. Otherwise a consumer could end the jobs of others
/// by cancelling one in the middle of a long step. The engine ends it with that step; one that hangs is detected by its pulses.
fn is_alone(jobs: u32) -> bool {
    jobs <= 1
}

async fn broken_by(worker: &WorkerHandle) -> Broken {
    let death = worker.loss().await;
    Broken::Worker { failure: death.failure(), retry: death.is_worth_a_retry() }
}

/// Whether an engine or its device failed, not the job: further jobs in the same process would probably fail likewise.
fn is_of_the_engine(failure: &Failure) -> bool {
    let codes = [FailureCode::InternalError, FailureCode::RuntimeCrashed, FailureCode::OutOfMemory];
    failure.fault == Fault::Host && codes.contains(&failure.code)
}

fn deadline_failure() -> Failure {
    Failure::interrupted(FailureCode::DeadlineExceeded, "the job's time limit was met")
}

fn spool_failure(error: &SpoolError) -> Failure {
    tracing::error!(error = %Chain(error), "an attempt's events cannot be stored");
    if error.is_disk_full() {
        Failure::of_host(FailureCode::DiskFull, "no disk space for the job's events")
    } else {
        Failure::of_host(FailureCode::InternalError, "the job's events could not be stored")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use island_protocol::ids::InstanceId;
    use island_runtimes_worker::launch::GpuGrant;
    use tokio::sync::watch;

    use super::*;
    use crate::{identity::Identity, inventory::meter::Sample, owner::policy::Stance, testing};

    /// What the task of an attempt uses, over a folder and without a connection.
    async fn context(folder: &Path, assignment: Assignment) -> JobContext {
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = watch::channel(Stance::default());
        let identity = Identity::load_or_create(folder, testing::host).expect("an identity");
        let spool = Spool::open(folder, assignment.key, 1).expect("a spool");
        let now = clock::boot_ms();
        JobContext {
            attempt: AttemptHandle::new(assignment, spool, now, now),
            cache: Cache::open(testing::cache(folder)).expect("a cache"),
            api_url: "http://127.0.0.1:9".into(),
            derived: testing::derived(folder),
            egress_mounts: testing::egress_mounts(folder),
            earnings: Arc::new(Earnings::load(folder)),
            pool: testing::pool(folder, load, stance).await,
            fabric: Fabric::new(Arc::new(identity), InstanceId(uuid::Uuid::nil())),
            trace: Span::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_does_not_wait_for_the_end_of_a_worker_that_hangs() {
        let folder = tempfile::tempdir().expect("a folder");
        let context = context(folder.path(), testing::assignment(1, 1)).await;
        let cargo = context.attempt.assignment().cargo.clone();
        let (_lives, state) = watch::channel(WorkerState::Ready);
        // Its task waits for its end, and keeps the command with the sender of the job's events.
        let (worker, _commands) = WorkerHandle::in_state(cargo.clone(), vec![GpuGrant::default()], state);
        worker.slots.add_permits(1);
        let files = Files::default();
        let run = context.run_in(&files, WorkerClaim::new(Arc::clone(&worker), &cargo));
        let hang = async {
            while context.attempt.state() != AttemptState::Running {
                tokio::task::yield_now().await;
            }
            worker.note_hang();
        };
        let both = Box::pin(async { tokio::join!(run, hang) });
        let (ended, ()) = tokio::time::timeout(Duration::from_mins(1), both).await.expect("it ends");
        let Err(Broken::Worker { failure, retry: true }) = ended else { panic!("{ended:?}") };
        assert_eq!(failure.code, FailureCode::RuntimeStalled);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_of_an_isolated_job_is_killed_also_if_its_engine_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut assignment = testing::assignment(1, 1);
        assignment.isolated = true;
        let (key, cargo) = (ModelKey::of_attempt(&assignment), assignment.cargo.clone());
        let context = context(folder.path(), assignment).await;
        let (_lives, state) = watch::channel(WorkerState::Ready);
        // It was taken over, and does not stop.
        let (worker, mut commands) = WorkerHandle::in_state(cargo, vec![GpuGrant::default()], state);
        context.pool.list(key, Arc::clone(&worker));
        let failure = Failure::of_host(FailureCode::RuntimeCrashed, "the device is lost");
        context.attempt.end(AttemptEvent::Ended { outcome: Outcome::failed(failure) });
        let own_worker = OwnWorker { pool: &context.pool, assignment: context.attempt.assignment() };
        context.replace_if_failed(&worker);
        drop(own_worker);
        let killed =
            async { while !matches!(commands.recv().await, Some(Command::Kill(WorkerExit::Stalled))) {} };
        tokio::time::timeout(Duration::from_mins(1), killed).await.expect("it is killed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_for_memory_is_one_job_of_its_model() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut assignment = testing::assignment(1, 1);
        // More than any machine has.
        assignment.cargo.required_ram_mb = 1 << 40;
        let key = ModelKey::of_attempt(&assignment);
        let context = context(folder.path(), assignment).await;
        let Err(Broken::Failed(failure)) = context.acquire(&Files::default()).await else {
            panic!("there is no memory for it")
        };
        assert_eq!(failure.code, FailureCode::OutOfMemory);
        let jobs = context.pool.demand_for(&key);
        assert!((0.9..=1.0).contains(&jobs), "its tries count as {jobs} jobs");
    }

    #[test]
    fn failures_of_an_engine_are_distinguished_from_those_of_jobs() {
        let of_host = |code| Failure::of_host(code, "the device is lost");
        assert!(is_of_the_engine(&of_host(FailureCode::RuntimeCrashed)));
        assert!(is_of_the_engine(&of_host(FailureCode::OutOfMemory)));
        assert!(!is_of_the_engine(&of_host(FailureCode::DiskFull)));
        assert!(!is_of_the_engine(&Failure::of_job(FailureCode::InvalidInput, "the prompt is empty")));
        assert!(!is_of_the_engine(&Failure::interrupted(FailureCode::InternalError, "stopped")));
    }

    #[test]
    fn only_a_worker_without_other_jobs_is_ended() {
        assert!(is_alone(1), "a worker with this job only is ended");
        assert!(!is_alone(2));
    }
}
