//! Chooses Islands for waiting jobs: higher priority first, then older first. A new job is tried at once, and all
//! waiting jobs whenever the fleet changes and once a second.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, JobId},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    job_handle::Command,
    machine::{Hosts, Input},
};
use crate::{
    fleet::{Fleet, PlacementHistory},
    placement::{Ranking, Reason},
};

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

#[derive(Debug)]
struct Waiting {
    request: Box<PlacementRequest>,
    reported: Option<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Placer {
    fleet: Arc<Fleet>,
    waiting: BTreeMap<Order, Waiting>,
    orders: HashMap<JobId, Order>,
}

/// Runs until `hard` is triggered.
pub(super) async fn run(
    fleet: Arc<Fleet>,
    mut requests: mpsc::UnboundedReceiver<Request>,
    hard: CancellationToken,
) {
    let mut placer = Placer { fleet: fleet.clone(), waiting: BTreeMap::new(), orders: HashMap::new() };
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
            () = fleet.changed() => placer.place_all(),
            _ = tick.tick() => placer.place_all(),
        }
    }
}

impl Placer {
    fn add(&mut self, request: Box<PlacementRequest>) {
        let mut waiting = Waiting { request, reported: None };
        if self.try_place(&mut waiting, Instant::now()) {
            return;
        }
        let request = &waiting.request;
        let order = (Reverse(request.priority), request.created_ms, request.key.job_id);
        self.orders.insert(order.2, order);
        self.waiting.insert(order, waiting);
    }

    fn remove(&mut self, job: JobId) {
        if let Some(order) = self.orders.remove(&job) {
            self.waiting.remove(&order);
        }
    }

    fn place_all(&mut self) {
        let now = Instant::now();
        for (order, mut waiting) in std::mem::take(&mut self.waiting) {
            if self.try_place(&mut waiting, now) {
                self.orders.remove(&order.2);
            } else {
                self.waiting.insert(order, waiting);
            }
        }
    }

    /// Places one job if an Island can take it now. Returns `true` if the job leaves the queue.
    fn try_place(&self, waiting: &mut Waiting, now: Instant) -> bool {
        let request = &mut waiting.request;
        request.history.refused.retain(|_, until| *until > now);
        match self.fleet.place(&request.cargo, request.key, &request.history, now) {
            Ok(host) => {
                let placed = Input::Placed { hosts: Hosts::one(host), key: request.key };
                if request.answer.send(Command::Input(placed)).is_err() {
                    self.fleet.release(host, request.key);
                }
                true
            }
            Err(ranking) => {
                let reasons = reasons(&ranking, request.history.refused.len());
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

fn reasons(ranking: &Ranking, refused: usize) -> BTreeMap<String, u64> {
    let mut reasons: BTreeMap<String, u64> =
        ranking.reasons.iter().map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect();
    if refused > 0 {
        reasons.insert(Reason::Refused.as_str().to_owned(), refused as u64);
    }
    reasons
}
