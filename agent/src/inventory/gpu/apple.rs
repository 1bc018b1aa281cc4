//! The GPU of an Apple chip. It shares the machine's memory, so memory in use by programs is not free for it either.

use std::{collections::BTreeMap, fmt};

use super::{GpuReadings, MB, Moment, Probe, ProbeReport, Vendor};

/// The counters at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counters {
    /// Name of the chip.
    pub(super) chip: String,
    /// Cores of its GPU.
    pub(super) cores: u8,
    /// Memory that the GPU may use with good performance, bytes.
    pub(super) budget_bytes: u64,
    /// Memory of the machine that programs may still use, megabytes.
    pub(super) available_mb: u64,
    /// Share of the time in which it was busy, 0 to 1.
    pub(super) busy: f32,
    /// Degrees Celsius.
    pub(super) temperature_c: Option<f32>,
    /// Watts.
    pub(super) power_w: f32,
}

/// Reads the counters.
pub(super) trait System: fmt::Debug + Send {
    /// The counters now, or why they cannot be read.
    fn read(&mut self) -> Result<Counters, String>;
}

/// Polls the GPU.
#[derive(Debug)]
pub(super) struct Apple(pub(super) Box<dyn System>);

impl Probe for Apple {
    fn name(&self) -> &'static str {
        "Apple GPUs"
    }

    fn poll(&mut self, _: &Moment) -> ProbeReport {
        match self.0.read() {
            Ok(counters) => ProbeReport { seen: vec![seen(counters)], ..ProbeReport::default() },
            Err(reason) => ProbeReport { none: Some(reason), ..ProbeReport::default() },
        }
    }
}

fn seen(counters: Counters) -> GpuReadings {
    let vram_mb = counters.budget_bytes / MB;
    let temperature = counters.temperature_c.map(|celsius| celsius.round().max(0.0) as u32);
    GpuReadings {
        // There is always one, in the same chip as the processor.
        id: "apple".to_owned(),
        address: "apple".to_owned(),
        part_of: None,
        vendor: Vendor::Apple,
        name: format!("{} ({} GPU cores)", counters.chip, counters.cores),
        vram_mb,
        used_mb: Ok(vram_mb.saturating_sub(counters.available_mb)),
        busy_percent: Ok((counters.busy.clamp(0.0, 1.0) * 100.0).round() as u32),
        temperature_c: temperature.ok_or_else(|| "the chip's sensors report none".to_owned()),
        power_w: Ok(counters.power_w),
        computing: Err("macOS does not report them".to_owned()),
        drawing: BTreeMap::new(),
        handle: None,
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use super::*;

    #[derive(Debug)]
    struct Fixed(Result<Counters, String>);

    impl System for Fixed {
        fn read(&mut self) -> Result<Counters, String> {
            self.0.clone()
        }
    }

    fn poll(counters: Result<Counters, String>) -> ProbeReport {
        Apple(Box::new(Fixed(counters))).poll(&Moment::new(Instant::now(), Path::new("/nowhere")))
    }

    fn counters() -> Counters {
        Counters {
            chip: "Apple M3 Pro".to_owned(),
            cores: 18,
            budget_bytes: 24 << 30,
            available_mb: 10 << 10,
            busy: 0.256,
            temperature_c: Some(41.6),
            power_w: 3.5,
        }
    }

    #[test]
    fn memory_in_use_by_others_is_not_free() {
        let gpu = poll(Ok(counters())).seen.remove(0);
        assert_eq!((gpu.name.as_str(), gpu.vram_mb), ("Apple M3 Pro (18 GPU cores)", 24 << 10));
        assert_eq!(gpu.used_mb, Ok(14 << 10), "ten gigabytes of the machine are free");
        assert_eq!((gpu.busy_percent, gpu.temperature_c, gpu.power_w), (Ok(26), Ok(42), Ok(3.5)));
        let roomy = poll(Ok(Counters { available_mb: 30 << 10, ..counters() })).seen.remove(0);
        assert_eq!(roomy.used_mb, Ok(0));
    }

    #[test]
    fn missing_values_have_a_reason() {
        let gpu = poll(Ok(Counters { temperature_c: None, ..counters() })).seen.remove(0);
        assert_eq!(
            gpu.missing(),
            ["temperature: the chip's sensors report none", "other programs: macOS does not report them"]
        );
        let none = poll(Err("no counters".to_owned()));
        assert_eq!((none.seen.len(), none.none.as_deref()), (0, Some("no counters")));
    }
}
