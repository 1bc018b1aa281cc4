//! Readings of the machine: whether a person uses it, whether other programs use its GPUs, temperatures and power.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::gpus::{GpuRule, limits};
use crate::inventory::{
    gpu::{Card, Reading, is_lasting},
    meter::Sample,
};

/// Readings. `None` if the machine does not report a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SensorReadings {
    /// Time since the last input of a person.
    pub idle: Option<Duration>,
    /// Whether a program that is not ours computes on a GPU.
    pub gpu_in_use: bool,
    /// Whether a GPU does not report the programs that use it.
    pub gpu_use_unknown: bool,
    /// Temperature of the hottest GPU.
    pub gpu_temperature_c: Option<f32>,
    /// Whether a GPU does not report its temperature.
    pub gpu_temperature_unknown: bool,
    /// Highest power of a GPU.
    pub gpu_power_w: Option<f32>,
    /// Whether a GPU does not report its power.
    pub gpu_power_unknown: bool,
}

impl SensorReadings {
    /// Combines a sample of the load with the idle time. GPUs that the owner does not offer are left out. While a driver does not answer,
    /// what rules limit is unknown.
    pub fn of(sample: &Sample, idle: Option<Duration>, rules: &[GpuRule]) -> Self {
        let offered = |card: &&Card| !limits(rules, card).never;
        let cards: Vec<&Card> = sample.gpus.cards.iter().filter(offered).collect();
        let most =
            |value: fn(&Card) -> Option<f32>| cards.iter().filter_map(|card| value(card)).reduce(f32::max);
        let is_incomplete = sample.gpus.is_incomplete;
        Self {
            idle,
            gpu_in_use: cards.iter().any(|card| card.foreign.is_some_and(|count| count > 0)),
            gpu_use_unknown: is_incomplete || cards.iter().any(|card| card.foreign.is_none()),
            gpu_temperature_c: most(|card| Some(*card.seen.temperature_c.as_ref().ok()? as f32)),
            gpu_temperature_unknown: is_incomplete
                || cards.iter().any(|card| is_missing(&card.seen.temperature_c)),
            gpu_power_w: most(|card| card.seen.power_w.as_ref().ok().copied()),
            gpu_power_unknown: is_incomplete || cards.iter().any(|card| is_missing(&card.seen.power_w)),
        }
    }
}

/// Whether a value is not measured, and will not be at the next poll either. Those of a suspended GPU are not read: it exceeds no limit.
fn is_missing<T>(reading: &Reading<T>) -> bool {
    reading.as_ref().is_err_and(|reason| is_lasting(reason))
}

/// Terminals, whose access times show when a person typed. Keyboards and mice have none: desktops read them without changing an access time.
#[derive(Debug, Clone)]
pub struct Terminals {
    dev: PathBuf,
}

impl Default for Terminals {
    fn default() -> Self {
        Self::under(Path::new("/dev"))
    }
}

impl Terminals {
    /// Those in a folder of devices.
    pub fn under(dev: &Path) -> Self {
        Self { dev: dev.to_owned() }
    }

    /// Time since the last access to any of them at `now`; `None` without a terminal.
    pub fn idle(&self, now: SystemTime) -> Option<Duration> {
        let entries = |folder: &str| fs::read_dir(self.dev.join(folder)).into_iter().flatten().flatten();
        let named =
            |entry: &fs::DirEntry, wanted: fn(&str) -> bool| entry.file_name().to_str().is_some_and(wanted);
        let consoles = entries("").filter(|entry| named(entry, is_console));
        let pseudo = entries("pts").filter(|entry| named(entry, |name| name != "ptmx"));
        let read = consoles.chain(pseudo).filter_map(|entry| entry.metadata().ok()?.accessed().ok());
        let latest = read.max()?;
        Some(now.duration_since(latest).unwrap_or_default())
    }
}

fn is_console(name: &str) -> bool {
    name.strip_prefix("tty")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inventory::gpu::View, owner::policy::gpus::tests::card};

    fn device(dev: &Path, name: &str, read: SystemTime) {
        let path = dev.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        let file = fs::File::create(path).expect("a file");
        file.set_times(fs::FileTimes::new().set_accessed(read)).expect("times");
    }

    #[test]
    fn the_last_input_on_any_terminal_counts_and_other_devices_do_not() {
        let dev = tempfile::tempdir().expect("a folder");
        let now = SystemTime::now();
        let ago = |minutes| now - Duration::from_mins(minutes);
        assert_eq!(Terminals::under(dev.path()).idle(now), None, "nothing is measured");
        device(dev.path(), "tty1", ago(50));
        device(dev.path(), "ttyS0", ago(1));
        device(dev.path(), "null", ago(0));
        device(dev.path(), "pts/ptmx", ago(0));
        let idle = || Terminals::under(dev.path()).idle(now).expect("reported").as_secs() / 60;
        assert_eq!(idle(), 50);
        device(dev.path(), "pts/3", ago(20));
        assert_eq!(idle(), 20);
        device(dev.path(), "input/event4", ago(3));
        assert_eq!(idle(), 20, "no driver of input devices updates their access times");
    }

    #[test]
    fn the_hottest_gpu_counts_and_excluded_gpus_do_not() {
        let gpu = |index, celsius: Option<u32>, watts: Option<f32>, foreign| {
            let mut card = card(index, crate::inventory::gpu::Vendor::Amd, 1, Ok(0), None);
            card.seen.temperature_c = celsius.ok_or_else(String::new);
            card.seen.power_w = watts.ok_or_else(String::new);
            Card { foreign, ..card }
        };
        let cards = vec![
            gpu(0, Some(40), None, Some(0)),
            gpu(1, Some(81), Some(120.0), None),
            gpu(2, None, Some(20.5), Some(2)),
        ];
        let sample = Sample { gpus: View { cards, ..View::default() }, ..Sample::default() };
        let all = SensorReadings {
            idle: None,
            gpu_in_use: true,
            gpu_use_unknown: true,
            gpu_temperature_c: Some(81.0),
            gpu_temperature_unknown: true,
            gpu_power_w: Some(120.0),
            gpu_power_unknown: true,
        };
        assert_eq!(SensorReadings::of(&sample, None, &[]), all);
        let never = |name: &str| GpuRule {
            gpu: name.parse().expect("a name"),
            never: true,
            max_vram_mb: None,
            max_temperature_c: None,
            max_power_w: None,
        };
        let first = SensorReadings {
            gpu_temperature_c: Some(40.0),
            gpu_power_unknown: true,
            ..SensorReadings::default()
        };
        assert_eq!(SensorReadings::of(&sample, None, &[never("1"), never("2")]), first);
        assert_eq!(SensorReadings::of(&Sample::default(), None, &[]), SensorReadings::default());
    }

    #[test]
    fn a_silent_driver_makes_values_unknown() {
        let gpus = View { is_incomplete: true, ..View::default() };
        let readings = SensorReadings::of(&Sample { gpus, ..Sample::default() }, None, &[]);
        let unknown =
            [readings.gpu_use_unknown, readings.gpu_temperature_unknown, readings.gpu_power_unknown];
        assert_eq!(unknown, [true; 3]);
    }

    #[test]
    fn a_suspended_gpu_exceeds_no_limit() {
        let mut card = card(0, crate::inventory::gpu::Vendor::Amd, 1, Ok(0), None);
        card.seen.temperature_c = Err(crate::inventory::gpu::ASLEEP.to_owned());
        card.seen.power_w = Err(crate::inventory::gpu::ASLEEP.to_owned());
        let sample = Sample { gpus: View { cards: vec![card], ..View::default() }, ..Sample::default() };
        assert_eq!(SensorReadings::of(&sample, None, &[]), SensorReadings::default());
    }
}
