//! The engine interface: from a request to a running container, and shutdown.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use island_protocol::{
    cargo::RuntimeType,
    ids::AttemptKey,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{Phase, Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_worker::launch::{ContainerRules, egress_folder};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{
    daemon::Daemon,
    engine_config::{EngineConfig, invalid_cargo},
    exit::cancelled,
    images::{Image, Images, State, Wanted},
    labels::{Maker, container_name},
    resource_limits::{ResourceLimits, not_here},
    run::{follow, no_image},
    start::{NotStarted, Spec, Started, Starter},
    warm_pool::WarmPool,
};

/// Name of the artifact that is the image.
const IMAGE: &str = "model";
/// Number of times that a job is tried again because its image was removed.
const TRIES: u32 = 3;

/// Settings of the engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The owner's rules.
    pub rules: ContainerRules,
    /// Its identity for labels.
    pub maker: Maker,
    /// Jobs at once.
    pub slots: u32,
    /// Folder of the egress folders, if the agent provides egress.
    pub egress_dir: Option<PathBuf>,
    /// The GPUs that containers may use, by the names of NVIDIA's toolkit.
    pub gpus: Vec<String>,
}

/// Cargos in containers.
#[derive(Debug)]
pub struct Containers {
    daemon: Daemon,
    settings: Settings,
    images: Arc<Images>,
    starter: Starter,
    ahead: Arc<WarmPool>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// A parsed request.
struct Parsed {
    table: EngineConfig,
    limits: ResourceLimits,
    image: Wanted,
}

impl Containers {
    /// Starts with this daemon. What other workers left behind is the agent's to remove.
    pub fn start(daemon: Daemon, settings: Settings) -> Self {
        let starter = Starter::new(daemon.clone(), settings.maker.clone());
        let ahead = Arc::new(WarmPool::new(starter.clone(), settings.rules.ahead));
        let watch = {
            let ahead = Arc::clone(&ahead);
            tokio::spawn(async move { ahead.watch().await })
        };
        let images = Arc::new(Images::new(daemon.clone()));
        Self { daemon, settings, images, starter, ahead, watch: Mutex::new(Some(watch)) }
    }

    /// Version of the daemon.
    pub fn version(&self) -> String {
        self.daemon.abilities.version.clone()
    }

    /// Ids of the containers that were started in advance and wait for a job.
    pub fn waiting_ahead(&self) -> Vec<String> {
        self.ahead.waiting()
    }

    fn parse(&self, request: &RunRequest) -> Result<Parsed, Failure> {
        let table = EngineConfig::of(&request.cargo)?;
        let no_gpu = match self.daemon.abilities.gpu_problem() {
            None if self.settings.gpus.is_empty() => Some("no GPU of this Island is offered to containers"),
            problem => problem,
        };
        let limits = ResourceLimits::of(&request.cargo, &table, &self.settings.rules, no_gpu)?;
        // A tier is a limit, not a promise of processors that this machine does not have.
        let milli_cpus = limits.milli_cpus.min(self.daemon.abilities.milli_cpus.unwrap_or(u64::MAX));
        let limits = ResourceLimits { milli_cpus, ..limits };
        let file = request.artifacts.get(IMAGE).map(|path| -> &Path { path });
        let image = Wanted::of(&request.cargo, file, &self.settings.rules.registries)?;
        Ok(Parsed { table, limits, image })
    }

    async fn attempt(&self, request: &RunRequest, context: &RunContext) -> Result<Outcome, Failure> {
        let parsed = self.parse(request)?;
        for _ in 0..TRIES {
            context.work.enter(Phase::Load);
            let image = self.image(&parsed.image, context).await?;
            if parsed.table.command.is_empty() && !image.has_program {
                return Err(invalid_cargo("the Cargo names no command, and its image none either"));
            }
            let command = parsed.table.command.clone();
            let egress_mount = self.egress_mount(&parsed.table, context.key)?;
            let gpus = if parsed.limits.gpus { self.settings.gpus.clone() } else { Vec::new() };
            let Image { id, cleared, .. } = image;
            let spec = Spec { image: id, cleared, command, limits: parsed.limits, gpus, egress_mount };
            match self.container(&spec, context.key).await {
                Ok(started) => return Ok(follow(&self.daemon, started, &spec.limits, request, context).await),
                Err(NotStarted::Failed(failure)) => return Err(failure),
                Err(NotStarted::ImageGone) => {
                    self.images.forget(&parsed.image);
                    self.ahead.forget(&spec.image);
                }
            }
        }
        Err(no_image())
    }

    /// Returns the folder that the agent created for an attempt whose program connects to addresses.
    fn egress_mount(&self, table: &EngineConfig, key: AttemptKey) -> Result<Option<PathBuf>, Failure> {
        if table.egress.is_empty() {
            return Ok(None);
        }
        let dir = self.settings.egress_dir.as_deref();
        let dir = dir.ok_or_else(|| not_here("the agent of this Island provides no egress"))?;
        Ok(Some(egress_folder(dir, key)))
    }

    /// Waits for the image, and reports progress.
    async fn image(&self, wanted: &Wanted, context: &RunContext) -> Result<Image, Failure> {
        let mut state = self.images.follow(wanted);
        let mut reported = None;
        loop {
            #[expect(clippy::disallowed_methods, reason = "the guard ends with the clone")]
            let now = state.borrow_and_update().clone();
            match now {
                State::Here(image) => return Ok(image),
                State::Failed(failure) => return Err(failure),
                State::Coming { done, total } => {
                    context.work.advance(1);
                    let percent = (done * 100).checked_div(total);
                    if percent.is_some() && percent != reported {
                        context.events.progress(Phase::Load.as_str(), done, total);
                        reported = percent;
                    }
                }
            }
            if state.changed().await.is_err() {
                return Err(Failure::of_host(FailureCode::InternalError, "loading the image failed"));
            }
        }
    }

    /// Returns one created in advance, or a new one.
    async fn container(&self, spec: &Spec, key: AttemptKey) -> Result<Started, NotStarted> {
        if let Some(started) = self.ahead.take(spec) {
            self.name(&started, key);
            return Ok(started);
        }
        // In a separate task: a run that is dropped meanwhile must not leak a container.
        let (starter, spec) = (self.starter.clone(), spec.clone());
        let starting = self.starter.tasks.spawn(async move { starter.start(&spec, Some(key)).await });
        let broke = |_| Failure::of_host(FailureCode::InternalError, "starting the container failed");
        starting.await.map_err(broke).map_err(NotStarted::Failed)?
    }

    /// Labels cannot be changed any more, but the name can; people find the job by it.
    fn name(&self, started: &Started, key: AttemptKey) {
        let (docker, id) = (self.daemon.quick.clone(), started.container.id().to_owned());
        self.starter.tasks.spawn(async move {
            let options = bollard::query_parameters::RenameContainerOptionsBuilder::new()
                .name(&container_name(key))
                .build();
            if let Err(error) = docker.rename_container(&id, options).await {
                tracing::debug!(container = id, %error, "a container could not be renamed");
            }
        });
    }
}

impl Runtime for Containers {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Container
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        Ok(Probe { slots: self.settings.slots, ..probed(&self.daemon, None) })
    }

    fn admit(&self, request: &RunRequest) -> Result<(), Failure> {
        self.parse(request).map(drop)
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        let cancel = context.cancel.clone();
        if cancel.is_cancelled() {
            return Outcome::failed(cancelled());
        }
        // A running program handles its cancellation, and is given the chance first; before that the run is dropped.
        let outcome = tokio::select! {
            biased;
            outcome = self.attempt(&request, &context) => outcome,
            () = cancel.cancelled() => Err(cancelled()),
        };
        outcome.unwrap_or_else(Outcome::failed)
    }

    async fn shutdown(&self) {
        let watch = self.watch.lock().take();
        if let Some(watch) = watch {
            watch.abort();
            // It was cancelled; the result of ending it does not matter.
            let _ = watch.await;
        }
        self.ahead.stop().await;
        self.starter.stop().await;
        self.images.stop().await;
    }
}

/// What a daemon offers. `toolkit` is the problem of the toolkit that gives containers GPUs, if it has one.
pub(crate) fn probed(daemon: &Daemon, toolkit: Option<String>) -> Probe {
    let abilities = &daemon.abilities;
    let no_gpu = abilities.gpu_problem().map(str::to_owned).or(toolkit);
    let no_gpu = no_gpu.map(|problem| ("gpu".to_owned(), problem));
    Probe {
        version: abilities.version.clone(),
        devices: Vec::new(),
        backend: None,
        slots: 0,
        details: abilities.details.clone().into_iter().chain(no_gpu).collect(),
        features: Vec::new(),
    }
}
