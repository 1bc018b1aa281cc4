//! What is felt of the machine: is somebody at it, do other programs use its GPUs, how hot are they.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::inventory::meter::Sample;

/// What was felt. Nothing where nothing tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Senses {
    /// Since somebody last typed or moved something.
    pub idle: Option<Duration>,
    /// Whether a program that is not ours computes on a GPU.
    pub gpu_in_use: bool,
    /// Of the hottest GPU.
    pub gpu_temperature_c: Option<f32>,
    /// Of the thirstiest GPU.
    pub gpu_power_w: Option<f32>,
}

impl Senses {
    /// What a sample of the load tells, beside `idle`.
    pub fn of(sample: &Sample, idle: Option<Duration>) -> Self {
        let most = |values: &mut dyn Iterator<Item = f32>| values.reduce(f32::max);
        Self {
            idle,
            gpu_in_use: sample.foreign_gpu_processes > 0,
            gpu_temperature_c: most(
                &mut sample.gpus.iter().filter_map(|gpu| gpu.temperature_c).map(|celsius| celsius as f32),
            ),
            gpu_power_w: most(&mut sample.gpus.iter().filter_map(|gpu| gpu.power_draw_w)),
        }
    }
}

/// Terminals and input devices, whose times of access say when somebody was there.
#[derive(Debug, Clone)]
pub struct Seats {
    dev: PathBuf,
}

impl Default for Seats {
    fn default() -> Self {
        Self::under(Path::new("/dev"))
    }
}

impl Seats {
    /// Those in a folder of devices.
    pub fn under(dev: &Path) -> Self {
        Self { dev: dev.to_owned() }
    }

    /// Since the last of them was read from at `now`: a terminal is when somebody types, an input device when something moves.
    pub fn idle(&self, now: SystemTime) -> Option<Duration> {
        let entries = |folder: &str| fs::read_dir(self.dev.join(folder)).into_iter().flatten().flatten();
        let named =
            |entry: &fs::DirEntry, wanted: fn(&str) -> bool| entry.file_name().to_str().is_some_and(wanted);
        let consoles = entries("").filter(|entry| named(entry, is_console));
        let terminals = entries("pts").filter(|entry| named(entry, |name| name != "ptmx"));
        let inputs =
            entries("input").filter(|entry| named(entry, |name| name.starts_with("event") || name == "mice"));
        let read = consoles
            .chain(terminals)
            .chain(inputs)
            .filter_map(|entry| entry.metadata().ok()?.accessed().ok());
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
    use island_protocol::host::GpuLoad;

    use super::*;

    fn device(dev: &Path, name: &str, read: SystemTime) {
        let path = dev.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        let file = fs::File::create(path).expect("a file");
        file.set_times(fs::FileTimes::new().set_accessed(read)).expect("times");
    }

    #[test]
    fn the_last_touch_of_any_seat_counts_and_other_devices_do_not() {
        let dev = tempfile::tempdir().expect("a folder");
        let now = SystemTime::now();
        let ago = |minutes| now - Duration::from_mins(minutes);
        assert_eq!(Seats::under(dev.path()).idle(now), None, "nothing tells");
        device(dev.path(), "tty1", ago(50));
        device(dev.path(), "ttyS0", ago(1));
        device(dev.path(), "null", ago(0));
        device(dev.path(), "pts/ptmx", ago(0));
        let idle = || Seats::under(dev.path()).idle(now).expect("told").as_secs() / 60;
        assert_eq!(idle(), 50);
        device(dev.path(), "pts/3", ago(20));
        assert_eq!(idle(), 20);
        device(dev.path(), "input/event4", ago(3));
        assert_eq!(idle(), 3);
    }

    #[test]
    fn the_worst_gpu_counts() {
        let gpu = |celsius, watts| GpuLoad {
            index: 0,
            utilization_percent: None,
            memory_used_mb: 0,
            memory_total_mb: 0,
            temperature_c: celsius,
            power_draw_w: watts,
        };
        let sample = Sample {
            gpus: vec![gpu(Some(40), None), gpu(Some(81), Some(120.0)), gpu(None, Some(20.5))],
            ..Sample::default()
        };
        let senses = Senses::of(&sample, None);
        assert_eq!((senses.gpu_temperature_c, senses.gpu_power_w), (Some(81.0), Some(120.0)));
        assert_eq!(Senses::of(&Sample::default(), None), Senses::default());
    }
}
