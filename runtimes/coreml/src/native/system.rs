//! Features of this system, and texts of its errors.
#![expect(unsafe_code, reason = "calls of Objective-C")]

use island_protocol::host::Device;
use island_runtimes_api::Unavailable;
use objc2::{available, rc::autoreleasepool};
use objc2_core_ml::{MLCPUComputeDevice, MLGPUComputeDevice, MLModel, MLNeuralEngineComputeDevice};
use objc2_foundation::{NSError, NSProcessInfo};

/// Whether this system's library is new enough.
pub fn check() -> Result<(), Unavailable> {
    if available!(macos = 13.0) {
        return Ok(());
    }
    Err(Unavailable { reason: format!("Core ML of macOS {} is too old: macOS 13 is required", release()) })
}

/// Whether states and packages with several functions are supported.
pub fn knows_states_and_functions() -> bool {
    available!(macos = 15.0)
}

/// The library by the version of the system.
pub fn version() -> String {
    format!("Core ML of macOS {}", release())
}

fn release() -> String {
    let version = NSProcessInfo::processInfo().operatingSystemVersion();
    format!("{}.{}.{}", version.majorVersion, version.minorVersion, version.patchVersion)
}

/// Devices of the library on this machine.
pub fn devices() -> Vec<Device> {
    if !available!(macos = 14.0) {
        return vec![Device::cpu()];
    }
    autoreleasepool(|_| {
        // SAFETY: the method takes no arguments, and this system has it.
        let devices = unsafe { MLModel::availableComputeDevices() };
        let name = |device: &objc2::runtime::AnyObject| {
            if let Some(engine) = device.downcast_ref::<MLNeuralEngineComputeDevice>() {
                // SAFETY: the method takes no arguments and only reads.
                let name = format!("Neural Engine ({} cores)", unsafe { engine.totalCoreCount() });
                return Device { api: "neural_engine".to_owned(), name, ..Device::default() };
            }
            if device.downcast_ref::<MLCPUComputeDevice>().is_some() {
                return Device::cpu();
            }
            let is_gpu = device.downcast_ref::<MLGPUComputeDevice>().is_some();
            let (api, name) = if is_gpu { ("metal", "GPU") } else { ("other", "another device") };
            Device { api: api.to_owned(), name: name.to_owned(), ..Device::default() }
        };
        devices.iter().map(|device| name(device.as_ref())).collect()
    })
}

/// The text of an error with its number: texts alone are often equal.
pub(super) fn words(error: &NSError) -> String {
    format!("{} ({} {})", error.localizedDescription(), error.domain(), error.code())
}
