//! Limits that the agent enforces on workers which do not keep to them: a worker that was taken over ends its own watchdog first.

use std::time::Duration;

use island_runtimes_worker::{
    host::folder::{MAX_BYTES, MAX_FILES, is_too_large},
    launch::Launch,
    lockdown::{WorkerMemory, most_mb},
};
use tokio::time::Instant;

use super::{Pool, memory::SHARED_MB};
use crate::worker::{Command, WorkerExit, WorkerHandle};

/// Threads that a worker may have in addition to those of its engine. The agent and all workers share the limit of the unit.
const MAX_THREADS: u64 = 1024;
/// Pools of threads that an engine may have, each with as many as it was launched with.
const POOLS: u64 = 16;
/// Time in which a worker that runs all Cargos of an engine returns the memory of a job that has ended.
const RETURN_TIME: Duration = Duration::from_secs(2);

impl Pool {
    /// Ends workers that allocated clearly more memory than they may, have too much on the disk, or too many threads.
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
    let threads = worker.memory.as_ref().and_then(WorkerMemory::threads);
    if threads.is_some_and(|threads| threads > most_threads(launch)) {
        return Some(WorkerExit::ThreadsExceeded);
    }
    is_too_large(&worker.dir, MAX_BYTES, MAX_FILES).then_some(WorkerExit::ScratchExceeded)
}

fn most_threads(launch: &Launch) -> u64 {
    MAX_THREADS + POOLS * u64::from(launch.threads)
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

#[cfg(test)]
mod tests {
    use island_protocol::{cargo::RuntimeType, ids::InstanceId};
    use island_runtimes_worker::lockdown::MIN_MEMORY_MB;

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
}
