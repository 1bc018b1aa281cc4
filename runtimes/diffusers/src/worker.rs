//! The engine in a worker process. With GPUs, ONNX Runtime is opened before the sandbox is applied; without, never.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_graph::{gpu, library};
use island_runtimes_worker::{
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::runtime::{Diffusers, Settings, probe};

/// Stable Diffusion in a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffusersEngine;

impl EngineLoader for DiffusersEngine {
    type Runtime = Diffusers;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Diffusers
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        Ok(probe())
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), Failure> {
        if launch.gpus.is_empty() {
            return Ok(());
        }
        library::open().map(drop).map_err(|error| Failure::of_host(FailureCode::InternalError, error.reason))
    }

    fn profile(&self, launch: &Launch) -> Profile {
        // The WebGPU plugin uses the first GPU that it can open; the profile has only granted ones.
        let mut profile = Profile::gpu(&launch.gpus);
        if !launch.gpus.is_empty() {
            profile.libraries.extend(gpu::folders());
        }
        profile
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Diffusers>, Failure> {
        let runtime = Diffusers::load(Settings {
            files: launch.artifacts,
            cargo: launch.cargo,
            slots: launch.slots,
            threads: launch.threads,
            memory_limit_mb: launch.memory_limit_mb,
            gpus: launch.gpus,
        })
        .await?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: runtime.vram_mb(), version: runtime.version(), runtime })
    }
}
