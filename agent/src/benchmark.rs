//! Measures this machine at its first start: memory, the disk of the models, and the speed of a test job, which the coordinator measures.
//! The speed of the network is estimated from preloads.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use island_daemon::{chain::Chain, files::write_atomic};
use island_protocol::host::{Capabilities, Measured};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    control::status::Sources,
    inventory::{cores, disk_mb, engine_devices::EngineDevices},
};

const FILE: &str = "measured.json";
/// Bytes that one thread reads repeatedly: more than caches hold.
const MEMORY_BYTES: usize = 64 << 20;
/// Duration of that.
const MEMORY_TIME: Duration = Duration::from_millis(300);
/// Length of the file that is read from disk.
const DISK_BYTES: usize = 256 << 20;
/// Megabytes that must stay free in addition.
const DISK_FREE_MB: u64 = 1024;
const CHUNK: usize = 4 << 20;
/// Time between the first registration and the benchmark: other programs may be starting, too.
const PAUSE: Duration = Duration::from_secs(5);
/// Time between tries of the test job: a coordinator runs one a minute.
const AGAIN: Duration = Duration::from_secs(20);
/// Maximum number of tries until the next start of the agent.
const TRIES: u32 = 5;

/// The stored result, with the machine that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredResult {
    machine: String,
    measured: Measured,
}

/// Measures the machine at its first start, and again after its hardware has changed.
#[derive(Debug)]
pub struct Benchmark {
    /// Folder in which the result is stored.
    pub state: PathBuf,
    /// Folder of the models.
    pub models: PathBuf,
    /// Receives the result, and runs the test job.
    pub sources: Arc<Sources>,
}

impl Benchmark {
    /// Runs once this Island is idle, unless a stored result exists. Returns when stopped.
    pub async fn run(self, stop: CancellationToken) {
        let tried = async {
            if let Some(kept) = self.kept() {
                self.sources.supervisor.set_measured(kept);
                return;
            }
            self.quiet().await;
            let models = self.models.clone();
            let Ok(measured) = tokio::task::spawn_blocking(move || measure(&models)).await else { return };
            let Measured { memory_mb_s, disk_mb_s, .. } = measured;
            tracing::info!(memory_mb_s, disk_mb_s, "measured this machine");
            self.sources.supervisor.set_measured(measured.clone());
            self.sources.fabric.request_registration();
            if self.job().await {
                self.keep(measured);
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tried => {}
        }
        // Tasks run as long as the agent: the lifecycle treats one that returns earlier as failed.
        stop.cancelled().await;
    }

    /// Waits until this Island is registered, accepts jobs and has none.
    async fn quiet(&self) {
        loop {
            self.sources.fabric.up().await;
            tokio::time::sleep(PAUSE).await;
            if self.sources.supervisor.accepts_work() && self.sources.supervisor.holding().is_empty() {
                return;
            }
        }
    }

    /// Runs a test job. Returns `false` if none could be run; the next start tries again.
    async fn job(&self) -> bool {
        for tried in 0..TRIES {
            tokio::time::sleep(if tried == 0 { PAUSE } else { AGAIN }).await;
            if !self.sources.supervisor.accepts_work() {
                continue;
            }
            match self.sources.checker.check().await.map(|checked| checked.check) {
                Ok(check) if check.passed => {
                    let cargo = check.workload_slug.map(|slug| slug.to_string());
                    tracing::info!(
                        cargo,
                        tokens_per_second = check.tokens_per_second,
                        device = check.device,
                        "the test job completed"
                    );
                    return true;
                }
                Ok(check) => {
                    let reason = check.error.map(|error| error.message);
                    tracing::warn!(reason, "the test job failed; run `island-agent doctor`");
                }
                Err(error) => tracing::info!(error = %Chain(&error), "the test job could not be requested"),
            }
        }
        false
    }

    fn kept(&self) -> Option<Measured> {
        let kept: StoredResult = serde_json::from_slice(&fs::read(self.state.join(FILE)).ok()?).ok()?;
        (kept.machine == self.machine()).then_some(kept.measured)
    }

    fn keep(&self, measured: Measured) {
        let kept = StoredResult { machine: self.machine(), measured };
        let bytes = serde_json::to_vec(&kept).expect("numbers and text are valid JSON");
        if let Err(error) = write_atomic(&self.state.join(FILE), &bytes, 0o600) {
            tracing::warn!(%error, "the measured speed cannot be stored");
        }
    }

    fn machine(&self) -> String {
        let supervisor = &self.sources.supervisor;
        machine(&supervisor.capabilities(), &supervisor.pool().engine_devices())
    }
}

/// The hardware that a result depends on, with the devices that engines use: with another driver or module an engine runs elsewhere.
fn machine(has: &Capabilities, engines: &[EngineDevices]) -> String {
    let gpus: Vec<_> = has.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let devices: Vec<String> =
        engines.iter().map(|engine| format!("{} on {}", engine.engine, engine.in_words())).collect();
    let (gpus, devices) = (gpus.join(", "), devices.join(", "));
    format!("{} x {}, {} MB, {gpus}; {devices}", has.cpu_cores, has.cpu_model, has.ram_mb)
}

/// Takes about a second, all processors and some disk space.
fn measure(models: &Path) -> Measured {
    let disk_mb_s = match disk_mb(models) {
        Some((free, _)) if free > DISK_FREE_MB => disk(models)
            .inspect_err(|error| tracing::info!(%error, "the speed of the models' disk cannot be measured"))
            .ok(),
        _ => None,
    };
    Measured { memory_mb_s: memory(cores()), disk_mb_s, link_mb_s: None, at: clock::now() }
}

/// Measures memory bandwidth in megabytes per second: all threads read their own memory at once.
fn memory(threads: u32) -> u64 {
    let read = || {
        let words = vec![1_u64; MEMORY_BYTES / 8];
        let (begin, mut bytes) = (Instant::now(), 0_u64);
        while begin.elapsed() < MEMORY_TIME {
            std::hint::black_box(std::hint::black_box(&words).iter().sum::<u64>());
            bytes += MEMORY_BYTES as u64;
        }
        bytes as f64 / begin.elapsed().as_secs_f64()
    };
    let all: f64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(0.0)).sum()
    });
    (all / 1e6) as u64
}

/// Measures reading from disk in megabytes per second, with a file that is not in the page cache.
fn disk(folder: &Path) -> io::Result<u64> {
    let path = folder.join(".measure");
    let _gone = Removed(&path);
    let mut file = File::create(&path)?;
    let mut chunk: Vec<u8> = (0..CHUNK).map(|at| (at * 31 % 251) as u8).collect();
    for _ in 0..DISK_BYTES / CHUNK {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    let mut file = File::open(&path)?;
    forget(&file)?;
    let (begin, mut bytes) = (Instant::now(), 0);
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        bytes += count;
    }
    Ok((bytes as f64 / begin.elapsed().as_secs_f64() / 1e6) as u64)
}

/// Removes a file from the page cache, so that it is read from disk.
fn forget(file: &File) -> io::Result<()> {
    #[cfg(not(target_os = "macos"))]
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    #[cfg(target_os = "macos")]
    rustix::fs::fcntl_nocache(file, true)?;
    Ok(())
}

/// Removes the file on drop.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::engine_devices::UsedDevice;

    #[test]
    fn a_result_is_of_the_devices_that_engines_used() {
        let device = |api: &str, gpu| UsedDevice { apis: vec![api.to_owned()], name: "a".to_owned(), gpu };
        let of = |device| {
            let (engine, unused) = ("llmcpp".to_owned(), Vec::new());
            let engines = [EngineDevices { engine, devices: vec![device], unused }];
            machine(&Capabilities::default(), &engines)
        };
        assert_eq!(of(device("vulkan", Some(0))), of(device("vulkan", Some(0))));
        assert_ne!(of(device("vulkan", Some(0))), of(device("cpu", None)), "its module was removed");
        assert_ne!(of(device("vulkan", Some(0))), of(device("cuda", Some(0))), "a module was installed");
    }

    #[test]
    fn memory_and_disk_are_measured_and_no_file_remains() {
        let folder = tempfile::tempdir().expect("a folder");
        let measured = measure(folder.path());
        assert!(measured.memory_mb_s > 0, "{measured:?}");
        assert!(measured.disk_mb_s.is_some_and(|speed| speed > 0), "{measured:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
        assert_eq!(measure(Path::new("/proc")).disk_mb_s, None, "nothing can be written there");
    }
}
