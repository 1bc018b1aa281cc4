//! The devices of Vulkan, in the order in which ONNX Runtime's WebGPU plugin prefers them.
//!
//! The plugin chooses a device itself and does not report which. It prefers high performance, and so takes the first device of the best
//! kind: that of a card before that of a processor, and both before one that the processor emulates.
#![expect(unsafe_code, reason = "calls of Vulkan")]

use std::ffi::CStr;

use ash::{Entry, Instance, ext, vk};
use island_protocol::host::Device;

/// [`Device::api`] of devices that run WebGPU.
pub(crate) const WEBGPU: &str = "webgpu";

/// A device of Vulkan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adapter {
    pub(crate) kind: Kind,
    pub(crate) device: Device,
}

/// Kinds of devices, preferred ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A card.
    Discrete,
    /// Part of a processor.
    Integrated,
    /// Emulated by the processor.
    Software,
    /// Virtual or unknown.
    Other,
}

/// Returns the devices, preferred ones first. Drivers are opened, and closed again.
///
/// # Errors
/// In words, if there is no Vulkan on this system.
pub(crate) fn adapters() -> Result<Vec<Adapter>, String> {
    // SAFETY: the loader is the system's; it runs code of the drivers, which this process is allowed to do.
    let entry = unsafe { Entry::load() }
        .map_err(|error| format!("Vulkan's loader cannot be opened; install libvulkan1: {error}"))?;
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
    let wanted = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: the structures live until the call returns.
    let instance = unsafe { entry.create_instance(&wanted, None) }
        .map_err(|error| format!("Vulkan finds no driver; install one for the GPU: {error}"))?;
    let found = list(&instance).map_err(|error| format!("Vulkan cannot list devices: {error}"));
    // SAFETY: nothing of the instance is used after this.
    unsafe { instance.destroy_instance(None) };
    found.map(preferred_first)
}

fn list(instance: &Instance) -> Result<Vec<Adapter>, vk::Result> {
    // SAFETY: the instance is alive.
    let found = unsafe { instance.enumerate_physical_devices() }?;
    found.into_iter().map(|device| adapter(instance, device)).collect()
}

fn adapter(instance: &Instance, device: vk::PhysicalDevice) -> Result<Adapter, vk::Result> {
    // SAFETY: the device is of this instance, which is alive.
    let extensions = unsafe { instance.enumerate_device_extension_properties(device) }?;
    let has_address =
        extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(ext::pci_bus_info::NAME));
    let mut bus = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceProperties2::default();
    if has_address {
        properties = properties.push_next(&mut bus);
    }
    // SAFETY: the device has the extension that it is asked about, and all versions since 1.1 have this call.
    unsafe { instance.get_physical_device_properties2(device, &mut properties) };
    let properties = properties.properties;
    // SAFETY: the device is of this instance, which is alive.
    let memory = unsafe { instance.get_physical_device_memory_properties(device) };
    let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
    let own = heaps.iter().filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let kind = match properties.device_type {
        vk::PhysicalDeviceType::DISCRETE_GPU => Kind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => Kind::Integrated,
        vk::PhysicalDeviceType::CPU => Kind::Software,
        _ => Kind::Other,
    };
    let name = properties.device_name_as_c_str().map(CStr::to_string_lossy).unwrap_or_default();
    let address = has_address.then(|| {
        let [domain, number, slot, function] =
            [bus.pci_domain, bus.pci_bus, bus.pci_device, bus.pci_function];
        format!("{domain:04x}:{number:02x}:{slot:02x}.{function:x}")
    });
    Ok(Adapter {
        kind,
        device: Device {
            api: WEBGPU.to_owned(),
            name: name.into_owned(),
            address,
            memory_mb: own.map(|heap| heap.size).sum::<u64>() >> 20,
            is_software: kind == Kind::Software,
        },
    })
}

/// Sorts devices by kind; those of one kind keep their order.
fn preferred_first(mut adapters: Vec<Adapter>) -> Vec<Adapter> {
    adapters.sort_by_key(|adapter| adapter.kind);
    adapters
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(index: usize, kind: Kind) -> Adapter {
        Adapter { kind, device: Device { name: index.to_string(), ..Device::default() } }
    }

    proptest! {
        #[test]
        fn the_first_of_the_best_kind_is_preferred(
            kinds in proptest::collection::vec(
                prop_oneof![Just(Kind::Other), Just(Kind::Software), Just(Kind::Integrated), Just(Kind::Discrete)],
                1..6,
            )
        ) {
            let adapters: Vec<_> = kinds.iter().enumerate().map(|(index, kind)| named(index, *kind)).collect();
            let best = adapters.iter().min_by_key(|adapter| adapter.kind).cloned();
            prop_assert_eq!(preferred_first(adapters).first().cloned(), best);
        }
    }
}
