//! The loader for the worker binary: llama.cpp is loaded before the sandbox is applied, modules for GPUs and the model after it.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_worker::{
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::{
    backend, gpu,
    runtime::{Llmcpp, Settings, probe, version},
    split::Linked,
};

/// Name of the artifact that is its projector for pictures and sounds.
const PROJECTOR: &str = "mmproj";
/// Name of the artifact that is an adapter of its weights.
const ADAPTER: &str = "lora";

/// llama.cpp in a worker.
#[derive(Debug, Default)]
pub struct LlmcppEngine {
    /// The model, once the worker is prepared.
    model: Option<Linked>,
}

impl EngineLoader for LlmcppEngine {
    type Runtime = Llmcpp;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Llmcpp
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        probe()
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), Failure> {
        // The sandbox allows no links.
        self.model = Some(Linked::of(&launch.artifacts)?);
        backend::start().map_err(|error| Failure::of_host(FailureCode::InternalError, error.to_string()))?;
        tracing::info!(variant = backend::cpu_variant(), "processor variant");
        Ok(())
    }

    fn profile(&self, launch: &Launch) -> Profile {
        let mut profile = Profile::gpu(&launch.gpus);
        if let (false, Ok(backend)) = (launch.gpus.is_empty(), backend::start()) {
            profile.libraries.extend(gpu::folders(&backend.folder));
        }
        profile
    }

    async fn load(self, launch: Launch, progress: LoadProgress) -> Result<Loaded<Llmcpp>, Failure> {
        let model = self.model.map_or_else(|| Linked::of(&launch.artifacts), Ok)?;
        let settings = Settings {
            path: model.path().to_owned(),
            projector: launch.artifacts.get(PROJECTOR).cloned(),
            adapter: launch.artifacts.get(ADAPTER).cloned(),
            cargo: launch.cargo,
            slots: launch.slots,
            threads: launch.threads,
            memory_limit_mb: launch.memory_limit_mb,
            gpus: launch.gpus,
        };
        let runtime = Llmcpp::load(settings, move |done, total| progress.report(done, total)).await?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: runtime.vram_mb(), version: version(), runtime })
    }
}
