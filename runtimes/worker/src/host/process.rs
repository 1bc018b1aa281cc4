//! A worker's process, through a handle that stays valid if the kernel reuses its process id.

#[cfg(not(target_os = "linux"))]
mod kqueue;
#[cfg(target_os = "linux")]
mod pidfd;

use std::io;

use rustix::process::{Pid, Signal};
use tokio::process::Child;

#[cfg(not(target_os = "linux"))]
use kqueue::Handle;
#[cfg(target_os = "linux")]
use pidfd::Handle;

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It has ended; only its parent knows how.
    Gone,
}

/// A worker's process. Dropping this does not end it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    handle: Handle,
    child: Option<Child>,
}

impl Process {
    /// The process of a child. One that cannot be held, as where no more files can be open, is ended.
    pub(super) fn of_child(mut child: Child) -> io::Result<Self> {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        match pid.ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(Self::of_pid) {
            Ok(process) => Ok(Self { child: Some(child), ..process }),
            Err(error) => {
                // It may have ended itself.
                let _ = child.start_kill();
                Err(error)
            }
        }
    }

    /// The process of another parent.
    pub(super) fn of_pid(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, handle: Handle::open(pid)?, child: None })
    }

    /// Its process id, for logs and for people.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Requests its end (SIGTERM): the worker cancels its jobs and exits.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Ends it (SIGKILL).
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    /// Waits for its end. Cancel safe, and may be called again.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        use std::os::unix::process::ExitStatusExt;
        let Some(child) = &mut self.child else {
            self.handle.ended().await?;
            return Ok(Exit::Gone);
        };
        let status = child.wait().await?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Gone,
        })
    }

    /// How much its threads have run since its start: nanoseconds on a processor, and how often one of them got one. `None` where the kernel
    /// does not show it.
    pub fn run_time(&self) -> Option<(u64, u64)> {
        let mut sum = (0, 0);
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid())).ok()? {
            // A thread that has just ended is left out; what it ran makes a difference all the same.
            let Ok(line) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
            let mut fields = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(ns)), Some(Ok(_)), Some(Ok(turns))) = (fields.next(), fields.next(), fields.next())
            else {
                return None;
            };
            sum = (sum.0 + ns, sum.1 + turns);
        }
        Some(sum)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.handle.signal(self.pid, signal) {
            // Already ended.
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
