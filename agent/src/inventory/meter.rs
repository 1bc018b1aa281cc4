//! Samples the load of this machine in a separate task, so that a slow driver delays no heartbeat.

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use island_daemon::progress::Progress;
use island_protocol::host::SystemLoad;
use parking_lot::Mutex;
use sysinfo::System;
use tokio::{sync::watch, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    cgroup::Groups,
    disk_mb,
    gpu::{Gpus, View},
};

/// Time between samples: no longer than the time between heartbeats.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// Time between two samples after which this process counts as deadlocked: more than polling GPUs may take.
const STUCK_AFTER: Duration = Duration::from_mins(1);

/// Main memory now, megabytes, within the limits of the unit or container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total.
    pub total_mb: u64,
    /// What programs can still use without swapping.
    pub available_mb: u64,
}

impl Memory {
    /// Reads the values. Nothing counts as free if they cannot be read.
    pub fn read() -> Self {
        // Created once, because creation reads values that never change.
        static SYSTEM: LazyLock<Mutex<Option<System>>> = LazyLock::new(|| Mutex::new(System::new().ok()));
        let mut system = SYSTEM.lock();
        let Some(system) = system.as_mut() else {
            tracing::error!("the memory of this machine cannot be read");
            return Self::default();
        };
        system.refresh_memory();
        let (mut total, mut available) = (system.total_memory(), system.available_memory());
        if let Some(limits) = system.cgroup_limits() {
            total = total.min(limits.total_memory);
            available = available.min(limits.free_memory);
        }
        if let Some(group) = Groups::default().memory() {
            total = total.min(group.limit);
            available = available.min(group.free);
        }
        Self { total_mb: total >> 20, available_mb: available >> 20 }
    }
}

/// Age up to which the memory of a sample counts as current.
const STILL_NOW: Duration = Duration::from_millis(100);

/// One sample of the load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// When it was taken; `None` before the first.
    pub taken: Option<tokio::time::Instant>,
    /// The machine.
    pub system: SystemLoad,
    /// Its main memory: the parts of the value in `system`.
    pub memory: Memory,
    /// Its GPUs.
    pub gpus: View,
}

impl Sample {
    /// Main memory now. The value of a fresh sample is not read again.
    pub fn memory_now(&self) -> Memory {
        let is_now = self.taken.is_some_and(|taken| taken.elapsed() < STILL_NOW);
        if is_now { self.memory } else { Memory::read() }
    }
}

/// The latest sample, and the task that takes samples.
#[derive(Debug)]
pub struct Meter {
    system: Arc<Mutex<Option<System>>>,
    gpus: Arc<Mutex<Gpus>>,
    disk: PathBuf,
    latest: watch::Sender<Arc<Sample>>,
}

impl Meter {
    /// Creates a meter that also measures the disk under `disk`.
    pub fn new(gpus: Gpus, disk: PathBuf) -> Self {
        let (latest, _) = watch::channel(Arc::new(Sample::default()));
        let system = Arc::new(Mutex::new(System::new().ok()));
        Self { system, gpus: Arc::new(Mutex::new(gpus)), disk, latest }
    }

    /// Follows the samples.
    pub fn latest(&self) -> watch::Receiver<Arc<Sample>> {
        self.latest.subscribe()
    }

    /// Takes one sample. The processor share is the difference between two.
    pub async fn sample(&self) {
        let (system, gpus, disk) = (Arc::clone(&self.system), Arc::clone(&self.gpus), self.disk.clone());
        let taken = tokio::task::spawn_blocking(move || {
            let mut system = system.lock();
            let mut gpus = gpus.lock();
            let taken = Some(tokio::time::Instant::now());
            // GPUs first: a driver may take long, and memory changes fastest.
            let (gpus, memory) = (gpus.poll(Instant::now()), Memory::read());
            Sample { taken, system: load(system.as_mut(), memory, &disk), memory, gpus }
        });
        match taken.await {
            Ok(sample) => {
                let sample = Arc::new(sample);
                let before = self.latest.send_replace(Arc::clone(&sample));
                let is_new = |problem: &&String| !before.gpus.problems.contains(problem);
                for problem in sample.gpus.problems.iter().filter(is_new) {
                    tracing::warn!(problem, "a GPU cannot be used");
                }
            }
            Err(error) => tracing::error!(%error, "measuring the load failed"),
        }
    }

    /// Samples until stopped.
    pub async fn run(&self, progress: Progress, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => {
                    progress.next_within(STUCK_AFTER);
                    self.sample().await;
                    island_daemon::notify::watchdog();
                }
            }
        }
    }
}

fn load(system: Option<&mut System>, memory: Memory, disk: &std::path::Path) -> SystemLoad {
    let cpu_percent = system.map_or(0.0, |system| {
        system.refresh_cpu_usage();
        system.global_cpu_usage()
    });
    let (disk_free, disk_total) = disk_mb(disk).unwrap_or_default();
    SystemLoad {
        cpu_percent,
        memory_used_mb: memory.total_mb.saturating_sub(memory.available_mb),
        memory_total_mb: memory.total_mb,
        disk_used_gb: disk_total.saturating_sub(disk_free) as f64 / 1024.0,
        disk_total_gb: disk_total as f64 / 1024.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use island_daemon::latest::Latest;

    #[tokio::test]
    async fn a_sample_is_plausible() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let meter = Meter::new(Gpus::here(folder.path(), &[]), folder.path().to_owned());
        meter.sample().await;
        let sample = meter.latest().latest();
        assert!(sample.system.memory_total_mb > 0);
        assert!(sample.system.memory_used_mb <= sample.system.memory_total_mb);
        assert!(sample.system.disk_total_gb >= sample.system.disk_used_gb);
        assert!((0.0..=100.0).contains(&sample.system.cpu_percent));
    }
}
