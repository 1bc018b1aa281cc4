//! Runs a future on this thread until it completes, its deadline passes or it is cancelled. A program yields at every tick, so a program
//! that only computes needs no timer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use island_runtimes_api::WorkCounter;
use tokio_util::sync::CancellationToken;

/// Time between two checks of a program that waits.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why a program was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Deadline,
    Cancelled,
}

/// The bounds of a program.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    /// Grows at every tick: a program without output is working until its deadline.
    pub(crate) work: WorkCounter,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Gives `future` its first time slice. The caller must continue it at once: nothing wakes it.
pub(crate) fn first_slice<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `future` within `bounds`.
pub(crate) fn drive<T>(
    mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    bounds: &Bounds,
) -> Result<T, Left> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if bounds.cancel.is_cancelled() {
            return Err(Left::Cancelled);
        }
        if Instant::now() >= bounds.deadline {
            return Err(Left::Deadline);
        }
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Ok(done);
        }
        bounds.work.advance(1);
        // Returns at once if the future has woken itself, as it does when it yields.
        thread::park_timeout(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::pending, pin::pin};

    fn bounds(left: Duration) -> Bounds {
        let deadline = Instant::now() + left;
        Bounds { deadline, cancel: CancellationToken::new(), work: WorkCounter::default() }
    }

    #[test]
    fn a_completed_future_returns_and_a_waiting_one_is_stopped() {
        let long = bounds(Duration::from_mins(1));
        assert_eq!(drive(pin!(async { 1 }), &long), Ok(1));
        assert_eq!(drive(pin!(pending::<()>()), &bounds(Duration::from_millis(20))), Err(Left::Deadline));
        let cancel = long.cancel.clone();
        let left = thread::scope(|scope| {
            scope.spawn(move || cancel.cancel());
            drive(pin!(pending::<()>()), &long)
        });
        assert_eq!(left, Err(Left::Cancelled));
    }
}
