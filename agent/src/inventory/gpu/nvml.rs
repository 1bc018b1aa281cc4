//! NVIDIA's driver through its library NVML, in the process that [`super::nvml_process`] starts.

use std::{collections::BTreeMap, fmt::Display, path::Path};

use nvml_wrapper::{
    Device, Nvml, enum_wrappers::device::TemperatureSensor, enums::device::UsedGpuMemory, error::NvmlError,
    struct_wrappers::device::ProcessInfo,
};

use super::{
    GpuReadings, MB, Reading, Vendor,
    nvidia::{Closed, Driver, Report},
};
use crate::inventory::pci::pci_address;

/// NVML's answer for a GPU that is split.
const MIG_ENABLED: u32 = 1;
const NOT_OF_INSTANCES: &str = "the driver does not report it for MIG instances";

/// Exists while the kernel's part of the driver is loaded.
const LOADED: &str = "/proc/driver/nvidia/version";

/// Loads the library and opens the driver.
pub(super) fn open() -> Result<Box<dyn Driver>, Closed> {
    let nvml = Nvml::init().map_err(|error| closed(&error, Path::new(LOADED).exists()))?;
    Ok(Box::new(Library(nvml)))
}

/// Why the driver is not open, and what to do. `is_loaded` is whether the kernel's part of it is.
fn closed(error: &NvmlError, is_loaded: bool) -> Closed {
    let (reason, installed) = match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound if is_loaded => (
            "the NVIDIA driver is loaded, but its library libnvidia-ml.so.1 is missing: install libnvidia-ml1, \
             on Ubuntu libnvidia-compute of the driver's version",
            true,
        ),
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => {
            ("no NVIDIA driver is installed", false)
        }
        NvmlError::LibRmVersionMismatch => {
            ("the NVIDIA driver was updated, and the former one still runs: restart the machine", true)
        }
        other => {
            let reason = format!("the NVIDIA driver does not answer: {other}");
            return Closed { reason, installed: true, is_silent: false };
        }
    };
    Closed { reason: reason.to_owned(), installed, is_silent: false }
}

#[derive(Debug)]
struct Library(Nvml);

impl Driver for Library {
    fn gpus(&self) -> Result<Report, Closed> {
        let closed = |reason| Closed { reason, installed: true, is_silent: false };
        let count = self
            .0
            .device_count()
            .map_err(|error| closed(format!("the NVIDIA driver cannot count its GPUs: {error}")))?;
        let mut report = Report::default();
        for number in 0..count {
            match self.0.device_by_index(number).and_then(|gpu| poll(&gpu, &mut report)) {
                Ok(()) => {}
                Err(error) if is_fatal(&error) => {
                    return Err(closed(format!("the NVIDIA driver no longer answers: {error}")));
                }
                Err(error) => report.lost.push(format!("NVIDIA GPU {number} does not answer: {error}")),
            }
        }
        Ok(report)
    }
}

/// Whether every GPU of this driver is lost until it is opened again.
fn is_fatal(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// Adds a GPU to the report, or the instances into which it is split.
fn poll(gpu: &Device<'_>, report: &mut Report) -> Result<(), NvmlError> {
    let is_split = gpu.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED);
    let whole = whole(gpu, is_split)?;
    if !is_split {
        report.seen.push(whole);
        return Ok(());
    }
    let before = report.seen.len();
    // The count is of possible instances; most of them need not exist.
    for number in 0..gpu.mig_device_count()? {
        let Ok(instance) = gpu.mig_device_by_index(number) else { continue };
        report.seen.push(part(&instance, &whole, number)?);
    }
    if report.seen.len() == before {
        let (name, id) = (&whole.name, &whole.id);
        report
            .left_out
            .push(format!("{name} ({id}) is not used: it is split by MIG, and there is no instance"));
    }
    Ok(())
}

fn whole(gpu: &Device<'_>, is_split: bool) -> Result<GpuReadings, NvmlError> {
    let memory = gpu.memory_info()?;
    let address = gpu.pci_info().map(|pci| as_in_sysfs(&pci.bus_id));
    let id = gpu.uuid().or_else(|_| address.as_ref().map(Clone::clone).map_err(|_| NvmlError::Unknown))?;
    let unknown = |reading: Result<u32, NvmlError>| reading.map_err(message);
    Ok(GpuReadings {
        address: address.unwrap_or_else(|_| id.clone()),
        part_of: None,
        vendor: Vendor::Nvidia,
        name: gpu.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        vram_mb: memory.total / MB,
        used_mb: Ok(memory.used / MB),
        busy_percent: unknown(gpu.utilization_rates().map(|rates| rates.gpu)),
        temperature_c: unknown(gpu.temperature(TemperatureSensor::Gpu)),
        power_w: gpu.power_usage().map(|milliwatts| milliwatts as f32 / 1000.0).map_err(message),
        computing: if is_split { Ok([].into()) } else { computing(gpu) },
        drawing: if is_split { [].into() } else { drawing(gpu) },
        handle: Some(id.clone()),
        id,
    })
}

/// An instance: memory and programs are its own, temperature and power those of the whole GPU.
fn part(instance: &Device<'_>, whole: &GpuReadings, number: u32) -> Result<GpuReadings, NvmlError> {
    let memory = instance.memory_info()?;
    let id = instance.uuid()?;
    Ok(GpuReadings {
        // After the whole GPU's address, so that instances are sorted.
        address: format!("{}#{number:02}", whole.address),
        part_of: Some(whole.id.clone()),
        name: instance.name().unwrap_or_else(|_| format!("{} (MIG)", whole.name)),
        vram_mb: memory.total / MB,
        used_mb: Ok(memory.used / MB),
        busy_percent: Err(NOT_OF_INSTANCES.to_owned()),
        computing: computing(instance),
        drawing: drawing(instance),
        handle: Some(id.clone()),
        id,
        ..whole.clone()
    })
}

fn computing(gpu: &Device<'_>) -> Reading<BTreeMap<u32, Option<u64>>> {
    gpu.running_compute_processes().map(listed).map_err(message)
}

/// Programs on Vulkan are among those that draw, also those that only compute. Instances may have no such list, and nothing draws on them.
fn drawing(gpu: &Device<'_>) -> BTreeMap<u32, Option<u64>> {
    gpu.running_graphics_processes().map(listed).unwrap_or_default()
}

/// Processes, each with its memory, megabytes.
fn listed(processes: Vec<ProcessInfo>) -> BTreeMap<u32, Option<u64>> {
    let memory = |used: UsedGpuMemory| match used {
        UsedGpuMemory::Used(bytes) => Some(bytes / MB),
        UsedGpuMemory::Unavailable => None,
    };
    processes.into_iter().map(|process| (process.pid, memory(process.used_gpu_memory))).collect()
}

/// A PCI address in the kernel's form: NVML writes the domain with eight digits.
fn as_in_sysfs(bus_id: &str) -> String {
    pci_address(bus_id).unwrap_or_else(|| bus_id.to_lowercase())
}

fn message(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_driver_has_a_cure() {
        let missing = closed(&NvmlError::LibraryNotFound, false);
        assert_eq!((missing.reason.as_str(), missing.installed), ("no NVIDIA driver is installed", false));
        let half = closed(&NvmlError::LibraryNotFound, true);
        assert!(half.installed && half.reason.contains("libnvidia-ml1"), "{half:?}");
        let updated = closed(&NvmlError::LibRmVersionMismatch, true);
        assert!(updated.installed && updated.reason.ends_with("restart the machine"), "{updated:?}");
        let asleep = closed(&NvmlError::DriverNotLoaded, false);
        assert!(asleep.installed && asleep.reason.contains("does not answer"), "{asleep:?}");
    }

    #[test]
    fn addresses_have_the_kernels_form() {
        assert_eq!(as_in_sysfs("00000000:0A:00.0"), "0000:0a:00.0");
        assert_eq!(as_in_sysfs("0000:0a:00.0"), "0000:0a:00.0");
        assert_eq!(as_in_sysfs("00010000:0A:00.0"), "10000:0a:00.0", "a domain above ffff has five digits");
    }
}
