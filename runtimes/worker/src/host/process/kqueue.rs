//! A process on macOS: a queue that receives its end. Before each signal it is checked that the process has not ended, because its id could
//! have been reused.

use std::{io, os::fd::OwnedFd, ptr};

use rustix::{
    event::{
        PollFd, PollFlags, Timespec,
        kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent, kqueue},
        poll,
    },
    process::{Pid, Signal, kill_process},
};
use tokio::io::{Interest, unix::AsyncFd};

/// The queue.
#[derive(Debug)]
pub(super) struct Handle(AsyncFd<OwnedFd>);

impl Handle {
    #[expect(unsafe_code, reason = "registering a descriptor or an event requires that it stays open")]
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        let queue = kqueue()?;
        let end = EventFilter::Proc { pid, flags: ProcessEvents::EXIT };
        let wanted = [Event::new(end, EventFlags::ADD, ptr::null_mut())];
        let mut none: [Event; 0] = [];
        // SAFETY: the event refers to a process and has no descriptor that could be closed.
        unsafe { kevent(&queue, &wanted, &mut none, None) }?;
        // This is the only way to wait for a queue.
        let readable = Interest::READABLE;
        // SAFETY: an `OwnedFd` refers to the same open file until it is dropped, which `AsyncFd` does after deregistering it.
        Ok(Self(unsafe { AsyncFd::register_with_interest(queue, readable) }?))
    }

    pub(super) async fn ended(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }

    pub(super) fn signal(&self, pid: Pid, signal: Signal) -> rustix::io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let has_ended = poll(&mut [PollFd::new(self.0.get_ref(), PollFlags::IN)], Some(&now))? > 0;
        if has_ended { Ok(()) } else { kill_process(pid, signal) }
    }
}
