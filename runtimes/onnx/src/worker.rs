//! The engine in a worker process: the library is opened before the sandbox is applied, graphs are loaded after.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_graph::{gpu, library, tensor_trace::TensorTrace};
use island_runtimes_worker::{
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::runtime::{GpuLimits, Onnx, Settings, probe};

/// ONNX Runtime in a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnnxEngine;

impl EngineLoader for OnnxEngine {
    type Runtime = Onnx;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Onnx
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        probe()
    }

    fn prepare(&mut self, _launch: &Launch) -> Result<(), Failure> {
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

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Onnx>, Failure> {
        let gpu = (!launch.gpus.is_empty()).then(|| GpuLimits {
            addresses: launch.gpus.iter().map(|gpu| gpu.address.clone()).collect(),
            memory_mb: launch.vram_limit_mb(),
        });
        let runtime = Onnx::load(Settings {
            files: launch.artifacts,
            cargo: launch.cargo,
            slots: launch.slots,
            threads: launch.threads,
            gpu,
            watch: TensorTrace::default(),
        })
        .await?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: runtime.vram_mb(), version: runtime.version(), runtime })
    }
}
