//! The workers of this Island: one per loaded model, started at its first job, stopped when its memory is needed.

mod memory;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use island_protocol::{
    artifact::Artifact,
    cargo::{CargoSpec, RuntimeType},
    fabric::Assignment,
    host::{SandboxLevel, SandboxReport},
    ids::{AttemptKey, InstanceId},
    job::{Failure, FailureCode},
};
use island_runtimes_worker::{
    frame::HeldJob,
    host::{self, HostError},
    launch::{ContainerRules, LAUNCH_FILE, Launch},
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::{
    inventory::{meter::Sample, runtimes::Runtimes},
    model_demand::ModelDemand,
    policy::{Stance, gpus::GpuRule},
    worker::{self, Command, WorkerClaim, WorkerExit, WorkerHandle},
    worker_placement::Placement,
};

/// Time a worker that was told to stop gets before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The same where the owner wants the machine back.
const LEAVE_GRACE: Duration = Duration::from_millis(400);
/// GPU memory that a driver keeps for each process beside what its engine asks for, megabytes.
const DRIVER_MB: u64 = 384;
/// A worker found in its folder says this, next to what it was launched with.
const KEY_SUFFIX: &str = "key";

/// Jobs of one key share a worker: same engine, same files, same context, same settings. Where the engine takes all its Cargos
/// into one worker, the engine alone makes the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModelKey(String);

impl ModelKey {
    /// The key of an attempt's worker.
    pub fn of_attempt(assignment: &Assignment) -> Self {
        Self::of(&assignment.cargo, assignment.isolated.then_some(assignment.key))
    }

    /// The key of a Cargo; an attempt that must be alone gets one of its own.
    pub fn of(cargo: &CargoSpec, alone: Option<AttemptKey>) -> Self {
        let alone = alone.map(|key| key.to_string()).unwrap_or_default();
        if cargo.is_shared() {
            let text = serde_json::to_string(&(cargo.runtime_type.as_str(), alone));
            return Self(text.expect("plain values serialise"));
        }
        let file = |artifact: &Artifact| match artifact.sha256 {
            Some(digest) => format!("{}={digest}", artifact.name),
            None => format!("{}={}", artifact.name, artifact.url),
        };
        let files: Vec<String> = cargo.artifacts.iter().map(file).collect();
        let task = cargo.onnx_task_type.as_deref().unwrap_or_default();
        let parts =
            (cargo.runtime_type.as_str(), task, files, cargo.limits.context_tokens, &cargo.engine, alone);
        Self(serde_json::to_string(&parts).expect("plain values serialise"))
    }
}

/// Settings of the pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Folder of the workers' folders.
    pub dir: PathBuf,
    /// Processor threads per worker.
    pub threads: u32,
    /// Jobs at once per worker.
    pub slots: u32,
    /// Jobs at once in a worker that all Cargos of an engine share.
    pub shared_slots: u32,
    /// Folders in which the files of their Cargos lie.
    pub folders: Vec<PathBuf>,
    /// Folder of jobs' debug logs.
    pub log_dir: PathBuf,
    /// What the owner allows containers.
    pub containers: ContainerRules,
    /// Folder of their ways out.
    pub egress_dir: PathBuf,
    /// Main memory that the owner keeps, megabytes.
    pub reserve_ram_mb: u64,
    /// GPU memory that the owner keeps, megabytes.
    pub reserve_vram_mb: u64,
    /// What the owner says of single GPUs.
    pub gpu_rules: Vec<GpuRule>,
    /// Go on where walls are missing.
    pub allow_weak_sandbox: bool,
}

/// A worker that cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// No engine for it here.
    #[error("no engine: {0}")]
    NoRuntime(String),
    /// Not now: other work takes the memory.
    #[error("no room for a worker of {ram_mb} MB and {vram_mb} MB on a GPU")]
    NoRoom {
        /// Main memory wanted.
        ram_mb: u64,
        /// GPU memory wanted.
        vram_mb: u64,
    },
    /// It did not start.
    #[error("start a worker")]
    Start(#[source] HostError),
}

impl AcquireError {
    /// What this means for the job that wanted it.
    pub fn failure(&self) -> Failure {
        let code = match self {
            Self::NoRoom { .. } => FailureCode::OutOfMemory,
            Self::NoRuntime(_) | Self::Start(_) => FailureCode::RuntimeCrashed,
        };
        Failure::of_host(code, self.to_string())
    }
}

/// The workers.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    runtimes: Runtimes,
    load: tokio::sync::watch::Receiver<Arc<Sample>>,
    workers: Mutex<Vec<(ModelKey, Arc<WorkerHandle>)>>,
    /// What was asked for lately, loaded or not.
    model_demand: Mutex<ModelDemand<ModelKey>>,
    /// The latest report of a sandbox: every worker here reaches the same.
    sandbox: Mutex<Option<SandboxReport>>,
    /// What is paused.
    stance: tokio::sync::watch::Receiver<Stance>,
    /// Memory is freed and taken by one start at a time.
    starting: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
}

impl Pool {
    /// An empty pool.
    pub fn new(
        config: PoolConfig,
        runtimes: Runtimes,
        load: tokio::sync::watch::Receiver<Arc<Sample>>,
        stance: tokio::sync::watch::Receiver<Stance>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            runtimes,
            load,
            workers: Mutex::default(),
            model_demand: Mutex::default(),
            sandbox: Mutex::default(),
            stance,
            starting: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// The engines' programs.
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// What the owner allows containers.
    pub fn containers(&self) -> &ContainerRules {
        &self.config.containers
    }

    /// All workers that are not gone.
    pub fn workers(&self) -> Vec<Arc<WorkerHandle>> {
        let workers = self.lock();
        workers.iter().filter(|(_, worker)| !worker.is_gone()).map(|(_, worker)| Arc::clone(worker)).collect()
    }

    /// The walls that workers reach here, once one has told.
    pub fn sandbox(&self) -> Option<SandboxReport> {
        let told = self.workers().iter().find_map(|worker| worker.sandbox());
        let mut known = self.sandbox.lock();
        if told.is_some() {
            *known = told;
        }
        known.clone()
    }

    /// Just the level of [`Pool::sandbox`].
    pub fn sandbox_level(&self) -> Option<SandboxLevel> {
        self.sandbox().map(|report| report.level)
    }

    /// Claims the worker of `key`, which is started if there is none. It may still be loading.
    pub async fn acquire(
        self: &Arc<Self>,
        key: &ModelKey,
        cargo: &CargoSpec,
        artifacts: &BTreeMap<String, PathBuf>,
    ) -> Result<WorkerClaim, AcquireError> {
        self.model_demand().note(key.clone(), Instant::now());
        if let Some(worker) = self.find(key) {
            return Ok(WorkerClaim::new(worker));
        }
        let _one_at_a_time = self.starting.lock().await;
        if let Some(worker) = self.find(key) {
            return Ok(WorkerClaim::new(worker));
        }
        let room = self.make_room(cargo).await?;
        let worker = self.start(key, cargo, artifacts, &room).await?;
        Ok(WorkerClaim::new(worker))
    }

    /// Takes up the workers that an earlier agent left, and removes the folders of those that are gone. Gives the
    /// attempts each holds.
    pub async fn recover(self: &Arc<Self>) -> io::Result<Vec<(Arc<WorkerHandle>, Vec<HeldJob>)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.config.dir)? {
            let dir = entry?.path();
            if !dir.is_dir() {
                continue;
            }
            match self.adopt(&dir).await {
                Some(worker) => found.push(worker),
                None => remove_worker(&dir),
            }
        }
        Ok(found)
    }

    /// The GPU that the worker of a key is kept to.
    pub fn gpu_of(&self, key: &ModelKey) -> Option<u32> {
        self.find(key)?.launch.gpu
    }

    /// Stops these workers at once, for an owner who wants the machine or a GPU back. Those of containers get the time to remove
    /// them.
    pub async fn stop_now(&self, which: impl Fn(&WorkerHandle) -> bool) {
        let workers: Vec<_> = self.workers().into_iter().filter(|worker| which(worker)).collect();
        for worker in &workers {
            worker.send(Command::Stop { now: true });
        }
        let gone = workers.iter().map(|worker| async move {
            let has_containers = worker.launch.cargo.runtime_type == RuntimeType::Container;
            let grace = if has_containers { STOP_GRACE } else { LEAVE_GRACE };
            if tokio::time::timeout(grace, worker.death()).await.is_err() {
                worker.send(Command::Kill(WorkerExit::Stalled));
                worker.death().await;
            }
        });
        futures::future::join_all(gone).await;
    }

    /// Stops every worker: no process is left.
    pub async fn stop_all(&self) {
        let workers = self.workers();
        for worker in &workers {
            worker.send(Command::Stop { now: true });
        }
        futures::future::join_all(workers.iter().map(|worker| await_stop(worker))).await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn adopt(self: &Arc<Self>, dir: &Path) -> Option<(Arc<WorkerHandle>, Vec<HeldJob>)> {
        let launch: Launch = serde_json::from_slice(&fs::read(dir.join(LAUNCH_FILE)).ok()?).ok()?;
        let key: ModelKey = serde_json::from_slice(&fs::read(dir.with_extension(KEY_SUFFIX)).ok()?).ok()?;
        let running = host::attach(dir).await.ok()?;
        let (worker, mut task) = WorkerHandle::new(running, launch, dir.to_owned());
        let Some(held) = task.hello().await else {
            tracing::warn!(dir = %dir.display(), "a process in a worker's folder does not say what it holds");
            task.end().await;
            return None;
        };
        tracing::info!(instance = %worker.instance, pid = worker.pid, jobs = held.len(), "found a running worker");
        self.supervise(key, &worker, task);
        Some((worker, held))
    }

    async fn start(
        self: &Arc<Self>,
        key: &ModelKey,
        cargo: &CargoSpec,
        artifacts: &BTreeMap<String, PathBuf>,
        room: &Placement<InstanceId>,
    ) -> Result<Arc<WorkerHandle>, AcquireError> {
        let binary = self.runtimes.binary(cargo).map_err(AcquireError::NoRuntime)?;
        let instance = InstanceId(uuid::Uuid::new_v4());
        let dir = self.config.dir.join(short_name(instance));
        let launch = self.launch(instance, cargo, artifacts, room);
        let text = serde_json::to_vec(key).expect("a key serialises");
        let noted = fs::write(dir.with_extension(KEY_SUFFIX), text);
        noted.map_err(|source| AcquireError::Start(HostError::Prepare(dir.clone(), source)))?;
        let running = host::spawn(&binary, &dir, &launch).await.map_err(AcquireError::Start)?;
        let (worker, task) = WorkerHandle::new(running, launch, dir);
        tracing::info!(%instance, pid = worker.pid, cargo = %cargo.slug, "started a worker");
        self.supervise(key.clone(), &worker, task);
        Ok(worker)
    }

    fn launch(
        &self,
        instance: InstanceId,
        cargo: &CargoSpec,
        artifacts: &BTreeMap<String, PathBuf>,
        room: &Placement<InstanceId>,
    ) -> Launch {
        let (share, free) = (&room.share, room.free);
        let common = Launch {
            log_dir: Some(self.config.log_dir.clone()),
            threads: self.config.threads,
            allow_weak_sandbox: self.config.allow_weak_sandbox,
            containers: self.config.containers.clone(),
            egress_dir: Some(self.config.egress_dir.clone()),
            ..Launch::new(instance, cargo.clone())
        };
        if cargo.is_shared() {
            let folders = self.config.folders.clone();
            // Each job has a limit of its own; this one is for the worker gone wrong.
            return Launch {
                folders,
                memory_limit_mb: free.ram_mb,
                slots: self.config.shared_slots,
                ..common
            };
        }
        Launch {
            artifacts: artifacts.clone(),
            memory_limit_mb: memory_limit(cargo.required_ram_mb, free.ram_mb),
            slots: self.config.slots,
            vram_limit_mb: free.vram_mb.saturating_sub(DRIVER_MB),
            gpu: share.gpu.filter(|_| share.is_kept),
            environment: share.environment.clone(),
            ..common
        }
    }

    /// Runs the worker's task, and cleans up after the worker.
    fn supervise(self: &Arc<Self>, key: ModelKey, worker: &Arc<WorkerHandle>, task: worker::WorkerTask) {
        self.lock().push((key, Arc::clone(worker)));
        let (pool, worker) = (Arc::clone(self), Arc::clone(worker));
        self.tasks.spawn(async move {
            worker::run(task).await;
            if let Some(report) = worker.sandbox() {
                *pool.sandbox.lock() = Some(report);
            }
            pool.lock().retain(|(_, other)| other.instance != worker.instance);
            if worker.has_exited() {
                remove_worker(&worker.dir);
            }
        });
    }

    fn model_demand(&self) -> MutexGuard<'_, ModelDemand<ModelKey>> {
        self.model_demand.lock()
    }

    fn find(&self, key: &ModelKey) -> Option<Arc<WorkerHandle>> {
        let workers = self.lock();
        let found = workers.iter().find(|(other, worker)| other == key && !worker.is_gone());
        found.map(|(_, worker)| Arc::clone(worker))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ModelKey, Arc<WorkerHandle>)>> {
        self.workers.lock()
    }
}

/// Most memory of a worker: room for what its Cargo says and as much again, within what is free.
fn memory_limit(required_mb: u64, free_mb: u64) -> u64 {
    if required_mb == 0 { free_mb } else { (required_mb * 2 + 512).min(free_mb).max(required_mb) }
}

/// Short, for a socket's path may have only 107 bytes.
fn short_name(instance: InstanceId) -> String {
    instance.0.simple().to_string()[..12].to_owned()
}

async fn await_stop(worker: &WorkerHandle) {
    if tokio::time::timeout(STOP_GRACE, worker.death()).await.is_err() {
        worker.send(Command::Kill(WorkerExit::Stalled));
        worker.death().await;
    }
}

fn remove_worker(dir: &Path) {
    let removed = fs::remove_dir_all(dir);
    let _ = fs::remove_file(dir.with_extension(KEY_SUFFIX));
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a worker's folder");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_key_is_the_files_and_the_settings() {
        let cargo = testing::assignment(1, 1).cargo;
        let key = ModelKey::of(&cargo, None);
        assert_eq!(key, ModelKey::of(&cargo.clone(), None));
        let mut other = cargo.clone();
        other.limits.context_tokens = 512;
        assert_ne!(key, ModelKey::of(&other, None));
        assert_ne!(key, ModelKey::of(&cargo, Some(testing::assignment(1, 1).key)));
    }

    #[test]
    fn cargos_of_a_shared_engine_have_one_key() {
        let mut one = testing::assignment(1, 1).cargo;
        one.engine = serde_json::Value::Null;
        one.runtime_type = island_protocol::cargo::RuntimeType::Wasm;
        let mut other = one.clone();
        other.slug = "other".parse().expect("a slug");
        other.limits.context_tokens = 1;
        assert_eq!(ModelKey::of(&one, None), ModelKey::of(&other, None));
        assert_ne!(ModelKey::of(&one, None), ModelKey::of(&one, Some(testing::assignment(1, 1).key)));
        other.runtime_type = island_protocol::cargo::RuntimeType::Container;
        assert_ne!(ModelKey::of(&one, None), ModelKey::of(&other, None));
    }

    #[test]
    fn a_limit_is_generous_within_what_is_free() {
        assert_eq!(memory_limit(0, 4000), 4000);
        assert_eq!(memory_limit(1000, 8000), 2512);
        assert_eq!(memory_limit(1000, 1200), 1200);
        assert_eq!(memory_limit(1000, 900), 1000);
    }
}
