//! Devices: the processor, and the GPUs on which ONNX Runtime runs graphs.

use island_protocol::host::Device;
use island_runtimes_api::Probe;
use island_runtimes_graph::{
    Resources,
    gpu::{self, Gpu},
    library,
};
use island_runtimes_kit::error::EngineError;
use island_runtimes_worker::launch::GpuGrant;

use crate::{model::On, networks::graphs::Engine};

/// Name of the back end of the processor.
const CANDLE: &str = "candle 0.11";

/// The processor and the GPUs of this machine. Opens drivers.
pub fn probe() -> Probe {
    let mut probe = without_gpus();
    match library::open() {
        Ok(environment) => {
            let found = gpu::probe(environment);
            probe.version = format!("{CANDLE}, ONNX Runtime {}", library::version());
            (probe.devices, probe.details) = (found.devices, found.problems);
        }
        Err(missing) => {
            probe.details.insert("gpu".to_owned(), missing.reason);
        }
    }
    probe
}

/// The processor alone.
pub(super) fn without_gpus() -> Probe {
    Probe { version: CANDLE.to_owned(), devices: vec![Device::cpu()], ..Probe::default() }
}

/// The device that computes.
pub(super) fn used(on: &On) -> Device {
    let gpu = match on {
        On::Processor => None,
        On::Graphs(engine) => engine.resources.gpu,
    };
    gpu.map_or_else(Device::cpu, |gpu| gpu.device().clone())
}

/// What computes with these grants: a granted GPU, never the processor instead.
pub(super) fn open(gpus: &[GpuGrant], threads: usize) -> Result<On, EngineError> {
    if gpus.is_empty() {
        return Ok(On::Processor);
    }
    let environment = library::open().map_err(|error| EngineError::host(error.reason))?;
    let addresses: Vec<Option<String>> = gpus.iter().map(|gpu| gpu.address.clone()).collect();
    // A model is on one GPU.
    let limit_mb = gpus.iter().map(|gpu| gpu.memory_mb).max().unwrap_or(0);
    let gpu = Gpu::open(environment, &addresses, limit_mb)?;
    Ok(On::Graphs(Engine::new(environment, Resources { threads, gpu: Some(gpu) })))
}
