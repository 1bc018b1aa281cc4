//! What a model computes on: the processor, or the GPU that this build has kernels for.

use candle_core::{DType, Device};
use island_runtimes_api::Probe;
use island_runtimes_kit::error::EngineError;
use island_runtimes_worker::lockdown::Profile;

use crate::weights::Place;

/// What this build can compute on.
pub fn probe() -> Probe {
    let mut devices = vec!["CPU".to_owned()];
    if cfg!(feature = "cuda") {
        devices.insert(0, "CUDA".to_owned());
    }
    if cfg!(feature = "metal") {
        devices.insert(0, "Metal".to_owned());
    }
    Probe { version: "candle 0.11".to_owned(), devices, ..Probe::default() }
}

/// A GPU in halves where the owner lends memory of one and this build can use it, else the processor.
pub(super) fn place(vram_limit_mb: u64) -> Result<Place, EngineError> {
    if vram_limit_mb == 0 {
        return Ok(Place::cpu());
    }
    let failed = |error: candle_core::Error| EngineError::host("open the GPU").because(error);
    if cfg!(feature = "cuda") {
        return Ok(Place { device: Device::new_cuda(0).map_err(failed)?, dtype: DType::F16 });
    }
    if cfg!(feature = "metal") {
        return Ok(Place { device: Device::new_metal(0).map_err(failed)?, dtype: DType::F16 });
    }
    Ok(Place::cpu())
}

/// A device's name.
pub(super) fn name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "CPU in f32",
        Device::Cuda(_) => "CUDA in f16",
        Device::Metal(_) => "Metal in f16",
    }
}

/// The sandbox profile of a worker with this GPU memory.
pub fn profile(vram_limit_mb: u64) -> Profile {
    if cfg!(feature = "cuda") { Profile::gpu(vram_limit_mb) } else { Profile::default() }
}
