//! Containers created in advance: for each recently used Cargo, a few whose program is started and waits for its input. Creating a
//! container is a quarter of a cold start and starting it the rest, so both are done in advance. A container serves one job and is then
//! removed.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bollard::query_parameters::StatsOptionsBuilder;
use futures::{FutureExt, StreamExt};
use island_runtimes_worker::launch::{KEEP_AHEAD, MAX_AHEAD, MAX_AHEAD_MB};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;

use crate::start::{NotStarted, Spec, Started, Starter};

/// Time between two checks of them.
const LOOK: Duration = Duration::from_secs(5);
/// Processor time that a program may use before it has input. A program that computes meanwhile is no longer started in advance, because
/// that is not paid.
const FREE_CPU: Duration = Duration::from_secs(3);

/// The containers created in advance.
#[derive(Debug)]
pub struct WarmPool {
    starter: Starter,
    wanted: usize,
    stocks: Mutex<HashMap<Spec, Stock>>,
    makers: TaskTracker,
}

#[derive(Debug)]
struct Stock {
    ready: VecDeque<Started>,
    making: usize,
    used: Instant,
    /// Its program computes without input.
    restless: bool,
}

impl WarmPool {
    /// Keeps up to `wanted` for each Cargo.
    pub fn new(starter: Starter, wanted: u32) -> Self {
        Self { starter, wanted: wanted as usize, stocks: Mutex::default(), makers: TaskTracker::new() }
    }

    /// Returns one that waits, if there is one; and starts one for the next job.
    pub fn take(self: &Arc<Self>, spec: &Spec) -> Option<Started> {
        // A container with an egress mount belongs to one attempt and cannot be created in advance.
        if spec.egress_mount.is_some() {
            return None;
        }
        let taken = {
            let mut all = self.stocks();
            let stock = all.entry(spec.clone()).or_insert_with(Stock::new);
            stock.used = Instant::now();
            std::iter::from_fn(|| stock.ready.pop_front()).find_map(waiting)
        };
        self.refill(spec);
        taken
    }

    /// Ids of those that wait.
    pub fn waiting(&self) -> Vec<String> {
        let all = self.stocks();
        all.values()
            .flat_map(|stock| stock.ready.iter().map(|started| started.container.id().to_owned()))
            .collect()
    }

    /// Removes those of an image that does not exist any more.
    pub fn forget(&self, image: &str) {
        self.stocks().retain(|spec, _| spec.image != image);
    }

    /// Maintains them until it is dropped.
    pub async fn watch(&self) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.stocks().retain(|_, stock| stock.making > 0 || stock.used.elapsed() < KEEP_AHEAD);
            let waiting: Vec<_> = self.stocks().iter().flat_map(|(spec, stock)| stock.ids(spec)).collect();
            for (spec, id) in waiting {
                if self.used_cpu(&id).await.is_some_and(|used| used > FREE_CPU) {
                    tracing::info!(
                        image = spec.image,
                        "a program computes without input: it is no longer started in advance"
                    );
                    self.mark_restless(&spec);
                }
            }
        }
    }

    /// Removes all of them, and waits for those that are being created.
    pub async fn stop(&self) {
        self.makers.close();
        self.stocks().clear();
        self.makers.wait().await;
        self.stocks().clear();
    }

    fn refill(self: &Arc<Self>, spec: &Spec) {
        // Memory of a GPU is too scarce to reserve it, and so is much main memory, which the agent reserves for them.
        let is_large = spec.limits.memory_bytes > MAX_AHEAD_MB << 20;
        if self.wanted == 0 || spec.limits.gpus || is_large || self.makers.is_closed() {
            return;
        }
        let mut all = self.stocks();
        let kept: usize = all.values().map(Stock::count).sum();
        let Some(stock) = all.get_mut(spec) else { return };
        let missing = self.wanted.saturating_sub(stock.count()).min(MAX_AHEAD.saturating_sub(kept));
        if stock.restless {
            return;
        }
        stock.making += missing;
        for _ in 0..missing {
            let (ahead, spec) = (Arc::clone(self), spec.clone());
            self.makers.spawn(async move { ahead.make(spec).await });
        }
    }

    async fn make(&self, spec: Spec) {
        let made = self.starter.start(&spec, None).await;
        let mut all = self.stocks();
        let Some(stock) = all.get_mut(&spec) else { return };
        stock.note_made();
        match made {
            Ok(started) if !self.makers.is_closed() => stock.ready.push_back(started),
            // The next job meets the same failure and reports it.
            Ok(_) | Err(NotStarted::ImageGone | NotStarted::Failed(_)) => {}
        }
    }

    fn mark_restless(&self, spec: &Spec) {
        if let Some(stock) = self.stocks().get_mut(spec) {
            stock.restless = true;
            stock.ready.clear();
        }
    }

    async fn used_cpu(&self, id: &str) -> Option<Duration> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let stats = self.starter.daemon.quick.stats(id, Some(options)).boxed().next().await?.ok()?;
        Some(Duration::from_nanos(stats.cpu_stats?.cpu_usage?.total_usage?))
    }

    fn stocks(&self) -> MutexGuard<'_, HashMap<Spec, Stock>> {
        self.stocks.lock()
    }
}

impl Stock {
    fn new() -> Self {
        Self { ready: VecDeque::new(), making: 0, used: Instant::now(), restless: false }
    }

    fn count(&self) -> usize {
        self.ready.len() + self.making
    }

    /// One that was being created is there, or could not be created. It may be of an earlier stock of the same Cargo, which was forgotten
    /// meanwhile with its image.
    fn note_made(&mut self) {
        self.making = self.making.saturating_sub(1);
    }

    fn ids(&self, spec: &Spec) -> Vec<(Spec, String)> {
        self.ready.iter().map(|started| (spec.clone(), started.container.id().to_owned())).collect()
    }
}

/// One whose program still waits. A program that has already ended did not wait for its input; its output is not the job's.
fn waiting(mut started: Started) -> Option<Started> {
    match started.output.next().now_or_never() {
        None => Some(started),
        Some(None | Some(Err(_))) => None,
        Some(Some(Ok(first))) => {
            let output = std::mem::replace(&mut started.output, futures::stream::empty().boxed());
            started.output = futures::stream::iter([Ok(first)]).chain(output).boxed();
            Some(started)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_stock_ordered_does_not_keep_a_later_one_for_ever() {
        let mut stock = Stock::new();
        stock.making += 1;
        // Of the earlier one, and its own.
        stock.note_made();
        stock.note_made();
        assert_eq!(stock.count(), 0, "it is removed when its Cargo is not used any more");
    }
}
