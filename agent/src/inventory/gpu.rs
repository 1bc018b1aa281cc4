//! NVIDIA GPUs through NVML, loaded when first needed. Machines without have a reason why.

use island_protocol::host::{Gpu, GpuLoad};
use nvml_wrapper::{Device, Nvml, enum_wrappers::device::TemperatureSensor, error::NvmlError};

const MB: u64 = 1 << 20;

/// The driver's library, loaded.
#[derive(Debug)]
pub struct Gpus {
    nvml: Nvml,
    count: u32,
}

impl Gpus {
    /// Loads the library; the reason why not is for the owner.
    pub fn open() -> Result<Self, String> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
                "no NVIDIA driver is installed".to_owned()
            }
            other => format!("the NVIDIA driver does not answer: {other}"),
        })?;
        let count =
            nvml.device_count().map_err(|error| format!("the NVIDIA driver counts no GPUs: {error}"))?;
        if count == 0 {
            return Err("the NVIDIA driver finds no GPU".to_owned());
        }
        Ok(Self { nvml, count })
    }

    /// The GPUs.
    pub fn list(&self) -> Vec<Gpu> {
        self.each(|index, device| {
            let vram_mb = device.memory_info().ok()?.total / MB;
            Some(Gpu { index, name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()), vram_mb })
        })
    }

    /// Their load; what a GPU does not report is absent.
    pub fn load(&self) -> Vec<GpuLoad> {
        self.each(|index, device| {
            let memory = device.memory_info().ok()?;
            Some(GpuLoad {
                index,
                utilization_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
                memory_used_mb: memory.used / MB,
                memory_total_mb: memory.total / MB,
                temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
                power_draw_w: device.power_usage().ok().map(|milliwatts| milliwatts as f32 / 1000.0),
            })
        })
    }

    /// Programs that compute on them and are no workers of ours.
    pub fn foreign_processes(&self) -> u32 {
        let pids = self.each(|_, device| device.running_compute_processes().ok());
        let pids: std::collections::BTreeSet<u32> =
            pids.into_iter().flatten().map(|process| process.pid).collect();
        pids.into_iter().filter(|pid| !is_worker(*pid)).count() as u32
    }

    fn each<T>(&self, look: impl Fn(u32, &Device<'_>) -> Option<T>) -> Vec<T> {
        let devices =
            (0..self.count).filter_map(|index| Some((index, self.nvml.device_by_index(index).ok()?)));
        devices.filter_map(|(index, device)| look(index, &device)).collect()
    }
}

/// Whether a process is a worker, by its name: an agent that was restarted is not its parent. One that is gone is nobody's.
fn is_worker(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or(true, |name| name.starts_with("island-worker"))
}
