//! The worker's log: standard error, which is a file in its directory, up to a limit.

use std::{
    io::{self, Write as _},
    sync::atomic::{AtomicU64, Ordering},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Maximum bytes of a worker's log, so that an engine cannot fill the disk.
const MAX_LOG_BYTES: u64 = 4 << 20;
const FILTER_VARIABLE: &str = "ISLAND_WORKER_LOG";
const DEFAULT_FILTER: &str = "info,llama-cpp-2=warn,ggml=warn";

/// Starts logging. An invalid filter in the environment is replaced by the default.
pub(super) fn start() {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        // It would report a line that cannot be written, on a full disk for example, by `eprintln!`, which panics for the same reason.
        .log_internal_errors(false)
        .with_writer(Bounded { left: AtomicU64::new(MAX_LOG_BYTES) })
        .try_init();
    if started.is_err() {
        let _ = writeln!(io::stderr(), "logging was started already");
    }
}

struct Bounded {
    left: AtomicU64,
}

impl<'a> MakeWriter<'a> for Bounded {
    type Writer = BoundedWriter<'a>;
    fn make_writer(&'a self) -> BoundedWriter<'a> {
        BoundedWriter(&self.left)
    }
}

struct BoundedWriter<'a>(&'a AtomicU64);

impl io::Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = bytes.len() as u64;
        let taken =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(wanted));
        if taken.is_ok() { io::stderr().write(bytes) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
