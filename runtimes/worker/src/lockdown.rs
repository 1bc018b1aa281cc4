//! The walls around a worker, raised while it has one thread and before it reads an untrusted byte.
//!
//! What cannot be built on this kernel is named in the report, never passed over.

#[cfg(target_os = "linux")]
mod files;
mod gpu;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod syscalls;
mod watchdog;

use std::path::PathBuf;

use island_protocol::host::SandboxReport;

pub use watchdog::Memory;

/// What an engine must still reach once it is locked in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Files and folders it reads.
    pub read: Vec<PathBuf>,
    /// Folders it writes in.
    pub write: Vec<PathBuf>,
    /// Folders with libraries it may still load; empty once all are loaded, and then no memory becomes executable.
    pub libraries: Vec<PathBuf>,
    /// Device nodes it drives; with any, driver calls (`ioctl`) are allowed.
    pub devices: Vec<PathBuf>,
    /// Whether it makes or maps code of its own: memory may become executable, and files without a name be made.
    pub code: bool,
    /// Whether it connects to programs of this machine by Unix sockets; what they let it do is their affair.
    pub local_sockets: bool,
    /// Seconds of processor time it may use; 0 is no limit.
    pub cpu_s: u64,
}

impl Profile {
    /// Whether code may still become executable.
    #[cfg(target_os = "linux")]
    fn loads_code(&self) -> bool {
        self.code || !self.libraries.is_empty() || !self.devices.is_empty()
    }
}

/// Raises the walls. The watchdog's memory counter reads its file before that, and works on inside.
#[cfg(target_os = "linux")]
pub fn apply(profile: &Profile) -> SandboxReport {
    use island_protocol::host::SandboxLevel;
    let mut report = SandboxReport::default();
    let mut stand = |wall: &str, built: Result<(), String>| match built {
        Ok(()) => report.walls.push(wall.to_owned()),
        Err(reason) => report.missing.push(format!("{wall}: {reason}")),
    };
    stand("limits", limits::set(profile.cpu_s));
    let files = files::confine(profile);
    let whole = files.is_ok();
    stand("landlock", files);
    let calls = syscalls::confine(profile);
    let calls_confined = calls.is_ok();
    stand("seccomp", calls);
    if calls_confined {
        stand("no-network", Ok(()));
    }
    stand("memory-watchdog", Ok(()));
    report.level = match (whole, calls_confined) {
        (true, true) if report.missing.is_empty() => SandboxLevel::Full,
        (false, false) => SandboxLevel::None,
        _ => SandboxLevel::Partial,
    };
    report
}

/// No walls are built on this system yet.
#[cfg(not(target_os = "linux"))]
pub fn apply(_profile: &Profile) -> SandboxReport {
    let missing = vec!["landlock, seccomp: this system is not Linux".to_owned()];
    SandboxReport { missing, ..SandboxReport::default() }
}
