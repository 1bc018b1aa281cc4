//! The memory wall: a thread that looks at what the worker has allocated and ends it past its limit. Address space is not limited:
//! GPU drivers and wasm reserve terabytes that they never touch.

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

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(100);

/// Reads this process's memory, also when the file system is out of reach by then.
#[derive(Debug)]
pub struct Memory {
    counter: Counter,
    resident_mb: Arc<AtomicU64>,
}

/// Memory in kilobytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    /// In RAM, mapped files included.
    resident: u64,
    /// Allocated: anonymous and shared memory, which no pressure takes back; swapped out or not.
    allocated: u64,
}

impl Memory {
    /// Opens the counter. To be called before the walls stand.
    pub fn open() -> io::Result<Self> {
        Ok(Self { counter: Counter::open()?, resident_mb: Arc::default() })
    }

    /// Where the resident memory, in megabytes, can be read from now on.
    pub fn resident_mb(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.resident_mb)
    }

    /// Watches for the life of the process, and ends it when more than `limit_mb` are allocated. 0 is no limit.
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
