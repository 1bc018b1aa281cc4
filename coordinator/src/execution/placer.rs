//! Chooses Islands for waiting jobs: higher priority first, then older first. A new job is tried at once unless others of
//! its Cargo wait, and all waiting jobs when the fleet has changed, a few times a second at most.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use futures::future;
use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, JobId, Slug},
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    job_handle::Command,
    machine::{Hosts, Input},
};
use crate::{
    fleet::{Fleet, PlacementHistory},
    placement::{Reason, Reasons},
};

/// Minimum time between the beginnings of two sweeps over all waiting jobs: heartbeats of many Islands cause few of them.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Jobs that are tried between two requests.
const SWEEP_JOBS: usize = 32;

/// A job that needs an Island.
#[derive(Debug)]
pub(super) struct PlacementRequest {
    pub priority: u8,
    pub created_ms: i64,
    /// Key of its next attempt.
    pub key: AttemptKey,
    pub cargo: Arc<CargoSpec>,
    pub history: PlacementHistory,
    pub answer: mpsc::UnboundedSender<Command>,
}

/// A request to the placer.
#[derive(Debug)]
pub(super) enum Request {
    /// Place this job.
    Place(Box<PlacementRequest>),
    /// The job no longer needs an Island.
    Remove(JobId),
}

type Order = (Reverse<u8>, i64, JobId);

/// Number of waiting jobs of each Cargo, by priority. A new job must not get an Island before them.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<HashMap<Slug, BTreeMap<u8, u64>>>);

impl Queue {
    /// Whether a job of this Cargo waits that has at least this priority.
    pub(super) fn precedes(&self, cargo: &Slug, priority: u8) -> bool {
        self.0.lock().get(cargo).is_some_and(|waiting| waiting.range(priority..).next().is_some())
    }

    fn add(&self, request: &PlacementRequest) {
        let mut queue = self.0.lock();
        *queue.entry(request.cargo.slug.clone()).or_default().entry(request.priority).or_default() += 1;
    }

    fn remove(&self, request: &PlacementRequest) {
        let mut queue = self.0.lock();
        let Some(waiting) = queue.get_mut(&request.cargo.slug) else { return };
        if let Some(count) = waiting.get_mut(&request.priority) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&request.priority);
            }
        }
        if waiting.is_empty() {
            queue.remove(&request.cargo.slug);
        }
    }
}

#[derive(Debug)]
struct Waiting {
    request: Box<PlacementRequest>,
    reported: Option<BTreeMap<String, u64>>,
}

/// One pass over all waiting jobs.
#[derive(Debug, Default)]
struct Sweep {
    /// The last job that was tried.
    last: Option<Order>,
    /// Cargos for which no Island is free. The answer for other jobs without a history is the same: what becomes free
    /// meanwhile causes another sweep.
    full: HashMap<Slug, Reasons>,
}

#[derive(Debug)]
struct Placer {
    fleet: Arc<Fleet>,
    queue: Arc<Queue>,
    waiting: BTreeMap<Order, Waiting>,
    orders: HashMap<JobId, Order>,
    sweep: Option<Sweep>,
    /// Whether the fleet or the queue has changed since the last sweep began.
    is_due: bool,
    /// When the next sweep may begin.
    next: Instant,
}

/// Runs until `hard` is triggered.
pub(super) async fn run(
    fleet: Arc<Fleet>,
    queue: Arc<Queue>,
    mut requests: mpsc::UnboundedReceiver<Request>,
    hard: CancellationToken,
) {
    let mut placer = Placer {
        fleet: fleet.clone(),
        queue,
        waiting: BTreeMap::new(),
        orders: HashMap::new(),
        sweep: None,
        is_due: false,
        next: Instant::now(),
    };
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            () = hard.cancelled() => return,
            request = requests.recv() => match request {
                Some(Request::Place(request)) => placer.add(request),
                Some(Request::Remove(job)) => placer.remove(job),
                None => return,
            },
            () = future::ready(()), if placer.sweep.is_some() => {}
            () = tokio::time::sleep_until(placer.next), if placer.is_due => placer.begin_sweep(),
            () = fleet.changed(), if !placer.is_due => placer.is_due = true,
            _ = tick.tick() => placer.is_due = true,
        }
        // A part of it after each request, so that neither delays the other.
        if placer.sweep.is_some() {
            placer.continue_sweep();
            tokio::task::yield_now().await;
        }
    }
}

impl Placer {
    fn add(&mut self, request: Box<PlacementRequest>) {
        self.remove(request.key.job_id);
        let is_behind = self.queue.precedes(&request.cargo.slug, request.priority);
        let mut waiting = Waiting { request, reported: None };
        if is_behind {
            self.is_due = true;
        } else if self.try_place(&mut waiting, None) {
            return;
        }
        let request = &waiting.request;
        let order = (Reverse(request.priority), request.created_ms, request.key.job_id);
        self.queue.add(request);
        self.orders.insert(order.2, order);
        self.waiting.insert(order, waiting);
    }

    fn remove(&mut self, job: JobId) {
        let order = self.orders.remove(&job);
        if let Some(waiting) = order.and_then(|order| self.waiting.remove(&order)) {
            self.queue.remove(&waiting.request);
        }
    }

    fn begin_sweep(&mut self) {
        self.is_due = false;
        self.next = Instant::now() + SWEEP_INTERVAL;
        self.sweep = Some(Sweep::default());
    }

    /// Tries the next jobs of the sweep, higher priority first, then older first.
    fn continue_sweep(&mut self) {
        let Some(mut sweep) = self.sweep.take() else { return };
        for _ in 0..SWEEP_JOBS {
            let from = sweep.last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.waiting.range((from, Bound::Unbounded)).next().map(|(order, _)| *order);
            let Some((order, mut waiting)) = next.and_then(|order| self.waiting.remove_entry(&order)) else {
                return;
            };
            sweep.last = Some(order);
            if self.try_place(&mut waiting, Some(&mut sweep)) {
                self.orders.remove(&order.2);
                self.queue.remove(&waiting.request);
            } else {
                self.waiting.insert(order, waiting);
            }
        }
        self.sweep = Some(sweep);
    }

    /// Places one job if an Island can take it now. Returns `true` if the job leaves the queue.
    fn try_place(&self, waiting: &mut Waiting, sweep: Option<&mut Sweep>) -> bool {
        let now = Instant::now();
        let request = &mut waiting.request;
        request.history.refused.retain(|_, until| *until > now);
        let mut full = sweep.filter(|_| request.history.is_empty()).map(|sweep| &mut sweep.full);
        let known = full.as_ref().and_then(|full| full.get(&request.cargo.slug).cloned());
        let placed = match known {
            Some(reasons) => Err(reasons),
            None => self.fleet.place(&request.cargo, request.key, &request.history, now),
        };
        match placed {
            Ok(host) => {
                let placed = Input::Placed { hosts: Hosts::one(host), key: request.key };
                if request.answer.send(Command::Input(placed)).is_err() {
                    self.fleet.release(host, request.key);
                }
                true
            }
            Err(found) => {
                let reasons = reasons(&found, request.history.refused.len());
                if let Some(full) = &mut full {
                    full.insert(request.cargo.slug.clone(), found);
                }
                if waiting.reported.as_ref() == Some(&reasons) {
                    return false;
                }
                let gone = request
                    .answer
                    .send(Command::Input(Input::NoIsland { reasons: reasons.clone() }))
                    .is_err();
                waiting.reported = Some(reasons);
                gone
            }
        }
    }
}

fn reasons(found: &Reasons, refused: usize) -> BTreeMap<String, u64> {
    let mut reasons: BTreeMap<String, u64> =
        found.iter().map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect();
    if refused > 0 {
        reasons.insert(Reason::Refused.as_str().to_owned(), refused as u64);
    }
    reasons
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::fleet::tests as islands;

    fn request(n: u128, priority: u8, answer: mpsc::UnboundedSender<Command>) -> Request {
        Request::Place(Box::new(PlacementRequest {
            priority,
            created_ms: 0,
            key: AttemptKey { job_id: JobId(Uuid::from_u128(n)), attempt: 1, epoch: 1 },
            cargo: Arc::new(islands::cargo()),
            history: PlacementHistory::default(),
            answer,
        }))
    }

    #[tokio::test]
    async fn higher_priorities_are_placed_first_and_new_jobs_do_not_overtake_them() {
        let (fleet, _) = islands::fleet();
        let (fleet, queue) = (Arc::new(fleet), Arc::new(Queue::default()));
        let (placer, requests) = mpsc::unbounded_channel();
        let (answer, mut answers) = mpsc::unbounded_channel();
        let hard = CancellationToken::new();
        let running = tokio::spawn(run(fleet.clone(), queue.clone(), requests, hard.clone()));
        for n in 0..200_u128 {
            placer.send(request(n, if n < 100 { 0 } else { 5 }, answer.clone())).expect("it runs");
        }
        // No Island has sent a heartbeat.
        for _ in 0..200 {
            assert!(matches!(answers.recv().await, Some(Command::Input(Input::NoIsland { .. }))));
        }
        let slug = islands::cargo().slug;
        assert!(queue.precedes(&slug, 5) && !queue.precedes(&slug, 6));
        fleet.heartbeat(
            islands::beat(10, &[]),
            Instant::now(),
            island_protocol::time::Timestamp::from_unix_ms(0),
        );
        let mut placed = Vec::new();
        while placed.len() < 10 {
            if let Some(Command::Input(Input::Placed { key, .. })) = answers.recv().await {
                placed.push(key.job_id.0.as_u128());
            }
        }
        assert!(placed.iter().all(|n| *n >= 100), "{placed:?}");
        for n in 0..200_u128 {
            placer.send(Request::Remove(JobId(Uuid::from_u128(n)))).expect("it runs");
        }
        let (answer, mut answers) = mpsc::unbounded_channel();
        placer.send(request(1_000, 0, answer)).expect("it runs");
        let waits = answers.recv().await;
        assert!(matches!(waits, Some(Command::Input(Input::NoIsland { .. }))), "all slots are taken");
        assert!(queue.precedes(&slug, 0) && !queue.precedes(&slug, 1));
        hard.cancel();
        running.await.expect("no panic");
    }
}
