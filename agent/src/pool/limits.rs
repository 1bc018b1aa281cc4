//! Limits that the agent enforces on workers which do not keep to them: a worker that was taken over ends its own watchdog first.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use island_runtimes_worker::{
    launch::Launch,
    lockdown::{MIN_MEMORY_MB, WorkerMemory},
};
use tokio::time::Instant;

use super::{Pool, memory::SHARED_MB};
use crate::worker::{Command, WorkerExit, WorkerHandle};

/// Bytes that a worker may have on the disk: scratch files and its log.
const MAX_BYTES: u64 = 2 << 30;
/// Number of its files and folders.
const MAX_FILES: u64 = 20_000;
/// Time in which a worker that runs all Cargos of an engine returns the memory of a job that has ended.
const RETURN_TIME: Duration = Duration::from_secs(2);
/// Unit in which the system reports the size of a file on the disk.
const BLOCK: u64 = 512;

impl Pool {
    /// Ends workers that allocated clearly more memory than they may, or have too much on the disk.
    pub fn enforce_limits(&self) {
        for worker in self.workers() {
            if let Some(excess) = excess(&worker) {
                tracing::warn!(instance = %worker.instance, cargo = %worker.launch.cargo.slug, ?excess, "ending a worker");
                worker.send(Command::Kill(excess));
            }
        }
    }
}

fn excess(worker: &WorkerHandle) -> Option<WorkerExit> {
    let measured_mb = worker.memory.as_ref().and_then(WorkerMemory::allocated_mb);
    let launch = &worker.launch;
    let most_mb = most_mb(limit_mb(launch, worker.stats().claimed_mb));
    let excess_mb = measured_mb.filter(|used_mb| *used_mb > most_mb);
    let over_for = worker.note_excess(excess_mb.is_some(), Instant::now());
    if let Some(used_mb) = excess_mb.filter(|_| over_for >= return_time(launch)) {
        return Some(WorkerExit::MemoryExceeded { used_mb });
    }
    is_too_large(&worker.dir, MAX_BYTES, MAX_FILES).then_some(WorkerExit::ScratchExceeded)
}

/// Memory that a worker may allocate. One that runs all Cargos of an engine may have what its jobs claim now: the limit with which it was
/// started is all that was free then.
fn limit_mb(launch: &Launch, claimed_mb: u64) -> u64 {
    if launch.cargo.is_shared() {
        return launch.memory_limit_mb.min(SHARED_MB.saturating_add(claimed_mb));
    }
    launch.memory_limit_mb
}

/// How long a worker may have more than its limit.
fn return_time(launch: &Launch) -> Duration {
    if launch.cargo.is_shared() { RETURN_TIME } else { Duration::ZERO }
}

/// The worker's own watchdog acts at its limit; the agent acts beyond it, so that the reason is usually the worker's own exit code.
fn most_mb(limit_mb: u64) -> u64 {
    let limit_mb = limit_mb.max(MIN_MEMORY_MB);
    limit_mb.saturating_add(limit_mb / 8).saturating_add(64)
}

/// Whether a folder contains more. Links are not followed; what disappears meanwhile is not counted.
fn is_too_large(dir: &Path, most_bytes: u64, most_files: u64) -> bool {
    let (mut bytes, mut files) = (0_u64, 0_u64);
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            files += 1;
            bytes = bytes.saturating_add(about.blocks().saturating_mul(BLOCK));
            if bytes > most_bytes || files > most_files {
                return true;
            }
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use island_protocol::{cargo::RuntimeType, ids::InstanceId};

    use super::*;
    use crate::testing;

    #[test]
    fn a_shared_worker_may_have_what_its_jobs_claim() {
        let mut launch = Launch::new(InstanceId(uuid::Uuid::nil()), testing::assignment(1, 1).cargo);
        launch.memory_limit_mb = 8000;
        assert_eq!((limit_mb(&launch, 0), return_time(&launch)), (8000, Duration::ZERO), "of a model");
        launch.cargo.engine = serde_json::Value::Null;
        launch.cargo.runtime_type = RuntimeType::Wasm;
        assert_eq!((limit_mb(&launch, 0), limit_mb(&launch, 600)), (SHARED_MB, SHARED_MB + 600));
        assert_eq!(limit_mb(&launch, u64::MAX), 8000);
        assert_eq!(most_mb(limit_mb(&launch, 0)), most_mb(MIN_MEMORY_MB), "also without jobs");
        assert_eq!(return_time(&launch), RETURN_TIME);
    }

    #[test]
    fn a_limit_has_some_margin_and_is_never_infinite() {
        assert_eq!(most_mb(800), 964);
        assert_eq!(most_mb(0), most_mb(MIN_MEMORY_MB), "0 does not mean that there is no limit");
    }

    #[test]
    fn everything_below_a_workers_folder_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let below = dir.path().join("scratch/a/b");
        fs::create_dir_all(&below).expect("folders");
        fs::write(below.join("file"), vec![1; 1 << 20]).expect("a file");
        fs::write(dir.path().join("stderr.log"), vec![1; 1 << 20]).expect("a file");
        let is_over = |bytes, files| is_too_large(dir.path(), bytes, files);
        assert!(!is_over(4 << 20, 100));
        assert!(is_over(1 << 20, 100), "two files of a megabyte each");
        assert!(is_over(4 << 20, 4), "three folders and two files");
        // A sparse file takes no space, and a link to a large folder has the size of a link.
        fs::File::create(below.join("sparse")).expect("a file").set_len(1 << 40).expect("its length");
        std::os::unix::fs::symlink("/", below.join("link")).expect("a link");
        assert!(!is_over(4 << 20, 100));
        assert!(!is_too_large(&dir.path().join("absent"), 0, 0));
    }
}
