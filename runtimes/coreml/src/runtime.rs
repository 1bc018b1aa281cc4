//! The seam to the rest: one model, and as many jobs at once as it has slots.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_onnx::{
    graph::Threads, library, repository::Repository, runtime::jobs::Jobs, task::Pipeline,
};
use serde_json::Value;

use crate::{
    drivers::{self, Parts},
    package::Package,
    portable::Portable,
};

/// How to run a model.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its files, by their path in the repository.
    pub files: BTreeMap<String, PathBuf>,
    /// The Cargo it belongs to.
    pub cargo: CargoSpec,
    /// Jobs at once.
    pub slots: u32,
    /// Processor threads of one run.
    pub threads: u32,
    /// GPU memory it may use, megabytes.
    pub vram_limit_mb: u64,
}

/// A loaded model.
#[derive(Debug)]
pub struct CoreMl(Jobs);

impl CoreMl {
    /// Loads a model, on a thread of its own.
    pub async fn load(settings: Settings) -> Result<Self, Failure> {
        let slots = settings.slots;
        let loading = tokio::task::spawn_blocking(move || load(settings));
        let broke = |_| Failure::of_host(FailureCode::RuntimeCrashed, "the engine broke down while loading");
        let jobs = Jobs::new(loading.await.map_err(broke)??, slots);
        tracing::info!(models = ?jobs.graphs(), "model loaded");
        Ok(Self(jobs))
    }

    /// Jobs at once.
    pub fn slots(&self) -> u32 {
        self.0.slots()
    }

    /// What runs it, and which model it is.
    pub fn version(&self) -> String {
        format!("{}, {}", version(), self.0.graphs().join(", "))
    }
}

fn load(settings: Settings) -> Result<Arc<dyn Pipeline>, Failure> {
    let environment =
        library::open().map_err(|error| Failure::of_host(FailureCode::InternalError, error.reason))?;
    let engine = settings.cargo.engine;
    let text = |name: &str| engine.get(name).and_then(Value::as_str).map(str::to_owned);
    let package = Package::open(&settings.files, text("model").as_deref())?;
    let function = text("function").unwrap_or_else(|| package.default_function.clone());
    let threads = Threads { threads: settings.threads as usize, vram_limit_mb: settings.vram_limit_mb };
    let model = Portable::load(&package, &function, environment, threads)?;
    let repository = Repository::open(settings.files, settings.vram_limit_mb > 0)?;
    drivers::load(Parts { model: Arc::new(model), repository, settings: engine }).map(Arc::from)
}

fn version() -> String {
    format!("portable, ONNX Runtime {}", library::version())
}

/// What runs Core ML models here.
pub fn probe() -> Result<Probe, Unavailable> {
    library::open()?;
    Ok(Probe { version: version(), devices: vec!["CPU".to_owned()], ..Probe::default() })
}

impl Runtime for CoreMl {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Coreml
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        probe().map(|probe| Probe { slots: self.slots(), ..probe })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        self.0.run(request, context).await
    }

    async fn shutdown(&self) {
        self.0.shutdown().await;
    }
}
