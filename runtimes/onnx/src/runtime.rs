//! The engine: one model, and concurrent jobs up to its number of slots.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::Device,
    job::Outcome,
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_graph::{
    Resources,
    gpu::{self, Gpu},
    library,
    tensor_trace::TensorTrace,
};
use island_runtimes_kit::{
    error::EngineError,
    jobs::{self, Jobs},
    keys::CONFIG,
    pipeline::{self, Pipeline},
    repository::Repository,
};

use parking_lot::Mutex;

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
    /// The GPU that it may use.
    pub gpu: Option<GpuLimits>,
    /// Records the tensors of graphs, for tests.
    pub watch: TensorTrace,
}

/// What a model may use of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuLimits {
    /// PCI addresses of the granted GPUs, where known. The model runs on one of them.
    pub addresses: Vec<Option<String>>,
    /// Memory for weights, megabytes.
    pub memory_mb: u64,
}

/// A loaded model.
#[derive(Debug)]
pub struct Onnx {
    jobs: Jobs<dyn Pipeline>,
    device: String,
    gpu: Option<&'static Gpu>,
}

impl Onnx {
    /// Loads a model on a blocking thread.
    pub async fn load(settings: Settings) -> Result<Self, EngineError> {
        let slots = settings.slots;
        let LoadedModel { pipeline, device, gpu } =
            jobs::load("ONNX Runtime", move || load(settings)).await?;
        let jobs = Jobs::new(pipeline, slots);
        tracing::info!(graphs = ?jobs.graphs(), device, "model loaded");
        Ok(Self { jobs, device, gpu })
    }

    /// GPU memory that its weights occupy, megabytes.
    pub fn vram_mb(&self) -> u64 {
        self.gpu.map_or(0, Gpu::used_mb)
    }

    /// Concurrent jobs.
    pub fn slots(&self) -> u32 {
        self.jobs.limit()
    }

    /// Version of ONNX Runtime, and the graphs that it runs.
    pub fn version(&self) -> String {
        format!("ONNX Runtime {}, {}", library::version(), self.jobs.graphs().join(", "))
    }
}

/// A model and where it runs.
struct LoadedModel {
    pipeline: Arc<dyn Pipeline>,
    device: String,
    gpu: Option<&'static Gpu>,
}

fn load(settings: Settings) -> Result<LoadedModel, EngineError> {
    let environment = library::open().map_err(|error| EngineError::host(error.reason))?;
    let gpu = settings.gpu.map(|limits| Gpu::open(environment, &limits.addresses, limits.memory_mb));
    let gpu = gpu.transpose()?;
    let repository = Repository::open(settings.files)?;
    CONFIG.check(&repository.config)?;
    let loader = Loader {
        environment,
        repository,
        resources: Resources { threads: settings.threads as usize, gpu },
        settings: settings.cargo.engine.clone(),
        watch: settings.watch,
        devices: Mutex::default(),
    };
    let pipeline: Arc<dyn Pipeline> = Arc::from(task::load(&settings.cargo, &loader)?);
    if let Some(reason) = pipeline::try_out(&*pipeline)? {
        tracing::warn!(reason = reason.message(), "the model was not tried");
    }
    // Tensors of jobs are compared, not those of the trial.
    loader.watch.take();
    Ok(LoadedModel { pipeline, device: loader.device(), gpu })
}

/// Version and devices of ONNX Runtime on this machine, and why GPUs cannot be used. Opens drivers.
pub fn probe() -> Result<Probe, Unavailable> {
    let found = gpu::probe(library::open()?);
    Ok(Probe {
        version: format!("ONNX Runtime {}", library::version()),
        devices: found.devices,
        details: found.problems,
        ..Probe::default()
    })
}

impl Runtime for Onnx {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Onnx
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        library::open()?;
        Ok(Probe {
            version: self.version(),
            devices: self.gpu.map(|gpu| gpu.device().clone()).into_iter().chain([Device::cpu()]).collect(),
            slots: self.slots(),
            ..Probe::default()
        })
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        self.jobs.answer(request, context).await.on(&self.device)
    }

    async fn shutdown(&self) {
        self.jobs.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use serde_json::{Value, json};

    use super::*;

    fn files(folder: &Path, root: &Path, into: &mut BTreeMap<String, PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                files(&path, root, into);
            } else {
                into.insert(path.strip_prefix(root).expect("inside").to_string_lossy().into_owned(), path);
            }
        }
    }

    #[test]
    fn the_example_of_every_task_suits_its_models() {
        let folder = island_testing::workspace().join("runtimes/onnx/tests/fixtures");
        let mut tasks = BTreeSet::new();
        for entry in fs::read_dir(folder).expect("the fixtures") {
            let path = entry.expect("an entry").path();
            let Ok(cases) = fs::read(path.join("cases.json")) else { continue };
            let cases: Value = serde_json::from_slice(&cases).expect("JSON");
            let (root, mut all) = (path.join("model"), BTreeMap::new());
            // The sounds have no model.
            if !root.is_dir() {
                continue;
            }
            files(&root, &root, &mut all);
            let of_cases = cases["cases"].as_array().expect("cases").iter().map(|case| &case["task"]);
            let named = of_cases.chain([&cases["task"]]).filter_map(Value::as_str);
            for task in named.filter(|task| task::names().contains(task)).collect::<BTreeSet<_>>() {
                let cargo = json!({
                    "slug": "trial", "runtime_type": "onnx", "onnx_task_type": task, "engine": cases["engine"],
                });
                let settings = Settings {
                    files: all.clone(),
                    cargo: serde_json::from_value(cargo).expect("a Cargo"),
                    slots: 1,
                    threads: 1,
                    gpu: None,
                    watch: TensorTrace::default(),
                };
                let loaded = load(settings).unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
                let tried = pipeline::try_out(&*loaded.pipeline).expect("a sound model");
                assert!(tried.is_none(), "{task} of {}: {tried:?}", path.display());
                tasks.insert(task.to_owned());
            }
        }
        assert_eq!(tasks.len(), task::names().len(), "{tasks:?}");
    }
}
