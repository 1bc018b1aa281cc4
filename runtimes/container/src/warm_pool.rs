//! Containers made ahead: for each Cargo used of late, a few whose program is started and waits for its input. Creating a container
//! is a quarter of what a cold start costs and starting it the rest, so both are done ahead. A container serves one job and is then
//! removed, like any other.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bollard::query_parameters::StatsOptionsBuilder;
use futures::{FutureExt, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;

use crate::start::{NotStarted, Spec, Started, Starter};

/// Time after its last job for which a Cargo's containers are kept.
const KEEP: Duration = Duration::from_mins(3);
/// Containers kept in all.
const MOST: usize = 8;
/// Between two looks at them.
const LOOK: Duration = Duration::from_secs(5);
/// Processor time that a program may use up before it has any input. One that computes meanwhile is no longer made ahead: nobody
/// pays for that.
const FREE_CPU: Duration = Duration::from_secs(3);

/// The containers made ahead.
#[derive(Debug)]
pub struct WarmPool {
    starter: Starter,
    wanted: usize,
    shelves: Mutex<HashMap<Spec, Shelf>>,
    makers: TaskTracker,
}

#[derive(Debug)]
struct Shelf {
    ready: VecDeque<Started>,
    making: usize,
    used: Instant,
    /// Its program does not wait quietly.
    restless: bool,
}

impl WarmPool {
    /// Keeps up to `wanted` for each Cargo.
    pub fn new(starter: Starter, wanted: u32) -> Self {
        Self { starter, wanted: wanted as usize, shelves: Mutex::default(), makers: TaskTracker::new() }
    }

    /// One that waits, if there is one; and sees to it that there will be for the next job.
    pub fn take(self: &Arc<Self>, spec: &Spec) -> Option<Started> {
        // What belongs to one attempt alone cannot be made before it.
        if spec.egress_mount.is_some() {
            return None;
        }
        let taken = {
            let mut all = self.shelves();
            let stock = all.entry(spec.clone()).or_insert_with(Shelf::new);
            stock.used = Instant::now();
            std::iter::from_fn(|| stock.ready.pop_front()).find_map(waiting)
        };
        self.refill(spec);
        taken
    }

    /// Those that wait, by the daemon's names for them.
    pub fn waiting(&self) -> Vec<String> {
        let all = self.shelves();
        all.values()
            .flat_map(|shelf| shelf.ready.iter().map(|started| started.container.id().to_owned()))
            .collect()
    }

    /// Forgets what was made of an image that is gone.
    pub fn forget(&self, image: &str) {
        self.shelves().retain(|spec, _| spec.image != image);
    }

    /// Looks after them until it is dropped.
    pub async fn watch(&self) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.shelves().retain(|_, shelf| shelf.making > 0 || shelf.used.elapsed() < KEEP);
            let waiting: Vec<_> = self.shelves().iter().flat_map(|(spec, shelf)| shelf.ids(spec)).collect();
            for (spec, id) in waiting {
                if self.used_cpu(&id).await.is_some_and(|used| used > FREE_CPU) {
                    tracing::info!(
                        image = spec.image,
                        "a program computes without input: it is not started ahead any more"
                    );
                    self.mark_restless(&spec);
                }
            }
        }
    }

    /// Removes them all, and waits for those that are being made.
    pub async fn stop(&self) {
        self.makers.close();
        self.shelves().clear();
        self.makers.wait().await;
        self.shelves().clear();
    }

    fn refill(self: &Arc<Self>, spec: &Spec) {
        // A GPU's memory is too dear to wait in.
        if self.wanted == 0 || spec.limits.gpus || self.makers.is_closed() {
            return;
        }
        let mut all = self.shelves();
        let kept: usize = all.values().map(Shelf::count).sum();
        let Some(stock) = all.get_mut(spec) else { return };
        let missing = self.wanted.saturating_sub(stock.count()).min(MOST.saturating_sub(kept));
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
        let mut all = self.shelves();
        let Some(stock) = all.get_mut(&spec) else { return };
        stock.making -= 1;
        match made {
            Ok(started) if !self.makers.is_closed() => stock.ready.push_back(started),
            // The job that comes next meets the same failure and reports it.
            Ok(_) | Err(NotStarted::ImageGone | NotStarted::Failed(_)) => {}
        }
    }

    fn mark_restless(&self, spec: &Spec) {
        if let Some(shelf) = self.shelves().get_mut(spec) {
            shelf.restless = true;
            shelf.ready.clear();
        }
    }

    async fn used_cpu(&self, id: &str) -> Option<Duration> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let stats = self.starter.daemon.quick.stats(id, Some(options)).boxed().next().await?.ok()?;
        Some(Duration::from_nanos(stats.cpu_stats?.cpu_usage?.total_usage?))
    }

    fn shelves(&self) -> MutexGuard<'_, HashMap<Spec, Shelf>> {
        self.shelves.lock()
    }
}

impl Shelf {
    fn new() -> Self {
        Self { ready: VecDeque::new(), making: 0, used: Instant::now(), restless: false }
    }

    fn count(&self) -> usize {
        self.ready.len() + self.making
    }

    fn ids(&self, spec: &Spec) -> Vec<(Spec, String)> {
        self.ready.iter().map(|started| (spec.clone(), started.container.id().to_owned())).collect()
    }
}

/// One whose program still waits. A program that ended already did not wait for its input; what it wrote is not the job's.
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
