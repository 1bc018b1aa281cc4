//! The engine: one model, whose jobs run one after the other.

mod device;
mod generator;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::{CPU, Device},
    job::Outcome,
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_kit::{
    error::EngineError,
    job::{Answer, Job},
    jobs::{self, Jobs},
};
use island_runtimes_worker::launch::GpuGrant;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    model::{Model, On},
    repository::Repository,
    request::Request,
};

pub use device::probe;
use generator::Generator;

/// How to run a model.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The model's files by their path in the repository.
    pub files: BTreeMap<String, PathBuf>,
    /// The model's Cargo.
    pub cargo: CargoSpec,
    /// Concurrent jobs; they run one after the other, since one uses every thread.
    pub slots: u32,
    /// CPU threads.
    pub threads: u32,
    /// Memory it may use in megabytes; 0 is unlimited.
    pub memory_limit_mb: u64,
    /// The GPUs that it may use; none restricts it to the processor.
    pub gpus: Vec<GpuGrant>,
}

/// A loaded model. Its jobs run one after the other, since one uses every thread.
#[derive(Debug)]
pub struct Diffusers {
    jobs: Jobs<Generator>,
    slots: u32,
    vram_mb: u64,
    version: String,
    /// What computes, as in a job's usage.
    label: String,
    device: Device,
}

impl Diffusers {
    /// Loads a model on a blocking thread.
    pub async fn load(settings: Settings) -> Result<Self, EngineError> {
        let slots = settings.slots.max(1);
        let generator = jobs::load("the engine", move || load(settings)).await?;
        let model = &generator.model;
        let version = format!("{}, {}", model.class_name(), model.networks.describe());
        tracing::info!(bytes = model.weights_bytes(), version, "model loaded");
        Ok(Self {
            vram_mb: model.networks.gpu_bytes() >> 20,
            label: model.networks.device().unwrap_or_else(|| CPU.to_owned()),
            device: generator.device.clone(),
            jobs: Jobs::new(Arc::new(generator), 1),
            slots,
            version,
        })
    }

    /// Concurrent jobs.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// GPU memory of the weights in megabytes.
    pub fn vram_mb(&self) -> u64 {
        self.vram_mb
    }

    /// Name and device of the model.
    pub fn version(&self) -> String {
        self.version.clone()
    }
}

fn load(settings: Settings) -> Result<Generator, EngineError> {
    let threads = settings.threads.max(1) as usize;
    let pool: ThreadPool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("sd-{index}"))
        .build()
        .map_err(|error| EngineError::host("start the engine's threads").because(error))?;
    let on = device::open(&settings.gpus, threads)?;
    let limit = match &on {
        On::Processor => settings.memory_limit_mb,
        On::Graphs(_) => settings.gpus.iter().map(|gpu| gpu.memory_mb).max().unwrap_or(0),
    };
    let limit = (limit > 0).then_some(limit << 20);
    let repository = Repository::new(settings.files);
    let model = pool.install(|| Model::load(repository, &settings.cargo.engine, &on, limit))?;
    let CargoSpec { slug, limits, .. } = settings.cargo;
    let device = device::used(&on);
    Ok(Generator {
        model,
        device,
        pool,
        limit,
        slug: slug.to_string(),
        max_output_bytes: limits.max_output_bytes,
    })
}

impl Runtime for Diffusers {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Diffusers
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        let devices = vec![self.device.clone()];
        Ok(Probe { slots: self.slots, devices, ..device::without_gpus() })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        // Invalid input is rejected at once, not when its turn has come.
        let read =
            self.jobs.model().and_then(|generator| Request::read(&request.input, &generator.defaults()));
        let wanted = match read {
            Ok(wanted) => wanted,
            Err(error) => return Outcome::failed(error.into()),
        };
        let answer =
            move |generator: &Generator, job: &Job| Ok(Answer::of(generator.answer(wanted, job)?, 0));
        self.jobs.run(context, answer).await.on(&self.label)
    }

    async fn shutdown(&self) {
        self.jobs.shutdown().await;
    }
}
