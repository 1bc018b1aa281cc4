//! Processes of this machine that are not our children, addressed so that a recycled process id is never signalled.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// Interval between checks whether a process still exists.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the system gets to end a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A process. The time of its start distinguishes it from any other with the same id, before or after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    started: String,
}

impl Process {
    /// The process that runs as `pid` now. Returns `None` if there is no such process, or one that has ended and was not waited for.
    pub(super) fn running(pid: Pid) -> Option<Self> {
        Some(Self { pid, started: system::started(pid)? })
    }

    /// Whether it is still there.
    pub(super) fn is_running(&self) -> bool {
        Self::running(self.pid).as_ref() == Some(self)
    }

    /// Its arguments, the program first; none once it has ended.
    pub(super) fn arguments(&self) -> Vec<String> {
        let arguments = system::arguments(self.pid);
        if self.is_running() { arguments } else { Vec::new() }
    }

    /// Writes it to `path`: the process id on the first line, the time of its start on the second.
    pub(super) fn record(&self, path: &Path) -> io::Result<()> {
        fs::write(path, format!("{}\n{}\n", self.pid, self.started))
    }

    /// The process that `path` records. Returns `None` without a record that can be read.
    pub(super) fn recorded(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (pid, started) = text.trim_end().split_once('\n')?;
        Some(Self { pid: Pid::from_raw(pid.parse().ok()?)?, started: started.to_owned() })
    }

    /// Asks it to stop, kills it after `grace`, and waits until it is gone. `name` is for the error.
    pub(super) async fn end(&self, name: &str, grace: Duration) -> Result<()> {
        let left = || {
            format!("{name}, process {}, was left by an earlier `island dev` and cannot be ended", self.pid)
        };
        for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, KILL_LIMIT)] {
            system::signal(self, signal).with_context(left)?;
            // A suspended process receives no signal before it continues.
            system::signal(self, Signal::CONT).with_context(left)?;
            let end = Instant::now() + limit;
            while Instant::now() < end {
                if !self.is_running() {
                    return Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        bail!("{}: it was killed and is still there", left())
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::{fs, io};

    use rustix::{
        io::Errno,
        process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    };

    use super::Process;

    /// When a process started: the boot, and the clock ticks since.
    pub(super) fn started(pid: Pid) -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(format!("{} {}", boot.trim(), ticks(&stat)?))
    }

    /// The start in a line of `/proc/PID/stat`. Returns `None` for a process that has ended and was not waited for. The second field
    /// is the program's name in parentheses, which may contain anything, parentheses included.
    fn ticks(stat: &str) -> Option<u64> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?;
        let start = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(start)
    }

    pub(super) fn arguments(pid: Pid) -> Vec<String> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.split_terminator('\0').map(str::to_owned).collect()
    }

    /// Sends a signal; does nothing if the process is gone.
    pub(super) fn signal(process: &Process, signal: Signal) -> io::Result<()> {
        let gone = |error: Errno| if error == Errno::SRCH { Ok(()) } else { Err(error.into()) };
        // The handle refers to one process; its identity is checked while the handle is held.
        let handle = match pidfd_open(process.pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(error) => return gone(error),
        };
        if process.is_running() { pidfd_send_signal(&handle, signal).or_else(gone) } else { Ok(()) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_start_is_found_behind_any_name() {
            let line = |name: &str, state: &str| {
                let fields: Vec<_> = (4..=52).map(|field| field.to_string()).collect();
                format!("77 ({name}) {state} {}\n", fields.join(" "))
            };
            for name in ["nats-server", "a b", "x) R 1 2 3", ""] {
                assert_eq!(ticks(&line(name, "S")), Some(22), "{name}");
                assert_eq!(ticks(&line(name, "Z")), None, "{name}");
            }
            assert_eq!(ticks(""), None);
            assert_eq!(ticks("1 (x) S 4 5"), None);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::{io, process::Command};

    use rustix::process::{Pid, Signal, kill_process};

    use super::Process;

    pub(super) fn started(pid: Pid) -> Option<String> {
        let line = ask(pid, "stat=,lstart=")?;
        let (state, start) = line.split_once(' ')?;
        (!state.starts_with('Z')).then(|| start.trim().to_owned())
    }

    pub(super) fn arguments(pid: Pid) -> Vec<String> {
        ask(pid, "command=").map(|line| line.split(' ').map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Sends a signal; does nothing if the process is gone.
    pub(super) fn signal(process: &Process, signal: Signal) -> io::Result<()> {
        if process.is_running() { Ok(kill_process(process.pid, signal)?) } else { Ok(()) }
    }

    fn ask(pid: Pid, what: &str) -> Option<String> {
        let answer = Command::new("ps").args(["-p", &pid.to_string(), "-o", what]).output().ok()?;
        let line = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A process that has replaced the image of its parent: an answer shows it, the return of `spawn` does not.
    async fn waiter() -> (tokio::process::Child, Process) {
        let mut command = tokio::process::Command::new("cat");
        let piped = std::process::Stdio::piped;
        let mut child =
            command.arg("-u").stdin(piped()).stdout(piped()).kill_on_drop(true).spawn().expect("cat");
        child.stdin.as_mut().expect("piped").write_all(b"x").await.expect("write");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).await.expect("an answer");
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("a process id");
        (child, Process::running(pid).expect("it runs"))
    }

    #[tokio::test]
    async fn a_process_is_ended_and_known_to_be_gone() {
        let (mut child, process) = waiter().await;
        assert!(process.is_running() && process.arguments() == ["cat", "-u"]);
        // A suspended process receives no signal before it continues.
        rustix::process::kill_process(process.pid, Signal::STOP).expect("suspend it");
        process.end("cat", Duration::from_mins(1)).await.expect("end");
        assert!(
            !process.is_running() && process.arguments().is_empty(),
            "it has ended and was not waited for"
        );
        assert!(!child.wait().await.expect("wait").success());
        process.end("cat", Duration::from_mins(1)).await.expect("ending it again does nothing");
    }

    #[tokio::test]
    async fn another_process_with_the_same_id_is_left_alone() {
        let (mut child, process) = waiter().await;
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("x.pid");
        process.record(&path).expect("record");
        assert_eq!(Process::recorded(&path).as_ref(), Some(&process));
        fs::write(&path, format!("{}\nanother boot 5\n", process.pid)).expect("write");
        let earlier = Process::recorded(&path).expect("a record");
        assert!(!earlier.is_running() && earlier.arguments().is_empty());
        earlier.end("cat", Duration::from_mins(1)).await.expect("nothing to end");
        assert!(child.try_wait().expect("ask").is_none(), "it still runs");
        for text in ["", "77", "x\ny\n", "0\nstart\n"] {
            fs::write(&path, text).expect("write");
            assert_eq!(Process::recorded(&path), None, "{text:?}");
        }
    }
}
