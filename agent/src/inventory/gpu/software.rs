//! A GPU that the processor emulates, such as Mesa's llvmpipe: for tests. An engine reports it only if somebody selected it for the agent.

use std::collections::BTreeMap;

use island_protocol::host::Device;

use super::{GpuReadings, Moment, Probe, ProbeReport, Vendor};
use crate::inventory::meter::Memory;

/// Reason for the values that an emulated GPU does not have.
const EMULATED: &str = "the processor emulates this GPU";

/// Reports the emulated GPU of the engines, if any.
#[derive(Debug)]
pub(super) struct Software(Device);

impl Software {
    /// The first emulated one of these devices.
    pub(super) fn of(devices: &[Device]) -> Option<Self> {
        devices.iter().find(|device| device.is_software && !device.is_cpu()).cloned().map(Self)
    }
}

impl Probe for Software {
    fn name(&self) -> &'static str {
        "emulated GPUs"
    }

    fn poll(&mut self, _: &Moment) -> ProbeReport {
        ProbeReport { seen: vec![seen(&self.0, Memory::read())], ..ProbeReport::default() }
    }
}

/// Its memory is main memory.
fn seen(device: &Device, memory: Memory) -> GpuReadings {
    let vram_mb = match device.memory_mb {
        0 => memory.total_mb,
        reported => reported.min(memory.total_mb),
    };
    let reason = || EMULATED.to_owned();
    GpuReadings {
        id: "software".to_owned(),
        address: "software".to_owned(),
        part_of: None,
        vendor: Vendor::Software,
        name: device.name.clone(),
        vram_mb,
        used_mb: Ok(vram_mb.saturating_sub(memory.available_mb)),
        busy_percent: Err(reason()),
        temperature_c: Err(reason()),
        power_w: Err(reason()),
        computing: Err(reason()),
        drawing: BTreeMap::new(),
        handle: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_memory_is_main_memory() {
        let device = |memory_mb| Device {
            api: "vulkan".into(),
            name: "llvmpipe".into(),
            memory_mb,
            is_software: true,
            ..Device::default()
        };
        let memory = Memory { total_mb: 8000, available_mb: 5000 };
        let whole = seen(&device(0), memory);
        assert_eq!((whole.vram_mb, whole.used_mb), (8000, Ok(3000)));
        let half = seen(&device(4000), memory);
        assert_eq!((half.vram_mb, half.used_mb), (4000, Ok(0)), "all of it is free");
        assert!(Software::of(&[Device::cpu()]).is_none());
        assert!(Software::of(&[Device::cpu(), device(1)]).is_some());
    }
}
