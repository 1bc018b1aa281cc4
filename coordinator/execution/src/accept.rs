//! Accepts a job: it is stored, then its runner starts. A request that is dropped in between interrupts neither.

use std::sync::Arc;

use island_daemon::traces::{Kind, Span};
use island_protocol::ids::JobId;
use tokio::sync::oneshot;

use super::{
    Execution, initial_placement::PlacementClaim, input_memory::ReservedInput, job_handle::JobHandle,
    log::Log, machine::Machine, publisher::Published,
};
use island_coordinator_domain::{catalogue::Cargo, fleet::Candidates, job::Job, ledger};

/// State of one of this coordinator's open jobs.
#[derive(Debug)]
pub(super) enum Entry {
    /// The job is being stored or resumed.
    Reserved,
    /// A runner executes it.
    Running(Arc<JobHandle>),
}

/// The exclusive right to start the runner of a job. Released on drop if unused.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) execution: Arc<Execution>,
    job: JobId,
    is_used: bool,
}

impl Reservation {
    /// Reserves a job that has a new id.
    fn new_job(execution: &Arc<Execution>, job: JobId) -> Self {
        execution.lock().insert(job, Entry::Reserved);
        Self { execution: execution.clone(), job, is_used: false }
    }

    /// Reserves a stored job. Returns `None` if it has a runner or is reserved already.
    pub(super) fn stored_job(execution: &Arc<Execution>, job: JobId) -> Option<Self> {
        let mut jobs = execution.lock();
        if jobs.contains_key(&job) {
            return None;
        }
        jobs.insert(job, Entry::Reserved);
        Some(Self { execution: execution.clone(), job, is_used: false })
    }

    /// Registers the job's runner.
    pub(super) fn fill(mut self, handle: Arc<JobHandle>) {
        self.is_used = true;
        self.execution.lock().insert(self.job, Entry::Running(handle));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_used {
            self.execution.forget(self.job);
        }
    }
}

/// A job that is about to be stored. If it is dropped without [`Self::start`], its reservation and the claim on its
/// Island are released. If it was stored all the same, because the database's reply was lost, [`super::reconcile`]
/// resumes it.
#[derive(Debug)]
pub struct NewJob {
    pub job: Job,
    cargo: Arc<Cargo>,
    /// From acceptance to the end.
    pub trace: Span,
    claim: Option<PlacementClaim>,
    input: ReservedInput,
    reservation: Reservation,
}

impl NewJob {
    /// Whether an Island was claimed for its first attempt.
    pub fn is_placed(&self) -> bool {
        self.claim.is_some()
    }

    /// Starts the runner of the job, which must be stored. The job's first events are in the log when this returns.
    pub fn start(self) -> Arc<JobHandle> {
        let execution = self.reservation.execution.clone();
        let context = &execution.context;
        context.metrics.jobs.accepted(&self.job.workload);
        context.metrics.books.moved(ledger::Kind::Hold.as_str(), self.job.price);
        let log = Arc::new(Log::new(self.job.head.clone()));
        let machine = Machine::new(self.job, log.clone(), Some(self.cargo), context.terms(), context.now());
        // The machine releases the claim from now on.
        if let Some(claim) = self.claim {
            claim.keep();
        }
        execution.spawn(self.reservation, self.input, machine, log, Published::default(), self.trace)
    }
}

impl Execution {
    /// Reserves a job that is about to be stored. If an Island is free, of `among` if these are known, its first attempt is added to the
    /// job. Returns `None` if there is no memory for its input.
    pub fn prepare(
        self: &Arc<Self>,
        mut job: Job,
        cargo: &Arc<Cargo>,
        among: Option<&Candidates>,
        mut trace: Span,
    ) -> Option<NewJob> {
        let input = self.input_memory.reserve(&job.input)?;
        trace.set("island.job.id", job.id);
        trace.set("island.account.id", job.account);
        trace.set("island.cargo", &job.workload);
        let placing = trace.child("place", Kind::Internal);
        let claim = PlacementClaim::claim(&self.context.fleet, &self.queue, &mut job, &cargo.spec, among);
        drop(placing);
        let reservation = Reservation::new_job(self, job.id);
        Some(NewJob { job, cargo: cargo.clone(), trace, claim, input, reservation })
    }

    /// Runs `work` in a separate task, so that it continues if the caller is dropped. Returns `None` if the coordinator
    /// stops before `work` ends.
    pub async fn shielded<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let hard = self.hard.clone();
        self.spawn_task(async move {
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                value = work => drop(done.send(value)),
            }
        });
        result.await.ok()
    }
}
