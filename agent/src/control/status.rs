//! What there is to see of the running agent, gathered when somebody asks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use island_cache::Cache;
use island_daemon::latest::Latest;
use island_protocol::{
    credits::MicroCredits,
    fabric::RefusalReason,
    host::{GpuLoad, Measured, RunningJob, SystemLoad},
    ids::HostId,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    check::Checker,
    history::{History, Point, STEP},
};
use crate::{
    clock,
    earnings::{self, Book, Earnings},
    fabric::Fabric,
    governor::Governor,
    inventory::{gpu::View, meter::Sample},
    policy::{OwnerOrder, Verdict, gpus::PausedGpus},
    preload::{Fetching, Preloader},
    supervisor::{Supervisor, refusals::Count},
    worker::WorkerHandle,
};

/// Days of earnings that are shown one by one.
const DAYS: usize = 14;

/// Everything that an owner may want to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This Island.
    pub host_id: HostId,
    /// Its name.
    pub name: String,
    /// Version of the agent.
    pub version: String,
    /// Its coordinator.
    pub api_url: String,
    /// Whether it is registered there now.
    pub connected: bool,
    /// Seconds since the agent started.
    pub up_s: u64,
    /// Whether it works now, and why not.
    pub verdict: Verdict,
    /// What the owner said last.
    pub order: OwnerOrder,
    /// What the machine was measured to do.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// Load of the machine.
    pub system: SystemLoad,
    /// Load of its GPUs.
    pub gpus: Vec<GpuLoad>,
    /// What is not as it could be with them: one that went away or rests, what a driver does not tell.
    #[serde(default)]
    pub gpu_notes: Vec<String>,
    /// Jobs here.
    pub jobs: Vec<RunningJob>,
    /// Engines that run.
    pub workers: Vec<Worker>,
    /// Gigabytes of models on disk.
    pub models_gb: f64,
    /// Gigabytes that more models may take.
    pub room_gb: f64,
    /// What is fetched ahead now.
    pub fetching: Option<Fetching>,
    /// What was asked of this Island and not taken, since the agent started.
    pub refusals: BTreeMap<RefusalReason, Count>,
    /// What it earned.
    pub earned: Earned,
    /// Load of the last hour.
    pub history: Vec<Point>,
}

/// What it earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Earned {
    /// Credits today.
    pub today: MicroCredits,
    /// Paid jobs today.
    pub jobs_today: u64,
    /// Credits since the Island exists.
    pub total: MicroCredits,
    /// Paid jobs since then.
    pub jobs: u64,
    /// Credits of the last days that had any job, the oldest first.
    pub days: Vec<(String, MicroCredits)>,
}

/// An engine's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// The Cargo it was started for.
    pub cargo: String,
    /// Its process.
    pub pid: u32,
    /// `loading` or `ready`.
    pub state: String,
    /// Jobs in it or waiting for it.
    pub jobs: u32,
    /// Main memory, megabytes.
    pub ram_mb: u64,
    /// GPU memory, megabytes.
    pub vram_mb: u64,
    /// Seconds since its last job.
    pub idle_s: u64,
}

/// Where the answers are.
#[derive(Debug)]
pub struct Sources {
    /// Name of the Island.
    pub name: String,
    /// Its coordinator.
    pub api_url: String,
    /// Its connection.
    pub fabric: Arc<Fabric>,
    /// Its jobs.
    pub supervisor: Arc<Supervisor>,
    /// Its load.
    pub load: watch::Receiver<Arc<Sample>>,
    /// Its models.
    pub cache: Cache,
    /// What it fetches ahead.
    pub preloader: Arc<Preloader>,
    /// What its owner allows.
    pub governor: Arc<Governor>,
    /// What it earned.
    pub earnings: Arc<Earnings>,
    /// Asks for jobs of its own.
    pub checker: Checker,
    /// The last hour.
    pub history: History,
    /// When the agent started.
    pub started: Instant,
}

impl Sources {
    /// Looks at everything.
    pub fn status(&self) -> Status {
        let sample = self.load.latest();
        let stance = self.supervisor.stance();
        let held: u64 = self.cache.own_files().iter().map(|file| file.size).sum();
        let gigabytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        Status {
            host_id: self.fabric.host_id(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_url: self.api_url.clone(),
            connected: self.fabric.is_up(),
            up_s: self.started.elapsed().as_secs(),
            verdict: stance.verdict,
            order: self.governor.order(),
            measured: self.supervisor.measured(),
            system: sample.system.clone(),
            gpus: sample.gpus.loads(),
            gpu_notes: notes(&sample.gpus, &stance.paused_gpus),
            jobs: self.supervisor.running(),
            workers: self.supervisor.pool().workers().iter().map(|worker| shown(worker)).collect(),
            models_gb: gigabytes(held),
            room_gb: gigabytes(self.cache.room()),
            fetching: self.preloader.now().latest(),
            refusals: self.supervisor.refusals().all(),
            earned: earned(&self.earnings.book()),
            history: self.history.points(),
        }
    }

    /// Keeps the history until stopped.
    pub async fn remember(&self, stop: CancellationToken) {
        loop {
            self.history.push(self.point());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(STEP) => {}
            }
        }
    }

    fn point(&self) -> Point {
        let sample = self.load.latest();
        let percent = |part: u64, whole: u64| (part as f32 / whole.max(1) as f32) * 100.0;
        let gpus = sample.gpus.loads();
        let busiest = gpus.iter().filter_map(|gpu| gpu.utilization_percent).max();
        let fullest = gpus.iter().filter_map(|gpu| Some(percent(gpu.memory_used_mb?, gpu.memory_total_mb)));
        Point {
            at: clock::now(),
            cpu: sample.system.cpu_percent,
            memory: percent(sample.system.memory_used_mb, sample.system.memory_total_mb),
            gpu: busiest.map(|percent| percent as f32),
            gpu_memory: fullest.reduce(f32::max),
            jobs: self.supervisor.running().len() as u32,
        }
    }
}

fn notes(gpus: &View, paused_gpus: &PausedGpus) -> Vec<String> {
    let rests = paused_gpus.iter().map(|(index, reason)| format!("GPU {index} is paused: {reason}"));
    rests.chain(gpus.notes()).collect()
}

fn shown(worker: &WorkerHandle) -> Worker {
    let stats = worker.stats();
    let is_ready = worker.is_ready();
    let idle = if stats.jobs > 0 { Duration::ZERO } else { stats.idle_since.elapsed() };
    let cargo = &worker.launch.cargo;
    // A shared worker was started for one Cargo and runs all of its engine.
    let name =
        if cargo.is_shared() { format!("{} engine", cargo.runtime_type) } else { cargo.slug.to_string() };
    Worker {
        cargo: name,
        pid: worker.pid,
        state: if is_ready { "ready" } else { "loading" }.to_owned(),
        jobs: stats.jobs,
        ram_mb: stats.rss_mb,
        vram_mb: stats.vram_mb,
        idle_s: idle.as_secs(),
    }
}

fn earned(book: &Book) -> Earned {
    let today = book.days.get(&earnings::today()).copied().unwrap_or_default();
    let skip = book.days.len().saturating_sub(DAYS);
    Earned {
        today: today.credits,
        jobs_today: today.paid,
        total: book.total.credits,
        jobs: book.total.paid,
        days: book.days.iter().skip(skip).map(|(day, share)| (day.clone(), share.credits)).collect(),
    }
}
