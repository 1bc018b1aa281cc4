//! Devices: the CPU, or a GPU if this build has kernels for it.

use candle_core::DType;
use island_protocol::host::Device;
use island_runtimes_api::Probe;
use island_runtimes_kit::error::EngineError;
use island_runtimes_worker::{launch::GpuGrant, lockdown::Profile};

use crate::weights::Placement;

/// Devices of this build.
pub fn probe() -> Probe {
    let of = |api: &str| Device { api: api.to_owned(), name: api.to_owned(), ..Device::default() };
    let mut devices = vec![Device::cpu()];
    if cfg!(feature = "cuda") {
        devices.insert(0, of("cuda"));
    }
    if cfg!(feature = "metal") {
        devices.insert(0, of("metal"));
    }
    Probe { version: "candle 0.11".to_owned(), devices, ..Probe::default() }
}

/// A GPU with f16 if the owner lends memory of one and this build supports it, otherwise the CPU.
pub(super) fn place(vram_limit_mb: u64) -> Result<Placement, EngineError> {
    if vram_limit_mb == 0 {
        return Ok(Placement::cpu());
    }
    let failed = |error: candle_core::Error| EngineError::host("open the GPU").because(error);
    if cfg!(feature = "cuda") {
        return Ok(Placement {
            device: candle_core::Device::new_cuda(0).map_err(failed)?,
            dtype: DType::F16,
        });
    }
    if cfg!(feature = "metal") {
        return Ok(Placement {
            device: candle_core::Device::new_metal(0).map_err(failed)?,
            dtype: DType::F16,
        });
    }
    Ok(Placement::cpu())
}

/// The name of a device.
pub(super) fn name(device: &candle_core::Device) -> &'static str {
    match device {
        candle_core::Device::Cpu => "CPU in f32",
        candle_core::Device::Cuda(_) => "CUDA in f16",
        candle_core::Device::Metal(_) => "Metal in f16",
    }
}

/// The sandbox profile of a worker with these GPUs.
pub fn profile(gpus: &[GpuGrant]) -> Profile {
    if cfg!(feature = "cuda") { Profile::gpu(gpus) } else { Profile::default() }
}
