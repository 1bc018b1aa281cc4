//! Accepting a job: it is stored, then taken up, and a request that is dropped in between interrupts neither.

use std::sync::Arc;

use island_protocol::{cargo::CargoSpec, ids::JobId};
use tokio::sync::oneshot;

use super::{Owner, first::First, live::Live, log::Log, publisher::Published};
use crate::job::Job;

/// What this coordinator does about one of its open jobs.
#[derive(Debug)]
pub(super) enum Entry {
    /// It is being stored or taken up.
    Reserved,
    /// A runner executes it.
    Live(Arc<Live>),
}

/// The right to start the runner of a job: one task of this coordinator has it at a time. Dropped unused, it is free again.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) owner: Arc<Owner>,
    job: JobId,
    is_used: bool,
}

impl Reservation {
    /// Reserves a job whose id was made a moment ago.
    fn of_new(owner: &Arc<Owner>, job: JobId) -> Self {
        owner.lock().insert(job, Entry::Reserved);
        Self { owner: owner.clone(), job, is_used: false }
    }

    /// Reserves a stored job. Returns `None` if it has a runner or is reserved already.
    pub(super) fn of_stored(owner: &Arc<Owner>, job: JobId) -> Option<Self> {
        let mut jobs = owner.lock();
        if jobs.contains_key(&job) {
            return None;
        }
        jobs.insert(job, Entry::Reserved);
        Some(Self { owner: owner.clone(), job, is_used: false })
    }

    /// The job has a runner now.
    pub(super) fn fill(mut self, live: Arc<Live>) {
        self.is_used = true;
        self.owner.lock().insert(self.job, Entry::Live(live));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_used {
            self.owner.forget(self.job);
        }
    }
}

/// A job that is about to be stored. Dropped without [`Self::adopt`], its reservation and the Island claimed for it are free again;
/// if it was stored all the same, because the answer of the database was lost, [`super::reconcile`] takes it up.
#[derive(Debug)]
pub(crate) struct NewJob {
    pub job: Job,
    first: Option<First>,
    reservation: Reservation,
}

impl NewJob {
    /// Whether an Island was claimed for its first attempt.
    pub(crate) fn is_placed(&self) -> bool {
        self.first.is_some()
    }

    /// Starts the runner of the job, which must be stored by now. Its first events are in the log when this returns.
    pub(crate) fn adopt(self) -> Arc<Live> {
        let owner = self.reservation.owner.clone();
        let log = Log::new(self.job.head.clone());
        owner.spawn(self.reservation, self.job, log, Published::default(), None, self.first)
    }
}

impl Owner {
    /// Reserves a job that is about to be stored and, where an Island is free, writes its first attempt into it.
    pub(crate) fn prepare(self: &Arc<Self>, mut job: Job, cargo: &CargoSpec) -> NewJob {
        let first = First::claim(&self.context.fleet, &mut job, cargo);
        let reservation = Reservation::of_new(self, job.id);
        NewJob { job, first, reservation }
    }

    /// Runs `work` in a task of the owner, so that it goes on when the caller is dropped; its result is dropped then, too. Returns
    /// `None` if the coordinator stops before the end.
    pub(crate) async fn shielded<T: Send + 'static>(
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
