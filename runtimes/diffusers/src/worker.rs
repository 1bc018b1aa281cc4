//! The engine in a worker process.

use island_protocol::{cargo::RuntimeType, job::Failure};
use island_runtimes_api::{Probe, Unavailable};
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

    fn prepare(&mut self, _launch: &Launch) -> Result<(), Failure> {
        Ok(())
    }

    fn profile(&self, launch: &Launch) -> Profile {
        crate::runtime::profile(&launch.gpus)
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Diffusers>, Failure> {
        let vram_limit_mb = launch.vram_limit_mb();
        let runtime = Diffusers::load(Settings {
            files: launch.artifacts,
            cargo: launch.cargo,
            slots: launch.slots,
            threads: launch.threads,
            memory_limit_mb: launch.memory_limit_mb,
            vram_limit_mb,
        })
        .await?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: runtime.vram_mb(), version: runtime.version(), runtime })
    }
}
