//! Memory: a thread that measures what the worker has allocated and ends it beyond its limit. Address space is not limited: GPU drivers and
//! wasm reserve terabytes that they never use.

#[cfg(target_os = "macos")]
mod macos;
#[cfg(not(target_os = "macos"))]
mod procfs;

use std::{
    io,
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

/// Time between two measurements.
const PERIOD: Duration = Duration::from_millis(100);

/// Reads this process's memory, also in the sandbox.
#[derive(Debug)]
pub struct Memory {
    counter: Counter,
    resident_mb: Arc<AtomicU64>,
}

/// Memory in kilobytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    /// Resident, mapped files included.
    resident: u64,
    /// Allocated: anonymous and shared memory, which cannot be reclaimed; swapped out or not.
    allocated: u64,
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

    /// Measures until the process ends, and ends it when more than `limit_mb` are allocated. 0 means no limit.
    pub fn watch(self, limit_mb: u64) -> io::Result<()> {
        thread::Builder::new().name("memory".into()).stack_size(64 << 10).spawn(move || {
            loop {
                let usage = self.counter.read();
                self.resident_mb.store(usage.resident >> 10, Ordering::Relaxed);
                if limit_mb > 0 && usage.allocated >> 10 > limit_mb {
                    eprintln!("out of memory: {} MB allocated, {limit_mb} MB allowed", usage.allocated >> 10);
                    end_now();
                }
                thread::sleep(PERIOD);
            }
        })?;
        Ok(())
    }
}

/// Ends the process without the exit handlers of native libraries, which other threads still use.
#[expect(unsafe_code, reason = "the standard library has no exit without handlers")]
fn end_now() -> ! {
    // SAFETY: `_exit` takes no pointer and does not return.
    unsafe { libc::_exit(EXIT_OUT_OF_MEMORY) }
}
