//! The engine in a worker process: the library is opened before the sandbox is applied, the model is loaded after.

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
    backend,
    runtime::{CoreMl, Settings},
};

/// Core ML models in a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct CoreMlEngine;

impl EngineLoader for CoreMlEngine {
    type Runtime = CoreMl;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Coreml
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        backend::probe()
    }

    fn prepare(&mut self, _launch: &Launch) -> Result<(), Failure> {
        backend::probe().map(drop).map_err(|error| Failure::of_host(FailureCode::InternalError, error.reason))
    }

    fn profile(&self, launch: &Launch) -> Profile {
        // ONNX Runtime runs lowered models on the processor.
        if cfg!(target_os = "macos") { Profile::gpu(&launch.gpus) } else { Profile::default() }
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<CoreMl>, Failure> {
        let runtime = CoreMl::load(Settings {
            files: launch.artifacts,
            cargo: launch.cargo,
            slots: launch.slots,
            threads: launch.threads,
            uses_gpu: !launch.gpus.is_empty(),
        })
        .await?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: 0, version: runtime.version(), runtime })
    }
}
