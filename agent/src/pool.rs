//! The workers of this Island: one per loaded model, started for its first job, stopped when its memory is needed.

mod ends;
mod limits;
mod memory;
mod promises;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use island_daemon::{chain::Chain, latest::Latest};
use island_protocol::{
    artifact::Artifact,
    cargo::{CargoSpec, RuntimeType},
    fabric::Assignment,
    host::{SandboxLevel, SandboxReport},
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, FailureCode},
};
use island_runtimes_worker::{
    frame::HeldJob,
    host::{self, HostError, Orphans},
    launch::{ContainerRules, GpuGrant, LAUNCH_FILE, Launch, SCRATCH_DIR},
    lockdown::MIN_MEMORY_MB,
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    ends::{STOP_GRACE, end_unknown},
    memory::Granted,
    promises::Promises,
};
use crate::{
    disk::job_logs,
    inventory::{engine_devices::EngineDevices, gpu::Card, meter::Sample, runtimes::Runtimes},
    memory::{model_demand::ModelDemand, warm_containers::WarmContainers},
    owner::policy::{
        Stance,
        gpus::{self, GpuRule},
    },
    worker::{self, Command, WorkerClaim, WorkerHandle},
};

/// Time before the containers of a worker that has ended are removed again, if that failed; doubles.
const FIRST_REAP_WAIT: Duration = Duration::from_secs(2);
/// The longest such time.
const MAX_REAP_WAIT: Duration = Duration::from_mins(1);
/// File in a worker's folder that contains its key, so that a restarted agent can identify the worker.
const KEY_SUFFIX: &str = "key";

/// Jobs with the same key share a worker: same engine, files, context and settings. If one worker runs all Cargos of an engine, only the
/// engine is part of the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModelKey(String);

impl ModelKey {
    /// Returns the key of an attempt's worker.
    pub fn of_attempt(assignment: &Assignment) -> Self {
        Self::of(&assignment.cargo, assignment.isolated.then_some(assignment.key))
    }

    /// Returns the key of a Cargo. An isolated attempt gets a key of its own.
    pub fn of(cargo: &CargoSpec, alone: Option<AttemptKey>) -> Self {
        let alone = alone.map(|key| key.to_string()).unwrap_or_default();
        if cargo.is_shared() {
            let text = serde_json::to_string(&(cargo.runtime_type.as_str(), alone));
            return Self(text.expect("plain values are valid JSON"));
        }
        let file = |artifact: &Artifact| match artifact.sha256 {
            Some(digest) => format!("{}={digest}", artifact.name),
            None => format!("{}={}", artifact.name, artifact.url),
        };
        let files: Vec<String> = cargo.artifacts.iter().map(file).collect();
        let task = cargo.onnx_task_type.as_deref().unwrap_or_default();
        let parts =
            (cargo.runtime_type.as_str(), task, files, cargo.limits.context_tokens, &cargo.engine, alone);
        Self(serde_json::to_string(&parts).expect("plain values are valid JSON"))
    }

    /// The key of a worker that gets no further job.
    fn of_nothing(worker: InstanceId) -> Self {
        Self(worker.to_string())
    }
}

/// Settings of the pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Folder that contains the workers' folders.
    pub dir: PathBuf,
    /// Processor threads per worker.
    pub threads: u32,
    /// Jobs at once per worker.
    pub slots: u32,
    /// Jobs at once in a worker that runs all Cargos of an engine.
    pub shared_slots: u32,
    /// Folders that contain the files of their Cargos, by engine.
    pub folders: BTreeMap<RuntimeType, Vec<PathBuf>>,
    /// Folder of the jobs' debug logs.
    pub log_dir: PathBuf,
    /// The owner's rules for containers.
    pub containers: ContainerRules,
    /// Folder of their egress mounts.
    pub egress_dir: PathBuf,
    /// Main memory that jobs never use, megabytes.
    pub reserve_ram_mb: u64,
    /// GPU memory that jobs never use, megabytes.
    pub reserve_vram_mb: u64,
    /// The owner's rules for single GPUs.
    pub gpu_rules: Vec<GpuRule>,
    /// Run workers even if the sandbox is incomplete.
    pub allow_weak_sandbox: bool,
}

/// A worker that cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// This Island has no engine for it.
    #[error("no engine: {0}")]
    NoRuntime(String),
    /// Other jobs use the memory now.
    #[error("no free memory for a worker of {ram_mb} MB and {vram_mb} MB on a GPU")]
    NoMemory {
        /// Required main memory.
        ram_mb: u64,
        /// Required GPU memory.
        vram_mb: u64,
    },
    /// Its process could not be started.
    #[error("start a worker")]
    Start(#[source] HostError),
}

impl AcquireError {
    /// Converts this into the failure of the job.
    pub fn failure(&self) -> Failure {
        let code = match self {
            Self::NoMemory { .. } => FailureCode::OutOfMemory,
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
    /// Demand for each model, loaded or not.
    model_demand: Mutex<ModelDemand<ModelKey>>,
    /// The latest report of a sandbox; all workers on this machine reach the same level.
    sandbox: Mutex<Option<SandboxReport>>,
    /// The stance, for paused GPUs.
    stance: tokio::sync::watch::Receiver<Stance>,
    /// The containers that may have been started in advance.
    warm_containers: Mutex<WarmContainers>,
    /// Memory of jobs that allocate their own and have no worker yet.
    promises: Promises,
    /// Held while memory is freed and allocated for one worker.
    starting: tokio::sync::Mutex<()>,
    /// Held while a model is loaded onto GPUs. A worker may use all of their free memory, and how much it takes is known when it is ready.
    loading_onto_gpu: Arc<tokio::sync::Mutex<()>>,
    /// Held while a worker of containers starts, and while containers of unknown workers are removed: one that starts is unknown.
    containers: tokio::sync::Mutex<()>,
    /// Ends the waits between tries to remove containers.
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Pool {
    /// The folder of this agent, which contains its identity; jobs have nothing in it.
    pub fn state_dir(&self) -> &Path {
        self.config.dir.parent().unwrap_or(&self.config.dir)
    }

    /// Creates an empty pool.
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
            warm_containers: Mutex::default(),
            promises: Promises::default(),
            starting: tokio::sync::Mutex::default(),
            loading_onto_gpu: Arc::default(),
            containers: tokio::sync::Mutex::default(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// The engines' programs.
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// The owner's rules for containers.
    pub fn containers(&self) -> &ContainerRules {
        &self.config.containers
    }

    /// All workers whose processes have not ended.
    pub fn workers(&self) -> Vec<Arc<WorkerHandle>> {
        let workers = self.lock();
        workers.iter().filter(|(_, worker)| !worker.is_gone()).map(|(_, worker)| Arc::clone(worker)).collect()
    }

    /// The sandbox that workers reach on this machine, once one has reported.
    pub fn sandbox(&self) -> Option<SandboxReport> {
        let reported = self.workers().iter().find_map(|worker| worker.sandbox());
        let mut known = self.sandbox.lock();
        if reported.is_some() {
            *known = reported;
        }
        known.clone()
    }

    /// The level of [`Pool::sandbox`].
    pub fn sandbox_level(&self) -> Option<SandboxLevel> {
        self.sandbox().map(|report| report.level)
    }

    /// Counts a job with this key. Called once for each, however often it tries to get a worker.
    pub fn note_demand(&self, key: &ModelKey) {
        self.model_demand().note(key.clone(), Instant::now());
    }

    /// Jobs with this key, weighted by age.
    #[cfg(test)]
    pub(crate) fn demand_for(&self, key: &ModelKey) -> f64 {
        self.model_demand().of(key, Instant::now())
    }

    /// Lists a worker that this pool did not start.
    #[cfg(test)]
    pub(crate) fn list(&self, key: ModelKey, worker: Arc<WorkerHandle>) {
        self.lock().push((key, worker));
    }

    /// Returns a claim on the worker of `key`, which is started if it does not run. It may still be loading.
    pub async fn acquire(
        self: &Arc<Self>,
        key: &ModelKey,
        cargo: &CargoSpec,
        artifacts: &BTreeMap<String, PathBuf>,
    ) -> Result<WorkerClaim, AcquireError> {
        // Until the job has a claim on its worker.
        let _promise = self.make_room_for_job(cargo).await?;
        self.warm_containers.lock().note(cargo, Instant::now());
        if let Some(claim) = self.claim(key, cargo) {
            return Ok(claim);
        }
        let one_onto_gpus = if self.gpus_for(cargo).is_empty() {
            None
        } else {
            Some(Arc::clone(&self.loading_onto_gpu).lock_owned().await)
        };
        let _one_at_a_time = self.starting.lock().await;
        if let Some(claim) = self.claim(key, cargo) {
            return Ok(claim);
        }
        let granted = self.free_memory_for(cargo).await?;
        let worker = self.start(key, cargo, artifacts, granted).await?;
        if let Some(loading) = one_onto_gpus.filter(|_| !worker.launch.gpus.is_empty()) {
            let worker = Arc::clone(&worker);
            self.tasks.spawn(async move {
                worker.loaded().await;
                drop(loading);
            });
        }
        Ok(WorkerClaim::new(worker, cargo))
    }

    /// A claim on the worker of a key, if it runs. Counted under the lock: a worker is either claimed or stopped for its memory.
    fn claim(&self, key: &ModelKey, cargo: &CargoSpec) -> Option<WorkerClaim> {
        let workers = self.lock();
        let (_, worker) = workers.iter().find(|(other, worker)| other == key && accepts_jobs(worker))?;
        Some(WorkerClaim::new(Arc::clone(worker), cargo))
    }

    /// Adopts the workers of an earlier agent, and removes the folders of those that have ended. Returns the attempts that each holds.
    pub async fn recover(self: &Arc<Self>) -> io::Result<Vec<(Arc<WorkerHandle>, Vec<HeldJob>)>> {
        let (mut found, mut had_containers) = (Vec::new(), false);
        for entry in fs::read_dir(&self.config.dir)? {
            let dir = entry?.path();
            if !dir.is_dir() {
                if !dir.with_extension("").is_dir() {
                    // The key of a worker whose folder is gone.
                    let _ = fs::remove_file(&dir);
                }
                continue;
            }
            if let Some(worker) = self.adopt(&dir).await {
                found.push(worker);
                continue;
            }
            let launch = read_launch(&dir);
            had_containers |=
                launch.is_some_and(|launch| launch.cargo.runtime_type == RuntimeType::Container);
            remove_worker(&dir);
        }
        let pool = Arc::clone(self);
        self.tasks.spawn(async move { pool.reap_left(had_containers).await });
        Ok(found)
    }

    /// Whether a worker was started for this key.
    pub fn runs(&self, worker: &WorkerHandle, key: &ModelKey) -> bool {
        self.lock().iter().any(|(other, listed)| other == key && listed.instance == worker.instance)
    }

    /// The GPUs that the worker of a key uses.
    pub fn gpus_of(&self, key: &ModelKey) -> Vec<u32> {
        let worker = self.find(key);
        worker.map_or_else(Vec::new, |worker| worker.launch.gpus.iter().map(|gpu| gpu.index).collect())
    }

    /// Moves the debug log that a worker wrote for an attempt to the other logs, if there is one.
    pub fn collect_log(&self, worker: &WorkerHandle, key: AttemptKey) {
        job_logs::collect(&worker.dir.join(SCRATCH_DIR), &self.config.log_dir, key);
    }

    /// The devices of each engine that can use a GPU.
    pub fn engine_devices(&self) -> Vec<EngineDevices> {
        self.runtimes.engine_devices(&self.load.latest().gpus.cards)
    }

    /// The GPUs of this machine, as measured last.
    pub fn cards(&self) -> Vec<Card> {
        self.load.latest().gpus.cards.clone()
    }

    /// The latest sample of the machine, by which memory is divided.
    #[cfg(test)]
    pub(crate) fn sample(&self) -> Arc<Sample> {
        self.load.latest()
    }

    /// Gives no further job to a worker on a GPU whose engine failed, and ends it once it has none: a device that was lost does not come back
    /// in its process. Jobs that wait for it, and later ones, get a new worker. Does nothing for a worker whose process uses no GPU.
    pub fn replace_failed(&self, worker: &WorkerHandle) {
        if !uses_a_gpu(&worker.launch) {
            return;
        }
        let cargo = &worker.launch.cargo.slug;
        tracing::warn!(instance = %worker.instance, %cargo, "a worker on a GPU failed and is replaced");
        let mut workers = self.lock();
        for (key, _) in workers.iter_mut().filter(|(_, other)| other.instance == worker.instance) {
            *key = ModelKey::of_nothing(worker.instance);
        }
        drop(workers);
        worker.slots.close();
        worker.send(Command::Stop { now: false });
        self.runtimes.probe_requests().request();
    }

    /// Counts a failure of this Island for what is withheld: of a worker of this Cargo with these GPUs. `job` is the job that it ran; `None` for
    /// a worker that had none yet.
    pub fn note_failure(&self, cargo: &CargoSpec, gpus: &[GpuGrant], job: Option<JobId>, reason: &str) {
        for place in Runtimes::places(cargo, gpus.iter().map(|gpu| gpu.index)) {
            self.runtimes.withholding().failed(&place, &cargo.slug, job, reason);
        }
    }

    /// Notes that a job completed in a worker.
    pub fn note_success(&self, worker: &WorkerHandle, cargo: &CargoSpec) {
        for place in Runtimes::places(cargo, worker.launch.gpus.iter().map(|gpu| gpu.index)) {
            self.runtimes.withholding().succeeded(&place, &cargo.slug);
        }
    }

    async fn adopt(self: &Arc<Self>, dir: &Path) -> Option<(Arc<WorkerHandle>, Vec<HeldJob>)> {
        let running = host::attach(dir).await.ok()?;
        let Some((launch, key)) = read_launch(dir).zip(read_key(dir)) else {
            tracing::warn!(dir = %dir.display(), "a worker whose settings cannot be read is ended");
            end_unknown(running.process).await;
            return None;
        };
        let (worker, mut task) = WorkerHandle::new(running, launch, dir.to_owned());
        let Some(held) = task.hello().await else {
            tracing::warn!(dir = %dir.display(), "a process in a worker's folder does not report its attempts");
            // It may hang in a driver, which must not keep the agent from starting.
            if tokio::time::timeout(STOP_GRACE, task.end()).await.is_err() {
                tracing::error!(dir = %dir.display(), "that process was killed and does not end");
            }
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
        granted: Granted,
    ) -> Result<Arc<WorkerHandle>, AcquireError> {
        let binary = self.runtimes.binary(cargo).map_err(AcquireError::NoRuntime)?;
        let instance = InstanceId(uuid::Uuid::new_v4());
        let dir = self.config.dir.join(short_name(instance));
        let launch = Launch {
            // Its own folder: a job's log is nothing that other workers may read or change. The agent collects it.
            log_dir: Some(dir.join(SCRATCH_DIR)),
            ..self.launch(instance, cargo, artifacts, granted)
        };
        let _containers = match cargo.runtime_type {
            RuntimeType::Container => Some(self.containers.lock().await),
            _ => None,
        };
        // Also if the job for which it is started is cancelled meanwhile.
        let unfinished = RemoveOnDrop(&dir);
        let text = serde_json::to_vec(key).expect("a key is valid JSON");
        let noted = fs::write(dir.with_extension(KEY_SUFFIX), text);
        noted.map_err(|source| AcquireError::Start(HostError::Prepare(dir.clone(), source)))?;
        let running = host::spawn(&binary, &dir, &launch).await.map_err(|error| {
            if !matches!(error, HostError::Prepare(..)) {
                self.note_failure(cargo, &launch.gpus, None, "a worker ended before it could be used");
            }
            AcquireError::Start(error)
        })?;
        std::mem::forget(unfinished);
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
        granted: Granted,
    ) -> Launch {
        let common = Launch {
            threads: self.config.threads,
            allow_weak_sandbox: self.config.allow_weak_sandbox,
            containers: self.config.containers.clone(),
            egress_dir: Some(self.config.egress_dir.clone()),
            ..Launch::new(instance, cargo.clone())
        };
        if cargo.is_shared() {
            let folders = self.config.folders.get(&cargo.runtime_type).cloned().unwrap_or_default();
            // The worker's own limit holds for all jobs that it will ever have; the agent limits it to what its jobs claim.
            return Launch {
                folders,
                environment: gpus::container_environment(&granted.gpus, &self.load.latest().gpus),
                gpus: granted.gpus,
                memory_limit_mb: granted.ram_mb.max(MIN_MEMORY_MB),
                slots: self.config.shared_slots,
                ..common
            };
        }
        Launch {
            artifacts: artifacts.clone(),
            memory_limit_mb: memory_limit(cargo.required_ram_mb, granted.ram_mb, granted.needed_mb),
            slots: self.config.slots,
            environment: gpus::environment(&granted.gpus, &self.load.latest().gpus),
            gpus: granted.gpus,
            ..common
        }
    }

    /// Runs the worker's task, and removes its folder afterwards.
    fn supervise(self: &Arc<Self>, key: ModelKey, worker: &Arc<WorkerHandle>, task: worker::WorkerTask) {
        let own = self.runtimes.own_processes();
        if worker.launch.gpus.is_empty() {
            own.add(worker.pid);
        } else {
            own.add_on_gpus(worker.pid);
        }
        self.lock().push((key, Arc::clone(worker)));
        let (pool, worker) = (Arc::clone(self), Arc::clone(worker));
        self.tasks.spawn(async move {
            worker::run(task).await;
            if let Some(report) = worker.sandbox() {
                *pool.sandbox.lock() = Some(report);
            }
            pool.lock().retain(|(_, other)| other.instance != worker.instance);
            if worker.has_exited() {
                if uses_a_gpu(&worker.launch) && worker.death().await.may_be_of_a_driver() {
                    pool.runtimes.probe_requests().request();
                }
                pool.runtimes.own_processes().remove(worker.pid);
                remove_worker(&worker.dir);
                pool.reap_until_done(&worker).await;
            }
        });
    }

    /// Removes the containers of workers that have ended; returns whether none is left.
    async fn reap(&self, orphans: &Orphans) -> bool {
        let Some(binary) = self.runtimes.container_program() else { return true };
        let daemon = self.config.containers.socket.as_deref();
        match host::reap(&binary, &self.config.dir, orphans, daemon).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "containers of a worker that has ended may still run");
                false
            }
        }
    }

    /// Removes the containers of a worker that has ended, as often as it takes. An agent that stops tries once more; the next one tries again.
    async fn reap_until_done(&self, worker: &WorkerHandle) {
        if worker.launch.cargo.runtime_type != RuntimeType::Container {
            return;
        }
        let orphans = Orphans::Of(vec![worker.instance]);
        let mut wait = FIRST_REAP_WAIT;
        while !self.reap(&orphans).await && self.paused_for(&mut wait).await {}
    }

    /// Removes the containers that the workers of earlier agents left, as often as it takes. `had_containers` is whether a folder of such a
    /// worker was found; otherwise it waits until containers can be run here, because most machines have no daemon for them.
    async fn reap_left(&self, had_containers: bool) {
        let mut wait = FIRST_REAP_WAIT;
        loop {
            if had_containers || self.runtimes.offers_containers() {
                let _none_starts = self.containers.lock().await;
                let alive = self.lock().iter().map(|(_, worker)| worker.instance).collect();
                if self.reap(&Orphans::AllBut(alive)).await {
                    return;
                }
            }
            if !self.paused_for(&mut wait).await {
                return;
            }
        }
    }

    /// Waits before the next try, longer each time; returns `false` if the pool stops meanwhile.
    async fn paused_for(&self, wait: &mut Duration) -> bool {
        let ended = tokio::time::timeout(*wait, self.stopping.cancelled()).await;
        *wait = (*wait * 2).min(MAX_REAP_WAIT);
        ended.is_err()
    }

    /// Number of models whose demand is known.
    pub fn models_in_demand(&self) -> usize {
        self.model_demand().models()
    }

    fn model_demand(&self) -> MutexGuard<'_, ModelDemand<ModelKey>> {
        self.model_demand.lock()
    }

    fn find(&self, key: &ModelKey) -> Option<Arc<WorkerHandle>> {
        let workers = self.lock();
        let found = workers.iter().find(|(other, worker)| other == key && accepts_jobs(worker));
        found.map(|(_, worker)| Arc::clone(worker))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ModelKey, Arc<WorkerHandle>)>> {
        self.workers.lock()
    }
}

/// Whether a job may be given to a worker, which may still load its model.
fn accepts_jobs(worker: &WorkerHandle) -> bool {
    !worker.is_gone() && !worker.hangs()
}

/// Whether the process of a worker uses a GPU. GPUs of containers are used by other processes.
fn uses_a_gpu(launch: &Launch) -> bool {
    !launch.gpus.is_empty() && !launch.cargo.is_shared()
}

fn read_launch(dir: &Path) -> Option<Launch> {
    serde_json::from_slice(&fs::read(dir.join(LAUNCH_FILE)).ok()?).ok()
}

fn read_key(dir: &Path) -> Option<ModelKey> {
    serde_json::from_slice(&fs::read(dir.with_extension(KEY_SUFFIX)).ok()?).ok()
}

/// Removes what was written for a worker that was not started in the end.
struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        remove_worker(self.0);
    }
}

/// Memory limit of a worker: twice the requirement of its Cargo, within free memory, and at least what was planned for it. Never 0.
fn memory_limit(required_mb: u64, free_mb: u64, planned_mb: u64) -> u64 {
    let limit = if required_mb == 0 {
        free_mb
    } else {
        required_mb.saturating_mul(2).saturating_add(512).min(free_mb)
    };
    limit.max(planned_mb).max(MIN_MEMORY_MB)
}

/// Short, because the path of a socket has at most 107 bytes.
fn short_name(instance: InstanceId) -> String {
    instance.0.simple().to_string()[..12].to_owned()
}

fn remove_worker(dir: &Path) {
    let removed = host::folder::remove(dir);
    let _ = fs::remove_file(dir.with_extension(KEY_SUFFIX));
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a worker's folder");
    }
}

#[cfg(test)]
mod tests {
    use island_runtimes_worker::launch::GpuGrant;

    use super::*;
    use crate::{testing, worker::WorkerState};

    #[test]
    fn a_key_depends_on_files_and_settings() {
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

    #[tokio::test]
    async fn a_worker_whose_gpu_failed_gets_no_further_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = tokio::sync::watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = tokio::sync::watch::channel(Stance::default());
        let pool = testing::pool(folder.path(), load, stance).await;
        let cargo = testing::assignment(1, 1).cargo;
        let key = ModelKey::of(&cargo, None);
        for (gpus, is_kept) in [(vec![], true), (vec![GpuGrant::default()], false)] {
            let (worker, mut commands) = WorkerHandle::on_gpus(cargo.clone(), gpus);
            *pool.lock() = vec![(key.clone(), Arc::clone(&worker))];
            pool.replace_failed(&worker);
            assert_eq!(pool.claim(&key, &cargo).is_some(), is_kept);
            assert_eq!(worker.slots.is_closed(), !is_kept, "those that wait get another worker");
            assert_eq!(matches!(commands.try_recv(), Ok(Command::Stop { now: false })), !is_kept);
            assert_eq!(pool.workers().len(), 1, "its memory is still counted, and a pause still ends it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_hangs_while_it_loads_keeps_no_other_one_from_loading() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = tokio::sync::watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = tokio::sync::watch::channel(Stance::default());
        let pool = testing::pool(folder.path(), load, stance).await;
        let cargo = testing::assignment(1, 1).cargo;
        let key = ModelKey::of(&cargo, None);
        let (_lives, state) = tokio::sync::watch::channel(WorkerState::Loading { done: 0, total: 0 });
        let (worker, _commands) = WorkerHandle::in_state(cargo.clone(), vec![GpuGrant::default()], state);
        *pool.lock() = vec![(key.clone(), Arc::clone(&worker))];
        drop(pool.claim(&key, &cargo).expect("jobs wait until it is loaded"));
        worker.note_hang();
        let loaded = tokio::time::timeout(Duration::from_mins(1), worker.loaded());
        loaded.await.expect("the next model may be loaded onto the GPUs");
        assert!(pool.claim(&key, &cargo).is_none(), "a job of this model gets a new worker");
        assert_eq!(pool.workers().len(), 1, "its memory is still counted");
    }

    #[test]
    fn a_limit_is_twice_the_requirement_within_free_memory() {
        assert_eq!(memory_limit(0, 4000, 0), 4000);
        assert_eq!(memory_limit(0, 0, 0), MIN_MEMORY_MB, "no free memory is not the same as no limit");
        assert_eq!(memory_limit(u64::MAX, 4000, 0), 4000);
        assert_eq!(memory_limit(1000, 8000, 1000), 2512);
        assert_eq!(memory_limit(1000, 1200, 1000), 1200);
        assert_eq!(memory_limit(1000, 900, 1000), 1000);
        assert_eq!(memory_limit(20_000, 12_000, 1762), 12_000, "its model is on a GPU");
    }
}
