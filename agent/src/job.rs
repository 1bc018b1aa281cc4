//! One attempt from its acceptance to its committed end: a task that prepares, runs and reports.

pub mod cell;
mod prepare;
pub mod state;

use std::{sync::Arc, time::Duration};

use island_cache::Cache;
use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    event::{AttemptEvent, Numbered},
    fabric::Status,
    ids::AttemptKey,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::RunRequest;
use tokio::sync::mpsc;

use self::{cell::JobCell, state::JobStep};
use crate::{
    artifacts::Files,
    clock,
    derived::Derived,
    earnings::Earnings,
    egress::{Exit, Exits, beside},
    link::fabric::Fabric,
    report,
    spool::{Spool, SpoolError},
    supervisor::pool::Pool,
    worker::{Death, Order, Visit, WorkerHandle},
};

/// Time an engine gets to end a cancelled attempt.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// What an attempt's task works with.
#[derive(Debug)]
pub struct JobContext {
    /// The attempt.
    pub cell: Arc<JobCell>,
    /// The store of models.
    pub cache: Cache,
    /// Address of the coordinator, for files that lie there.
    pub api_url: Arc<str>,
    /// What was made of the files in it.
    pub derived: Arc<Derived>,
    /// Ways out for containers.
    pub exits: Arc<Exits>,
    /// What its end earned.
    pub earnings: Arc<Earnings>,
    /// The workers.
    pub pool: Arc<Pool>,
    /// The way out.
    pub fabric: Arc<Fabric>,
}

/// Where an attempt of an earlier start was found.
#[derive(Debug)]
pub enum Held {
    /// In a worker that still runs.
    In(Arc<WorkerHandle>),
    /// In the journal alone.
    Nowhere,
}

/// How one try in a worker ended without the worker saying so.
#[derive(Debug)]
enum Broken {
    /// The attempt's own failure.
    Failed(Failure),
    /// The worker's, before which nothing of the attempt is to blame.
    Worker { failure: Failure, retry: bool },
}

/// Runs an attempt until its end is committed or nobody wants it any more.
pub async fn run(context: JobContext, held: Option<Held>) {
    let cell = Arc::clone(&context.cell);
    let execute = async {
        if let Err(failure) = context.execute(held).await {
            let outcome = Outcome::failed(failure);
            cell.end(AttemptEvent::Ended { outcome });
        }
        cell.step(JobStep::End);
        context.tell_end().await;
    };
    let work = async { tokio::join!(execute, report::run(&cell, &context.fabric, &context.earnings)) };
    tokio::select! {
        biased;
        () = cell.forgotten().cancelled() => {
            cell.step(JobStep::Drop);
        }
        ((), ()) = work => {
            cell.step(JobStep::Commit);
        }
    }
}

impl JobContext {
    /// Ends in `Ok` when the attempt's end is in its spool.
    async fn execute(&self, held: Option<Held>) -> Result<(), Failure> {
        if self.cell.with_spool(|spool| spool.end().is_some()) {
            return Ok(());
        }
        let mut broken = match held {
            None => None,
            Some(Held::In(worker)) => self.resume(worker).await.err(),
            Some(Held::Nowhere) => {
                let message = "the Island's agent was restarted and the engine's process is gone";
                let failure = Failure::of_host(FailureCode::RuntimeCrashed, message);
                Some(Broken::Worker { failure, retry: true })
                    .filter(|_| self.cell.with_spool(Spool::has_output))
            }
        };
        let resumed = matches!(self.cell.state(), state::JobState::Running) && broken.is_none();
        if resumed {
            return Ok(());
        }
        let mut tries_left = 2;
        loop {
            match broken.take() {
                Some(Broken::Failed(failure)) => return Err(failure),
                Some(Broken::Worker { failure, retry }) => {
                    let delivered = self.cell.with_spool(Spool::has_output);
                    if delivered || !retry || tries_left == 0 || self.cell.cancelled().is_cancelled() {
                        return Err(self.cell.reason().unwrap_or(failure));
                    }
                    tracing::info!(key = %self.cell.key(), code = %failure.code, "starting again in a fresh worker");
                    self.cell.step(JobStep::Retry);
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

    /// Prepares and runs in a worker of its own choice.
    async fn try_once(&self) -> Result<(), Broken> {
        self.cell.step(JobStep::Prepare);
        self.tell("preparing", None).await;
        let (files, visit) = self.until_stopped(self.prepare()).await.map_err(Broken::Failed)??;
        self.run_in(&files, visit).await
    }

    async fn run_in(&self, files: &Files, visit: Visit) -> Result<(), Broken> {
        let slots = Arc::clone(&visit.worker().slots);
        let place = self.until_stopped(slots.acquire_owned()).await.map_err(Broken::Failed)?;
        let Ok(_place) = place else { return Err(broken_by(visit.worker()).await) };
        self.push(AttemptEvent::Status { state: "running".into() })?;
        self.cell.step(JobStep::Start);
        self.tell("started", None).await;
        let assignment = self.cell.assignment();
        let request = RunRequest {
            cargo: assignment.cargo.clone(),
            input: assignment.input.clone(),
            artifacts: files.paths.clone(),
            continues: assignment.continues.clone(),
            scope: assignment.scope.clone(),
        };
        // Before the worker gets the attempt: it shows the folder to the container.
        let mut exit = self.exit()?;
        let (sink, events) = mpsc::unbounded_channel();
        let order = Order::Run {
            cell: Arc::clone(&self.cell),
            first_event: self.cell.with_spool(Spool::next),
            request: Box::new(request),
            sink,
        };
        let guard = RunGuard::begin(visit.worker(), self.cell.key(), order);
        let done = beside(exit.as_mut(), self.follow(guard, events)).await;
        if assignment.isolated {
            visit.worker().order(Order::Stop { now: false });
        }
        done
    }

    /// Goes on with an attempt that a worker still holds.
    async fn resume(&self, worker: Arc<WorkerHandle>) -> Result<(), Broken> {
        let visit = Visit::new(worker);
        // Its place is taken already; what is left over is for others.
        let _place = visit.worker().slots.clone().try_acquire_owned().ok();
        self.cell.step(JobStep::Start);
        // Where the container looks for it.
        let mut exit = self.exit()?;
        let (sink, events) = mpsc::unbounded_channel();
        let from = self.cell.with_spool(Spool::next);
        let order = Order::Resume { cell: Arc::clone(&self.cell), from, sink };
        let guard = RunGuard::begin(visit.worker(), self.cell.key(), order);
        beside(exit.as_mut(), self.follow(guard, events)).await
    }

    fn exit(&self) -> Result<Option<Exit>, Broken> {
        self.exits.open(self.cell.key(), &self.cell.assignment().cargo).map_err(Broken::Failed)
    }

    /// Takes a worker's events until the end.
    async fn follow(
        &self,
        mut guard: RunGuard<'_>,
        mut events: mpsc::UnboundedReceiver<Vec<Numbered<AttemptEvent>>>,
    ) -> Result<(), Broken> {
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
                    worker.order(Order::Cancel(key, failure));
                    grace.as_mut().reset(tokio::time::Instant::now() + CANCEL_GRACE);
                }
                batch = events.recv() => {
                    let Some(batch) = batch else {
                        guard.ended = true;
                        return Err(broken_by(worker).await);
                    };
                    let ended = self.take(worker, batch)?;
                    if ended {
                        guard.ended = true;
                        return Ok(());
                    }
                }
                () = &mut grace, if told_to_end => {
                    tracing::warn!(%key, instance = %worker.instance, "an engine does not end when told to");
                    worker.order(Order::Kill(Death::Stalled));
                    return Err(Broken::Failed(self.cell.reason().unwrap_or_else(deadline_failure)));
                }
            }
        }
    }

    /// Spools a batch; true when the attempt has ended.
    fn take(&self, worker: &WorkerHandle, batch: Vec<Numbered<AttemptEvent>>) -> Result<bool, Broken> {
        let key = self.cell.key();
        self.cell.append(batch).map_err(|error| Broken::Failed(spool_failure(&error)))?;
        let (next, ended) = self.cell.with_spool(|spool| (spool.next(), spool.end().is_some()));
        worker.order(Order::Spooled(key, next));
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
        let left_ms = self.cell.assignment().deadline.unix_ms() - clock::now().unix_ms();
        let left = Duration::from_millis(left_ms.clamp(0, 30 * 24 * 3_600_000) as u64);
        tokio::select! {
            biased;
            () = self.cell.cancelled().cancelled() => {}
            () = tokio::time::sleep(left) => self.cell.cancel(deadline_failure()),
        }
        self.cell.reason().unwrap_or_else(deadline_failure)
    }

    fn push(&self, event: AttemptEvent) -> Result<(), Broken> {
        self.cell.push(event).map_err(|error| Broken::Failed(spool_failure(&error)))
    }

    async fn tell(&self, state: &str, code: Option<FailureCode>) {
        if self.cell.is_fenced(clock::boot_ms(), self.fabric.fence_ms()) {
            return;
        }
        let (key, timestamp) = (self.cell.key(), clock::now());
        let status = Status { v: FABRIC_VERSION, key, state: state.to_owned(), code, timestamp };
        self.fabric.publish_status(&status).await;
    }

    async fn tell_end(&self) {
        match self.cell.with_spool(|spool| spool.end().cloned()) {
            Some(AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }) => {
                self.tell("failed", Some(failure.code)).await;
            }
            _ => self.tell("completed", None).await,
        }
    }
}

/// An attempt in a worker, from the order that brings it there. Dropping it releases what the worker's task keeps for the attempt,
/// and cancels the attempt in the worker unless it has ended there.
struct RunGuard<'a> {
    worker: &'a WorkerHandle,
    key: AttemptKey,
    ended: bool,
}

impl<'a> RunGuard<'a> {
    /// Sends the order, which must be one that brings the attempt into the worker.
    fn begin(worker: &'a WorkerHandle, key: AttemptKey, order: Order) -> Self {
        let guard = Self { worker, key, ended: false };
        worker.order(order);
        guard
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let message = "the attempt is no longer followed on this Island";
            self.worker
                .order(Order::Cancel(self.key, Failure::interrupted(FailureCode::InternalError, message)));
            self.worker.order(Order::Spooled(self.key, u64::MAX));
        }
        self.worker.order(Order::Release(self.key));
    }
}

async fn broken_by(worker: &WorkerHandle) -> Broken {
    let death = worker.death().await;
    Broken::Worker { failure: death.failure(), retry: death.is_worth_a_retry() }
}

fn deadline_failure() -> Failure {
    Failure::interrupted(FailureCode::DeadlineExceeded, "the job's time limit was met")
}

fn spool_failure(error: &SpoolError) -> Failure {
    tracing::error!(error = %Chain(error), "an attempt's events cannot be kept");
    if error.is_disk_full() {
        Failure::of_host(FailureCode::DiskFull, "no room for the job's events")
    } else {
        Failure::of_host(FailureCode::InternalError, "the job's events could not be kept")
    }
}
