//! Memory: a thread that measures what the worker has allocated and ends it beyond its limit. Address space is not limited: GPU drivers and
//! wasm reserve terabytes that they never use.

#[cfg(target_os = "macos")]
mod macos;
#[cfg(not(target_os = "macos"))]
mod procfs;

use std::{
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

#[cfg(target_os = "macos")]
use macos::Counter;
#[cfg(not(target_os = "macos"))]
use procfs::Counter;

use crate::launch::EXIT_OUT_OF_MEMORY;

/// Least limit, megabytes. A limit of 0 is that of a machine without free memory, never no limit.
pub const MIN_MEMORY_MB: u64 = 256;
/// Time between two measurements.
const PERIOD: Duration = Duration::from_millis(100);

/// Memory at which the agent ends a process with this limit, megabytes. The process's own watchdog acts at the limit, and the agent beyond it, so
/// that the reason is usually the process's own exit code.
pub fn most_mb(limit_mb: u64) -> u64 {
    let limit_mb = limit_mb.max(MIN_MEMORY_MB);
    limit_mb.saturating_add(limit_mb / 8).saturating_add(64)
}

/// Reads this process's memory, also in the sandbox.
#[derive(Debug)]
pub struct Memory {
    counter: Counter,
    resident_mb: Arc<AtomicU64>,
}

/// The memory of a worker, for the agent: what a worker reports of itself it can also make up.
#[derive(Debug)]
pub struct WorkerMemory(Counter);

impl WorkerMemory {
    /// Opens the counter of a process of this user. Must be called before the process applies its sandbox, where the system hides such
    /// processes from others.
    pub fn open(pid: u32) -> io::Result<Self> {
        Counter::of(pid).map(Self)
    }

    /// Megabytes that the process has allocated; `None` once it has ended.
    pub fn allocated_mb(&self) -> Option<u64> {
        self.0.read().map(|usage| usage.allocated >> 10)
    }

    /// Megabytes of the process that are resident, mapped files included; `None` once it has ended.
    pub fn resident_mb(&self) -> Option<u64> {
        self.0.read().map(|usage| usage.resident >> 10)
    }

    /// Number of its threads; `None` once it has ended.
    pub fn threads(&self) -> Option<u64> {
        self.0.read().map(|usage| usage.threads)
    }
}

/// Memory in kilobytes, and threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    /// Resident, mapped files included.
    resident: u64,
    /// Allocated: anonymous and shared memory, which cannot be reclaimed; swapped out or not.
    allocated: u64,
    /// Number of threads; 0 where only the process itself can be measured.
    threads: u64,
}

impl Memory {
    /// Opens the counter. Must be called before the sandbox is applied.
    pub fn open() -> io::Result<Self> {
        Ok(Self { counter: Counter::open()?, resident_mb: Arc::default() })
    }

    /// The resident memory in megabytes, updated from now on.
    pub fn resident_mb(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.resident_mb)
    }

    /// Measures until the process ends, and ends it when more than `limit_mb` are allocated, at least 256, or when it cannot be measured.
    pub fn watch(self, limit_mb: u64) -> io::Result<()> {
        let limit_mb = limit_mb.max(MIN_MEMORY_MB);
        thread::Builder::new().name("memory".into()).stack_size(64 << 10).spawn(move || {
            loop {
                let usage = self.counter.read();
                self.resident_mb.store(usage.map_or(0, |usage| usage.resident >> 10), Ordering::Relaxed);
                if let Some(problem) = problem(usage, limit_mb) {
                    // `eprintln!` would panic, and end this thread alone, if standard error is on a full disk or was replaced.
                    let _ = writeln!(io::stderr(), "out of memory: {problem}");
                    end_now();
                }
                thread::sleep(PERIOD);
            }
        })?;
        Ok(())
    }
}

/// Why the process must end, if so. Memory that cannot be measured counts as too much.
fn problem(usage: Option<Usage>, limit_mb: u64) -> Option<String> {
    let Some(usage) = usage else { return Some("what is allocated cannot be measured".to_owned()) };
    let allocated_mb = usage.allocated >> 10;
    (allocated_mb > limit_mb).then(|| format!("{allocated_mb} MB allocated, {limit_mb} MB allowed"))
}

/// Ends the process without the exit handlers of native libraries, which other threads still use.
#[expect(unsafe_code, reason = "the standard library has no exit without handlers")]
fn end_now() -> ! {
    // SAFETY: `_exit` takes no pointer and does not return.
    unsafe { libc::_exit(EXIT_OUT_OF_MEMORY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_too_much() {
        let usage = |megabytes: u64| Some(Usage { allocated: megabytes << 10, ..Usage::default() });
        assert_eq!(problem(usage(100), 100), None);
        assert!(problem(usage(101), 100).is_some_and(|problem| problem.contains("101 MB")));
        assert!(problem(None, u64::MAX).is_some());
    }

    #[test]
    fn a_limit_has_some_margin_and_is_never_infinite() {
        assert_eq!(most_mb(800), 964);
        assert_eq!(most_mb(0), most_mb(MIN_MEMORY_MB), "0 does not mean that there is no limit");
    }
}
