//! Children that end when this process does, however it ends.
//!
//! Linux sends a child a signal when the thread that started it ends, but only the child itself can request that, and only between
//! fork and exec. `pre_exec` is the usual place and unsafe code, because little may be done in a copy of a process with threads. So
//! a child begins as this program again, which requests the signal at the start of `main` and then becomes the program that is
//! wanted, with the same process id. Elsewhere a child is started as it is; the next start on the folder ends what is left.

use std::path::Path;

use tokio::process::Command;

/// First argument of this program when it is to become a child's. It is not one of the command line's flags, so that neither help
/// nor completion show it.
#[cfg(target_os = "linux")]
const ARGUMENT: &str = "__dev-child";

/// A command that runs `program` with `arguments`, and ends with the thread that starts it.
#[cfg(target_os = "linux")]
pub(super) fn command(program: &Path, arguments: &[String]) -> Command {
    // The file that runs now, also after a build has replaced it.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("island").arg(ARGUMENT).arg(std::process::id().to_string()).arg(program).args(arguments);
    command
}

/// A command that runs `program` with `arguments`.
#[cfg(not(target_os = "linux"))]
pub(super) fn command(program: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Becomes a child's program if this process was started for that. Returns `None` if it was not, and an error if the program
/// cannot be run or the parent is gone already. Must be called from `main` before any thread is started.
#[cfg(target_os = "linux")]
pub(crate) fn become_child() -> Option<anyhow::Error> {
    use std::{env::args_os, ffi::OsString, os::unix::process::CommandExt as _};

    use anyhow::{Context as _, anyhow};
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

    let mut arguments = args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let parent = arguments.next().and_then(|text: OsString| Pid::from_raw(text.to_str()?.parse().ok()?));
    let program = arguments.next()?;
    // SIGTERM lets it stop in order, its own children included.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return Some(anyhow!(error).context("request a signal at the end of `island dev`"));
    }
    // A parent that ended before sends none.
    if getppid() != parent {
        return Some(anyhow!("`island dev` has ended"));
    }
    let error = std::process::Command::new(&program).args(arguments).exec();
    Err::<(), _>(error).with_context(|| format!("run {}", Path::new(&program).display())).err()
}

/// Returns `None`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn become_child() -> Option<anyhow::Error> {
    None
}
