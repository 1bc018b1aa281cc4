//! Chooses Islands for waiting jobs: higher priority first, then older first. A new job is tried at once unless others of
//! its Cargo wait. Waiting jobs are tried on Islands that gained capacity, a few times a second at most, and on all Islands now and then:
//! a pause after a refusal ends without a change of the fleet, and the reasons for which jobs wait change. Both take a bounded part of the
//! time, whatever waits.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use futures::future;
use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, HostId, JobId, Slug},
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    job_handle::Command,
    machine::{Hosts, Input},
};
use island_coordinator_domain::{
    fleet::{Fleet, PlacementHistory},
    placement::{Reason, Reasons},
};

/// Minimum time between the beginnings of two sweeps over all waiting jobs: heartbeats of many Islands cause few of them.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between the beginnings of two sweeps over all Islands.
const FULL_SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// After a sweep, this number of times its own duration passes before the next one of its kind: sweeps over Islands that gained capacity take
/// a tenth of the time at most, those over all Islands a fiftieth.
const REST: u32 = 9;
const FULL_REST: u32 = 49;
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

/// Key of the Islands that can take a job which none has refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Demand {
    cargo: Slug,
    /// Account and preferences as JSON; empty for those that accept every Island.
    selection: String,
}

impl Demand {
    /// `None` for a job that Islands have refused or failed, or that is restricted to one.
    fn of(request: &PlacementRequest) -> Option<Self> {
        let history = &request.history;
        if history.only.is_some() || !history.failures.is_empty() || !history.refused.is_empty() {
            return None;
        }
        let selection = &history.selection;
        let is_open = selection.preferences.is_default() && !selection.continues_form;
        let key = (selection.account, &selection.preferences, selection.continues_form);
        let selection = if is_open { String::new() } else { serde_json::to_string(&key).ok()? };
        Some(Self { cargo: request.cargo.slug.clone(), selection })
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
    /// The Islands on which jobs are tried; `None` for all.
    gained: Option<HashSet<HostId>>,
    /// The last job that was tried.
    last: Option<Order>,
    /// Demands that no Island can meet, of all or of those that gained capacity. The answer for other jobs of the same demand is the same: what
    /// becomes free meanwhile causes another sweep.
    full: HashMap<(Demand, bool), Reasons>,
    /// Time that it took so far.
    spent: Duration,
}

#[derive(Debug)]
struct Placer {
    fleet: Arc<Fleet>,
    queue: Arc<Queue>,
    waiting: BTreeMap<Order, Waiting>,
    orders: HashMap<JobId, Order>,
    sweep: Option<Sweep>,
    /// Whether an Island has gained capacity since the last sweep began.
    is_due: bool,
    /// When the next sweep may begin.
    next: Instant,
    /// When the next sweep over all Islands begins.
    next_full: Instant,
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
        next_full: Instant::now(),
    };
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
            () = tokio::time::sleep_until(placer.next_full), if placer.sweep.is_none() => placer.begin_full_sweep(),
            () = tokio::time::sleep_until(placer.next), if placer.is_due && placer.sweep.is_none() => placer.begin_sweep(),
            () = fleet.changed(), if !placer.is_due => placer.is_due = true,
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
        self.sweep = Some(Sweep { gained: Some(self.fleet.take_gained()), ..Sweep::default() });
    }

    fn begin_full_sweep(&mut self) {
        self.is_due = false;
        self.next_full = Instant::now() + FULL_SWEEP_INTERVAL;
        self.fleet.take_gained();
        self.sweep = Some(Sweep::default());
    }

    /// Tries the next jobs of the sweep, higher priority first, then older first.
    fn continue_sweep(&mut self) {
        let Some(mut sweep) = self.sweep.take() else { return };
        let begun = Instant::now();
        for _ in 0..SWEEP_JOBS {
            let from = sweep.last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.waiting.range((from, Bound::Unbounded)).next().map(|(order, _)| *order);
            let Some((order, mut waiting)) = next.and_then(|order| self.waiting.remove_entry(&order)) else {
                let spent = sweep.spent + begun.elapsed();
                let (next, rest) = match sweep.gained {
                    Some(_) => (&mut self.next, REST),
                    None => (&mut self.next_full, FULL_REST),
                };
                *next = (*next).max(Instant::now() + spent * rest);
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
        sweep.spent += begun.elapsed();
        self.sweep = Some(sweep);
    }

    /// Places one job if an Island can take it now. Returns `true` if the job leaves the queue.
    fn try_place(&self, waiting: &mut Waiting, sweep: Option<&mut Sweep>) -> bool {
        let now = Instant::now();
        let request = &mut waiting.request;
        request.history.refused.retain(|_, until| *until > now);
        let (gained, mut full) = match sweep {
            Some(Sweep { gained, full, .. }) => (gained.as_ref(), Some(full)),
            None => (None, None),
        };
        // A job that was not tried yet is tried on all Islands.
        let gained = gained.filter(|_| waiting.reported.is_some());
        let demand = Demand::of(request).map(|demand| (demand, gained.is_some()));
        let known = full.as_ref().zip(demand.as_ref()).and_then(|(full, demand)| full.get(demand).cloned());
        let placed = match (known, gained) {
            (Some(reasons), _) => Err(reasons),
            (None, Some(gained)) => {
                self.fleet.place_among(gained.iter(), &request.cargo, request.key, &request.history, now)
            }
            (None, None) => self.fleet.place(&request.cargo, request.key, &request.history, now),
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
                if let Some((full, demand)) = full.as_mut().zip(demand) {
                    full.insert(demand, found);
                }
                if gained.is_some() {
                    return request.answer.is_closed();
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
    use island_coordinator_domain::samples;

    fn request(n: u128, priority: u8, answer: mpsc::UnboundedSender<Command>) -> Request {
        Request::Place(Box::new(PlacementRequest {
            priority,
            created_ms: 0,
            key: AttemptKey { job_id: JobId(Uuid::from_u128(n)), attempt: 1, epoch: 1 },
            cargo: Arc::new(samples::cargo_spec()),
            history: PlacementHistory::default(),
            answer,
        }))
    }

    /// Islands send heartbeats all the time, which change nothing for a job that none of them may run.
    #[tokio::test(start_paused = true)]
    async fn waiting_jobs_cost_nothing_while_nothing_changes() {
        let (fleet, _) = samples::fleet();
        let (fleet, queue) = (Arc::new(fleet), Arc::new(Queue::default()));
        let (placer, requests) = mpsc::unbounded_channel();
        let (answer, mut answers) = mpsc::unbounded_channel();
        let hard = CancellationToken::new();
        let beat = || {
            let at = island_protocol::time::Timestamp::from_unix_ms(0);
            fleet.heartbeat(samples::heartbeat(1, &[]), Instant::now(), at);
        };
        beat();
        let running = tokio::spawn(run(fleet.clone(), queue, requests, hard.clone()));
        for n in 0..10_u128 {
            let Request::Place(mut request) = request(n, 0, answer.clone()) else { panic!("a job") };
            let selection = Arc::make_mut(&mut request.history.selection);
            selection.preferences.regions = vec!["nowhere".to_owned()];
            placer.send(Request::Place(request)).expect("it runs");
            assert!(matches!(answers.recv().await, Some(Command::Input(Input::NoIsland { .. }))));
        }
        let considered = || fleet.considered();
        let before = considered();
        for _ in 0..100 {
            beat();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let swept = considered() - before;
        assert!((5..=11).contains(&swept), "once a second for all ten: {swept}");
        hard.cancel();
        running.await.expect("no panic");
    }

    #[tokio::test]
    async fn higher_priorities_are_placed_first_and_new_jobs_do_not_overtake_them() {
        let (fleet, _) = samples::fleet();
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
        let slug = samples::cargo_spec().slug;
        assert!(queue.precedes(&slug, 5) && !queue.precedes(&slug, 6));
        fleet.heartbeat(
            samples::heartbeat(10, &[]),
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
