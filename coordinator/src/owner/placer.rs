//! Chooses Islands for the jobs that wait: higher priority first, then older first. A new job is tried at once; all of
//! them again whenever the fleet changes, and every second.

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

use super::live::Command;
use crate::{
    fleet::{Fleet, Past},
    placement::Ranking,
};

/// A job that wants an Island.
#[derive(Debug)]
pub(super) struct Waiter {
    pub priority: u8,
    pub created_ms: i64,
    /// The fence its next attempt will have.
    pub key: AttemptKey,
    pub cargo: Arc<CargoSpec>,
    pub past: Past,
    pub answer: mpsc::UnboundedSender<Command>,
}

/// What the placer is asked.
#[derive(Debug)]
pub(super) enum Ask {
    /// Find an Island.
    Place(Box<Waiter>),
    /// Stop looking.
    Forget(JobId),
}

type Order = (Reverse<u8>, i64, JobId);

#[derive(Debug)]
struct Waiting {
    waiter: Box<Waiter>,
    told: Option<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Placer {
    fleet: Arc<Fleet>,
    waiting: BTreeMap<Order, Waiting>,
    orders: HashMap<JobId, Order>,
}

/// Runs until `hard` is triggered.
pub(super) async fn run(fleet: Arc<Fleet>, mut asks: mpsc::UnboundedReceiver<Ask>, hard: CancellationToken) {
    let mut placer = Placer { fleet: fleet.clone(), waiting: BTreeMap::new(), orders: HashMap::new() };
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            () = hard.cancelled() => return,
            ask = asks.recv() => match ask {
                Some(Ask::Place(waiter)) => placer.add(waiter),
                Some(Ask::Forget(job)) => placer.forget(job),
                None => return,
            },
            () = fleet.changed() => placer.sweep(),
            _ = tick.tick() => placer.sweep(),
        }
    }
}

impl Placer {
    fn add(&mut self, waiter: Box<Waiter>) {
        let mut waiting = Waiting { waiter, told: None };
        if self.settle(&mut waiting, Instant::now()) {
            return;
        }
        let waiter = &waiting.waiter;
        let order = (Reverse(waiter.priority), waiter.created_ms, waiter.key.job_id);
        self.orders.insert(order.2, order);
        self.waiting.insert(order, waiting);
    }

    fn forget(&mut self, job: JobId) {
        if let Some(order) = self.orders.remove(&job) {
            self.waiting.remove(&order);
        }
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        for (order, mut waiting) in std::mem::take(&mut self.waiting) {
            if self.settle(&mut waiting, now) {
                self.orders.remove(&order.2);
            } else {
                self.waiting.insert(order, waiting);
            }
        }
    }

    /// Places one job if it can be placed now. True: it needs nothing more from here.
    fn settle(&self, waiting: &mut Waiting, now: Instant) -> bool {
        let waiter = &mut waiting.waiter;
        waiter.past.refused.retain(|_, until| *until > now);
        match self.fleet.place(&waiter.cargo, waiter.key, &waiter.past, now) {
            Ok(host) => {
                if waiter.answer.send(Command::Placed { host, key: waiter.key }).is_err() {
                    self.fleet.release(host, waiter.key);
                }
                true
            }
            Err(ranking) => {
                let reasons = reasons(&ranking, waiter.past.refused.len());
                if waiting.told.as_ref() == Some(&reasons) {
                    return false;
                }
                let gone = waiter.answer.send(Command::Waiting { reasons: reasons.clone() }).is_err();
                waiting.told = Some(reasons);
                gone
            }
        }
    }
}

fn reasons(ranking: &Ranking, refused: usize) -> BTreeMap<String, u64> {
    let mut reasons: BTreeMap<String, u64> =
        ranking.reasons.iter().map(|(reason, count)| (reason.as_str().to_owned(), *count)).collect();
    if refused > 0 {
        reasons.insert("refused".to_owned(), refused as u64);
    }
    reasons
}
