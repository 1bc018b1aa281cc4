//! The status as metrics: [`prometheus`] serves them, [`otlp`] sends them.

pub mod otlp;
pub mod prometheus;

use std::collections::BTreeMap;

use island_protocol::host::GpuLoad;

use super::status::Status;

/// A metric, of one or several things.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, such as `memory_used`.
    pub name: &'static str,
    /// Its description.
    pub help: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether it only grows.
    pub is_counter: bool,
    /// Its current values.
    pub points: Vec<Point>,
}

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The labels; empty if there is only one value.
    pub labels: Vec<(&'static str, String)>,
    /// The value, in the unit of its series.
    pub value: f64,
}

/// The unit of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Counts and booleans.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Hundredths.
    Percent,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watts,
    /// Credits.
    Credits,
}

/// Returns all metrics.
pub fn series(status: &Status) -> Vec<Series> {
    let yes = |yes: bool| f64::from(u8::from(yes));
    let works = status.verdict.cause().is_none();
    let mut all = vec![
        one("up", "Seconds since the agent started.", Unit::Seconds, status.up_s as f64),
        one("connected", "1 while registered with the coordinator.", Unit::None, yes(status.connected)),
        one("working", "1 while the owner's rules allow work.", Unit::None, yes(works)),
        one("jobs", "Attempts of jobs on this Island.", Unit::None, status.jobs.len() as f64),
        one("workers", "Processes of engines.", Unit::None, status.workers.len() as f64),
        one("cpu", "Load of the processors.", Unit::Percent, f64::from(status.system.cpu_percent)),
        one("memory_used", "Main memory in use.", Unit::Bytes, bytes(status.system.memory_used_mb)),
        one("memory_total", "Main memory.", Unit::Bytes, bytes(status.system.memory_total_mb)),
        one("models", "Models on disk.", Unit::Bytes, status.models_gb * f64::from(1 << 30)),
        one(
            "models_free",
            "What further models may occupy.",
            Unit::Bytes,
            status.room_gb * f64::from(1 << 30),
        ),
        counted(one("paid_jobs", "Jobs that were paid.", Unit::None, status.earned.jobs as f64)),
        counted(one("earned", "Credits earned.", Unit::Credits, status.earned.total.0 as f64 / 1e6)),
    ];
    let devices = status.earned.devices.iter();
    let devices =
        devices.map(|(device, jobs)| Point { labels: vec![("device", device.clone())], value: *jobs as f64 });
    let devices =
        many("device_jobs", "Completed jobs by the device that ran them.", Unit::None, devices.collect());
    all.push(counted(devices));
    all.extend(gpus(status));
    let devices = status.engines.iter().flat_map(|engine| {
        engine.devices.iter().map(|device| {
            let gpu = device.gpu.map(|gpu| gpu.to_string()).unwrap_or_default();
            let labels = vec![
                ("engine", engine.engine.clone()),
                ("api", device.apis.join(" ")),
                ("device", device.name.clone()),
                ("gpu", gpu),
            ];
            Point { labels, value: 1.0 }
        })
    });
    let devices = devices.collect();
    all.push(many("engine_device", "1 for each device on which an engine runs models.", Unit::None, devices));
    all.push(worker_memory(status));
    let refusals = status.refusals.iter().map(|(reason, count)| {
        let reason = serde_json::to_value(reason).unwrap_or_default();
        let reason = reason.as_str().unwrap_or("other").to_owned();
        Point { labels: vec![("reason", reason)], value: count.times as f64 }
    });
    let refusals = many("refusals", "Jobs that this Island refused.", Unit::None, refusals.collect());
    all.push(counted(refusals));
    all
}

/// The sum for each Cargo: a series for each process would be a new one at every start.
fn worker_memory(status: &Status) -> Series {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for worker in &status.workers {
        let sum = sums.entry(&worker.cargo).or_default();
        *sum = sum.saturating_add(worker.ram_mb);
    }
    let point =
        |(cargo, mb): (&str, u64)| Point { labels: vec![("cargo", cargo.to_owned())], value: bytes(mb) };
    let points = sums.into_iter().map(point).collect();
    many("worker_memory", "Main memory of engines' processes.", Unit::Bytes, points)
}

/// A value that a GPU does not report is absent.
fn gpus(status: &Status) -> [Series; 4] {
    type Value = fn(&GpuLoad) -> Option<f64>;
    let series: [(_, _, _, Value); 4] = [
        ("gpu_memory_used", "GPU memory in use.", Unit::Bytes, |gpu| gpu.memory_used_mb.map(bytes)),
        ("gpu_busy", "Load of a GPU.", Unit::Percent, |gpu| gpu.utilization_percent.map(f64::from)),
        ("gpu_temperature", "Temperature of a GPU.", Unit::Celsius, |gpu| gpu.temperature_c.map(f64::from)),
        ("gpu_power", "Power that a GPU draws.", Unit::Watts, |gpu| gpu.power_draw_w.map(f64::from)),
    ];
    series.map(|(name, help, unit, value)| {
        let point =
            |gpu: &GpuLoad| Some(Point { labels: vec![("gpu", gpu.index.to_string())], value: value(gpu)? });
        many(name, help, unit, status.gpus.iter().filter_map(point).collect())
    })
}

fn bytes(megabytes: u64) -> f64 {
    megabytes as f64 * f64::from(1 << 20)
}

fn one(name: &'static str, help: &'static str, unit: Unit, value: f64) -> Series {
    many(name, help, unit, vec![Point { labels: Vec::new(), value }])
}

fn many(name: &'static str, help: &'static str, unit: Unit, points: Vec<Point>) -> Series {
    Series { name, help, unit, is_counter: false, points }
}

fn counted(series: Series) -> Series {
    Series { is_counter: true, ..series }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        control::{screen::tests::status, status::Worker},
        inventory::engine_devices::{EngineDevices, UsedDevice},
    };

    #[test]
    fn each_device_of_an_engine_is_a_series() {
        let device = |apis: &[&str], name: &str, gpu| {
            let apis = apis.iter().map(|&api| api.to_owned()).collect();
            UsedDevice { apis, name: name.to_owned(), gpu }
        };
        let devices =
            vec![device(&["cuda", "vulkan"], "NVIDIA A", Some(1)), device(&["cpu"], "Some CPU", None)];
        let engine = EngineDevices { engine: "llmcpp".to_owned(), devices, unused: Vec::new() };
        let all = series(&Status { engines: vec![engine], ..status() });
        let found = all.into_iter().find(|series| series.name == "engine_device").expect("a series");
        let point = |api: &str, device: &str, gpu: &str| {
            let labels = [("engine", "llmcpp"), ("api", api), ("device", device), ("gpu", gpu)];
            let labels = labels.map(|(name, value)| (name, value.to_owned())).to_vec();
            Point { labels, value: 1.0 }
        };
        assert_eq!(found.points, [point("cuda vulkan", "NVIDIA A", "1"), point("cpu", "Some CPU", "")]);
    }

    #[test]
    fn processes_of_a_cargo_are_one_series_whatever_their_ids() {
        let worker = |cargo: &str, pid, ram_mb| Worker {
            cargo: cargo.into(),
            pid,
            state: "ready".into(),
            jobs: 0,
            ram_mb,
            vram_mb: 0,
            idle_s: 0,
        };
        let memory = |workers: Vec<Worker>| {
            let all = series(&Status { workers, ..status() });
            let memory = all.into_iter().find(|series| series.name == "worker_memory");
            memory.expect("a series").points
        };
        let point = |cargo: &str, mb| Point { labels: vec![("cargo", cargo.to_owned())], value: bytes(mb) };
        let before = memory(vec![worker("a", 7, 100), worker("b", 8, 50), worker("a", 9, 200)]);
        assert_eq!(before, [point("a", 300), point("b", 50)]);
        assert_eq!(memory(vec![worker("a", 10, 300), worker("b", 11, 50)]), before, "after a restart");
    }
}
