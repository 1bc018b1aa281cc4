//! The status of the running agent, gathered at each request.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use island_cache::Cache;
use island_daemon::{config::ConfigError, latest::Latest};
use island_protocol::{
    credits::MicroCredits,
    fabric::RefusalReason,
    host::{ControlState, GpuLoad, Measured, RunningJob, SystemLoad},
    ids::HostId,
    time::Timestamp,
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
    config::{self, Config},
    fabric::Fabric,
    governor::Governor,
    inventory::{
        engine_devices::EngineDevices,
        gpu::{View, nodes},
        meter::Sample,
    },
    link::credentials,
    owner::{
        earnings::{self, Book, Earnings},
        notices::Notices,
        policy::{OwnerOrder, Verdict, gpus::PausedGpus},
    },
    preload::{Fetching, Preloader},
    supervisor::{Supervisor, refusals::Count},
    worker::WorkerHandle,
};

/// Days of earnings that are shown one by one.
const DAYS: usize = 14;

/// The status of the agent.
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
    /// Why the coordinator refuses it, such as versions that do not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Whether it was removed from the network by `island-agent leave` since the agent started.
    #[serde(default)]
    pub left: bool,
    /// Seconds since the agent started.
    pub up_s: u64,
    /// Whether it works now, otherwise why not.
    pub verdict: Verdict,
    /// The order that applies: the owner's last command on this machine, or a remote one.
    pub order: OwnerOrder,
    /// Whether remote orders are allowed, and whether the one that applies is remote.
    #[serde(default)]
    pub control: ControlState,
    /// Measured speed of the machine.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// Load of the machine.
    pub system: SystemLoad,
    /// Load of its GPUs.
    pub gpus: Vec<GpuLoad>,
    /// Problems of GPUs: one that disappeared, is paused or is not used by an engine, values that a driver does not report.
    #[serde(default)]
    pub gpu_notes: Vec<String>,
    /// Further notices for the owner: settings that are not in force, another coordinator.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The devices of each engine that can use a GPU.
    #[serde(default)]
    pub engines: Vec<EngineDevices>,
    /// Jobs here.
    pub jobs: Vec<RunningJob>,
    /// Engines that run.
    pub workers: Vec<Worker>,
    /// Gigabytes of models on disk.
    pub models_gb: f64,
    /// Gigabytes that further models may occupy.
    pub room_gb: f64,
    /// The preload that is being downloaded.
    pub fetching: Option<Fetching>,
    /// What the operators of the network want owners to know.
    #[serde(default)]
    pub notices: Vec<String>,
    /// Jobs that this Island refused since the agent started, by reason.
    pub refusals: BTreeMap<RefusalReason, Count>,
    /// When the coordinator committed the end of the last job.
    #[serde(default)]
    pub last_job: Option<Timestamp>,
    /// Earnings.
    pub earned: Earned,
    /// Load of the last hour.
    pub history: Vec<Point>,
    /// Number of the agent's tasks, and of entries in its tables, by name. What grows with the jobs that have passed is a leak.
    #[serde(default)]
    pub tables: BTreeMap<String, u64>,
}

/// Earnings of this Island.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Earned {
    /// Credits today.
    pub today: MicroCredits,
    /// Paid jobs today.
    pub jobs_today: u64,
    /// Credits of all days.
    pub total: MicroCredits,
    /// Paid jobs of all days.
    pub jobs: u64,
    /// Credits of the latest days with jobs, oldest first.
    pub days: Vec<(String, MicroCredits)>,
    /// Completed jobs by the device that ran them.
    #[serde(default)]
    pub devices: BTreeMap<String, u64>,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// The Cargo it was started for.
    pub cargo: String,
    /// Its process id.
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

/// Reads the settings anew, from where the agent got them.
type Reread = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// The settings in force, and how those that the next start would use are read.
#[derive(Clone)]
pub struct InForce {
    /// The settings.
    pub config: Config,
    reread: Reread,
}

impl InForce {
    /// Settings that `reread` reads again.
    pub fn new(
        config: Config,
        reread: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self { config, reread: Arc::new(reread) }
    }

    /// Differences from the settings that the next start would use.
    fn notes(&self) -> Vec<String> {
        match (self.reread)().and_then(|config| config.validate().map(|()| config)) {
            Ok(config) => {
                let changed = config::differences(&self.config, &config);
                let note = || {
                    format!(
                        "changed settings are not in force until the agent is restarted: {}",
                        changed.join(", ")
                    )
                };
                (!changed.is_empty()).then(note).into_iter().collect()
            }
            Err(error) => vec![format!(
                "the changed settings cannot be used, and the agent would not start again: {error}"
            )],
        }
    }
}

impl fmt::Debug for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InForce").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The parts of the agent that the status is gathered from.
#[derive(Debug)]
pub struct Sources {
    /// Name of the Island.
    pub name: String,
    /// Its coordinator.
    pub api_url: String,
    /// State folder, whose credentials show whether the Island is enrolled.
    pub state_dir: PathBuf,
    /// The settings in force.
    pub settings: InForce,
    /// Its connection.
    pub fabric: Arc<Fabric>,
    /// Its jobs.
    pub supervisor: Arc<Supervisor>,
    /// Its load.
    pub load: watch::Receiver<Arc<Sample>>,
    /// Its models.
    pub cache: Cache,
    /// Downloads recommended models.
    pub preloader: Arc<Preloader>,
    /// What the operators of the network want owners to know.
    pub notices: Arc<Notices>,
    /// Evaluates the owner's rules.
    pub governor: Arc<Governor>,
    /// Its earnings.
    pub earnings: Arc<Earnings>,
    /// Requests test jobs.
    pub checker: Checker,
    /// Load of the last hour.
    pub history: History,
    /// When the agent started.
    pub started: Instant,
}

impl Sources {
    /// Gathers the status.
    pub fn status(&self) -> Status {
        let sample = self.load.latest();
        let stance = self.supervisor.stance();
        let held: u64 = self.cache.own_files().iter().map(|file| file.size).sum();
        let gigabytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let book = self.earnings.book();
        // `leave` removes the credentials, and the coordinator renews none for a host that left.
        let engines = self.supervisor.pool().runtimes().engine_devices(&sample.gpus.cards);
        let enrolled = credentials::enrolled_with(&self.state_dir);
        let left = self.fabric.was_registered() && enrolled.is_none();
        let elsewhere = enrolled.filter(|url| *url != self.api_url).map(|url| {
            let own = &self.api_url;
            format!("this Island enrolled with {url}, but the agent's settings name {own}: change api_url and restart the agent")
        });
        let withheld = self.supervisor.pool().runtimes().withholding().list();
        let withheld = withheld
            .into_iter()
            .map(|(what, rest)| format!("{what}; it is offered again in {} s", rest.as_secs().max(1)));
        let damaged = (self.cache.damaged() > 0).then(|| {
            let count = self.cache.damaged();
            format!(
                "{count} damaged files of models were found on this machine's disk since the agent started, and are downloaded \
                 again: check the disk and the memory"
            )
        });
        let mismatches = self.cache.mismatches().into_iter().map(|(file, mismatch)| {
            let island_cache::Mismatch { expected, found, until_ms, .. } = mismatch;
            let until = clock::local(Timestamp::from_unix_ms(i64::try_from(until_ms).unwrap_or(i64::MAX)));
            format!("{file} has the hash {found}, not {expected} as its Cargo states: it is not downloaded again before {until}")
        });
        let notes = elsewhere
            .into_iter()
            .chain(damaged)
            .chain(mismatches)
            .chain(self.settings.notes())
            .chain(withheld);
        Status {
            host_id: self.fabric.host_id(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_url: self.api_url.clone(),
            connected: self.fabric.is_up() && !left,
            refusal: self.fabric.refusal(),
            left,
            up_s: self.started.elapsed().as_secs(),
            verdict: stance.verdict,
            order: self.governor.orders().effective(),
            control: self.governor.control(),
            measured: self.supervisor.measured(),
            system: sample.system.clone(),
            gpus: sample.gpus.loads(),
            notes: notes.collect(),
            gpu_notes: gpu_notes(&sample.gpus, &stance.paused_gpus, &engines),
            engines,
            jobs: self.supervisor.running(),
            workers: self.supervisor.pool().workers().iter().map(|worker| shown(worker)).collect(),
            models_gb: gigabytes(held),
            room_gb: gigabytes(self.cache.free_bytes()),
            fetching: self.preloader.now().latest(),
            notices: self.notices.texts(),
            refusals: self.supervisor.refusals().all(),
            last_job: book.last,
            earned: earned(&book),
            history: self.history.points(),
            tables: self.tables(),
        }
    }

    fn tables(&self) -> BTreeMap<String, u64> {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let own = [("tasks", tasks), ("refusal_reasons", self.supervisor.refusals().all().len())];
        let sizes = own.into_iter().chain(self.supervisor.sizes());
        sizes.map(|(name, size)| (name.to_owned(), size as u64)).collect()
    }

    /// Records the load until stopped.
    pub async fn record_history(&self, stop: CancellationToken) {
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

fn gpu_notes(gpus: &View, paused_gpus: &PausedGpus, engines: &[EngineDevices]) -> Vec<String> {
    let paused = paused_gpus.iter().map(|(index, reason)| format!("GPU {index} is paused: {reason}"));
    let unused = engines.iter().flat_map(|engine| engine.notes().map(|(_, note)| note));
    let closed = nodes::problems(Path::new("/dev"), !gpus.cards.is_empty());
    paused.chain(closed).chain(unused).chain(gpus.notes()).collect()
}

fn shown(worker: &WorkerHandle) -> Worker {
    let stats = worker.stats();
    let is_ready = worker.is_ready();
    let idle = if stats.jobs > 0 { Duration::ZERO } else { stats.idle_since.elapsed() };
    let cargo = &worker.launch.cargo;
    // A shared worker runs all Cargos of its engine.
    let name =
        if cargo.is_shared() { format!("{} engine", cargo.runtime_type) } else { cargo.slug.to_string() };
    Worker {
        cargo: name,
        pid: worker.pid,
        state: if is_ready { "ready" } else { "loading" }.to_owned(),
        jobs: stats.jobs,
        ram_mb: worker.resident_mb(),
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
        devices: book.devices.clone(),
    }
}
