//! A process on Linux: a descriptor that always refers to this process.

use std::{io, os::fd::OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

/// The descriptor.
#[derive(Debug)]
pub(super) struct Handle(AsyncFd<OwnedFd>);

impl Handle {
    #[expect(unsafe_code, reason = "registering a descriptor requires that it stays open")]
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        let opened = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        // SAFETY: an `OwnedFd` refers to the same open file until it is dropped, which `AsyncFd` does after deregistering it.
        Ok(Self(unsafe { AsyncFd::register(opened) }?))
    }

    pub(super) async fn ended(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }

    pub(super) fn signal(&self, _pid: Pid, signal: Signal) -> rustix::io::Result<()> {
        pidfd_send_signal(self.0.get_ref(), signal)
    }
}
