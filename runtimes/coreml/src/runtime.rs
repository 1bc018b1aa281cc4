//! The engine: one model, and concurrent jobs up to its number of slots.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    job::Outcome,
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_kit::{
    error::EngineError,
    jobs::{self, Jobs},
    pipeline::{self, Pipeline},
};

use crate::{
    backend,
    drivers::{self, Models},
};

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
    /// Whether the native back end may use the GPU. The portable one runs on the processor.
    pub uses_gpu: bool,
}

/// A loaded model.
#[derive(Debug)]
pub struct CoreMl {
    jobs: Jobs<dyn Pipeline>,
    /// Its back end.
    engine: String,
}

impl CoreMl {
    /// Loads a model on a blocking thread.
    pub async fn load(settings: Settings) -> Result<Self, EngineError> {
        let slots = settings.slots;
        let (pipeline, engine) = jobs::load("the engine", move || load(settings)).await?;
        let jobs = Jobs::new(pipeline, slots);
        tracing::info!(models = ?jobs.graphs(), engine, "model loaded");
        Ok(Self { jobs, engine })
    }

    /// Concurrent jobs.
    pub fn slots(&self) -> u32 {
        self.jobs.limit()
    }

    /// The back end, and the model.
    pub fn version(&self) -> String {
        format!("{}, {}", self.engine, self.jobs.graphs().join(", "))
    }
}

fn load(settings: Settings) -> Result<(Arc<dyn Pipeline>, String), EngineError> {
    let threads = settings.threads as usize;
    let models = Models::new(settings.files, settings.cargo.engine, threads, settings.uses_gpu);
    let pipeline = drivers::load(&models)?;
    if let Some(reason) = pipeline::try_out(&*pipeline)? {
        tracing::warn!(reason = reason.message(), "the model was not tried");
    }
    Ok((Arc::from(pipeline), models.engine()))
}

impl Runtime for CoreMl {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Coreml
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        backend::probe().map(|probe| Probe { slots: self.slots(), ..probe })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        self.jobs.answer(request, context).await
    }

    async fn shutdown(&self) {
        self.jobs.shutdown().await;
    }
}
