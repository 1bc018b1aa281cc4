//! The sandbox of a worker, applied while it has one thread and before it reads an untrusted byte.
//!
//! Parts that this kernel does not support are listed in the report.

#[cfg(target_os = "linux")]
mod files;
mod gpu;
#[cfg(target_os = "linux")]
mod limits;
mod nodes;
#[cfg(target_os = "linux")]
mod syscalls;
mod watchdog;

use std::path::PathBuf;

use island_protocol::host::{SandboxLevel, SandboxReport};

pub use watchdog::{MIN_MEMORY_MB, Memory, WorkerMemory, most_mb};

/// What an engine must be able to access in the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Files and folders that it reads.
    pub read: Vec<PathBuf>,
    /// Folders of which it reads the names in them, and not the files.
    pub listed: Vec<PathBuf>,
    /// Folders that it writes in.
    pub write: Vec<PathBuf>,
    /// Folders with libraries that it may still load; empty once all are loaded, and then no memory becomes executable.
    pub libraries: Vec<PathBuf>,
    /// Device nodes that it uses.
    pub devices: Vec<PathBuf>,
    /// Whether drivers run in it: system calls that they need are allowed, such as `ioctl`, facts about this process are readable, and memory may
    /// become executable.
    pub drivers: bool,
    /// Whether a driver names its threads through their files in `/proc/self/task`, as NVIDIA's does. Beside those files are the machine's network
    /// connections, which are readable then.
    pub names_threads: bool,
    /// Whether it generates or maps code: memory may become executable, and files without a name be created.
    pub code: bool,
    /// Whether it connects to programs on this machine through Unix sockets; what they allow is not restricted.
    pub local_sockets: bool,
    /// Limit of processor time, seconds; 0 means none.
    pub cpu_s: u64,
    /// Newest version of Landlock's interface to use; 0 means the newest that is known. For tests of what an older kernel confines.
    pub landlock_abi: u32,
}

impl Profile {
    /// Whether memory may still become executable.
    #[cfg(target_os = "linux")]
    fn loads_code(&self) -> bool {
        self.code || !self.libraries.is_empty() || self.drivers
    }
}

/// Applies the sandbox to this process. The memory counter opens its file before that, and reads it inside.
///
/// Landlock and seccomp confine a thread and those that it starts later. If others run already, such as those of a driver, the level is
/// not full.
pub fn apply(profile: &Profile) -> SandboxReport {
    let threads = threads();
    with_threads(confine(profile), threads)
}

/// The report of a process that had this number of threads before; `None` if it is unknown.
fn with_threads(mut report: SandboxReport, threads: Option<usize>) -> SandboxReport {
    let problem = match threads {
        Some(1) => return report,
        Some(more) => {
            format!("{} were started earlier and are not confined", more.saturating_sub(1))
        }
        None => "their number cannot be read from /proc/self/task".to_owned(),
    };
    report.missing.push(format!("one thread: {problem}"));
    report.level = report.level.min(SandboxLevel::Partial);
    report
}

/// Returns the sandbox that this kernel supports, without confining the other threads of this process.
pub fn supported() -> SandboxReport {
    let confined = std::thread::spawn(|| confine(&Profile::default())).join();
    confined.unwrap_or_else(|_| SandboxReport {
        missing: vec!["the thread ended".to_owned()],
        ..SandboxReport::default()
    })
}

/// Number of threads of this process; `None` if it is unknown.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

#[cfg(target_os = "linux")]
fn confine(profile: &Profile) -> SandboxReport {
    let mut report = SandboxReport::default();
    let mut add = |layer: &str, applied: Result<(), String>| match applied {
        Ok(()) => report.layers.push(layer.to_owned()),
        Err(reason) => report.missing.push(format!("{layer}: {reason}")),
    };
    add("limits", limits::set(profile.cpu_s));
    let files = files::confine(profile);
    let files_confined = files.is_ok();
    add("landlock", files);
    let calls = syscalls::confine(profile);
    let calls_confined = calls.is_ok();
    add("seccomp", calls);
    if calls_confined {
        add("no-network", Ok(()));
    }
    add("memory-watchdog", Ok(()));
    report.level = match (files_confined, calls_confined) {
        (true, true) if report.missing.is_empty() => SandboxLevel::Full,
        (false, false) => SandboxLevel::None,
        _ => SandboxLevel::Partial,
    };
    report
}

/// There is no sandbox for this system yet.
#[cfg(not(target_os = "linux"))]
fn confine(_profile: &Profile) -> SandboxReport {
    let missing = vec!["landlock, seccomp: this system is not Linux".to_owned()];
    SandboxReport { missing, ..SandboxReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_not_confined_or_cannot_be_counted_are_no_full_sandbox() {
        let full = || SandboxReport { level: SandboxLevel::Full, ..SandboxReport::default() };
        assert_eq!(with_threads(full(), Some(1)), full());
        for threads in [Some(2), Some(0), None] {
            let report = with_threads(full(), threads);
            assert_eq!(report.level, SandboxLevel::Partial, "{threads:?}");
            assert_eq!(report.missing.len(), 1, "{threads:?}");
        }
        let none = SandboxReport::default();
        assert_eq!(with_threads(none, None).level, SandboxLevel::None, "it is never raised");
        assert!(!cfg!(target_os = "linux") || threads().is_some_and(|threads| threads > 0));
    }
}
