//! The engine: one model, and concurrent jobs up to its number of slots.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    job::Outcome,
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_graph::{Threads, devices, library, tensor_trace::TensorTrace};
use island_runtimes_kit::{
    error::EngineError,
    jobs::{self, Jobs},
    pipeline::Pipeline,
    repository::Repository,
};

use crate::task::{self, Loader};

/// How to run a model.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The model's files by their path in the repository.
    pub files: BTreeMap<String, PathBuf>,
    /// The model's Cargo.
    pub cargo: CargoSpec,
    /// Concurrent jobs.
    pub slots: u32,
    /// CPU threads of one run.
    pub threads: u32,
    /// GPU memory it may use in megabytes.
    pub vram_limit_mb: u64,
    /// Records the tensors of graphs, for tests.
    pub watch: TensorTrace,
}

/// A loaded model.
#[derive(Debug)]
pub struct Onnx(Jobs<dyn Pipeline>);

impl Onnx {
    /// Loads a model on a blocking thread.
    pub async fn load(settings: Settings) -> Result<Self, EngineError> {
        let slots = settings.slots;
        let jobs = Jobs::new(jobs::load("ONNX Runtime", move || load(settings)).await?, slots);
        tracing::info!(graphs = ?jobs.graphs(), "model loaded");
        Ok(Self(jobs))
    }

    /// Concurrent jobs.
    pub fn slots(&self) -> u32 {
        self.0.limit()
    }

    /// Version of ONNX Runtime, and the graphs that it runs.
    pub fn version(&self) -> String {
        format!("ONNX Runtime {}, {}", library::version(), self.0.graphs().join(", "))
    }
}

fn load(settings: Settings) -> Result<Arc<dyn Pipeline>, EngineError> {
    let environment = library::open().map_err(|error| EngineError::host(error.reason))?;
    let loader = Loader {
        environment,
        repository: Repository::open(settings.files)?,
        threads: Threads { threads: settings.threads as usize, vram_limit_mb: settings.vram_limit_mb },
        settings: settings.cargo.engine.clone(),
        watch: settings.watch,
    };
    task::load(&settings.cargo, &loader).map(Arc::from)
}

/// Version and devices of ONNX Runtime on this machine.
pub fn probe() -> Result<Probe, Unavailable> {
    library::open()?;
    Ok(Probe {
        version: format!("ONNX Runtime {}", library::version()),
        devices: devices::devices(),
        ..Probe::default()
    })
}

impl Runtime for Onnx {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Onnx
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        probe().map(|probe| Probe { slots: self.slots(), ..probe })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        self.0.answer(request, context).await
    }

    async fn shutdown(&self) {
        self.0.shutdown().await;
    }
}
