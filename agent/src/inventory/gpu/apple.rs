//! The GPU of an Apple chip. Its memory is the machine's, so what programs took of that is not free for it either.

use std::fmt;

use super::{GpuReadings, MB, Moment, Probe, ProbeReport, Vendor};

/// What the system tells at one look.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counters {
    /// Name of the chip.
    pub(super) chip: String,
    /// Cores of its GPU.
    pub(super) cores: u8,
    /// What the GPU may use with good performance, bytes.
    pub(super) budget_bytes: u64,
    /// What programs may still take of the machine's memory, megabytes.
    pub(super) available_mb: u64,
    /// Share of the time in which it worked, 0 to 1.
    pub(super) busy: f32,
    /// Degrees Celsius.
    pub(super) temperature_c: Option<f32>,
    /// Watts.
    pub(super) power_w: f32,
}

/// Who reads them.
pub(super) trait System: fmt::Debug + Send {
    /// The counters now, or why not.
    fn read(&mut self) -> Result<Counters, String>;
}

/// Looks at it.
#[derive(Debug)]
pub(super) struct Apple(pub(super) Box<dyn System>);

impl Probe for Apple {
    fn poll(&mut self, _: &Moment<'_>) -> ProbeReport {
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
        // There is one, soldered to the processor.
        id: "apple".to_owned(),
        address: "apple".to_owned(),
        vendor: Vendor::Apple,
        name: format!("{} ({} GPU cores)", counters.chip, counters.cores),
        vram_mb,
        used_mb: Ok(vram_mb.saturating_sub(counters.available_mb)),
        busy_percent: Ok((counters.busy.clamp(0.0, 1.0) * 100.0).round() as u32),
        temperature_c: temperature.ok_or_else(|| "the chip's sensors do not tell".to_owned()),
        power_w: Ok(counters.power_w),
        computing: Err("macOS does not tell who uses it".to_owned()),
        handle: None,
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Instant};

    use super::*;

    #[derive(Debug)]
    struct Told(Result<Counters, String>);

    impl System for Told {
        fn read(&mut self) -> Result<Counters, String> {
            self.0.clone()
        }
    }

    fn poll(told: Result<Counters, String>) -> ProbeReport {
        Apple(Box::new(Told(told))).poll(&Moment::new(Instant::now(), Path::new("/nowhere")))
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
    fn memory_that_others_took_is_not_free() {
        let gpu = poll(Ok(counters())).seen.remove(0);
        assert_eq!((gpu.name.as_str(), gpu.vram_mb), ("Apple M3 Pro (18 GPU cores)", 24 << 10));
        assert_eq!(gpu.used_mb, Ok(14 << 10), "ten gigabytes are left in all");
        assert_eq!((gpu.busy_percent, gpu.temperature_c, gpu.power_w), (Ok(26), Ok(42), Ok(3.5)));
        let roomy = poll(Ok(Counters { available_mb: 30 << 10, ..counters() })).seen.remove(0);
        assert_eq!(roomy.used_mb, Ok(0));
    }

    #[test]
    fn what_is_not_told_is_a_reason() {
        let gpu = poll(Ok(Counters { temperature_c: None, ..counters() })).seen.remove(0);
        assert_eq!(
            gpu.missing(),
            [
                "temperature: the chip's sensors do not tell",
                "other programs: macOS does not tell who uses it"
            ]
        );
        let none = poll(Err("no counters".to_owned()));
        assert_eq!((none.seen.len(), none.none.as_deref()), (0, Some("no counters")));
    }
}
