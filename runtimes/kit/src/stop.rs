//! Cancellation of a job that reaches into a library which computes for it.
//!
//! A step of a large model takes minutes on a processor. A computation that has a way to be ended is ended by [`Stop::end_with`]; one that
//! consists of many calls checks between them ([`check`]). Both find the job by the thread on which it runs.

use std::{cell::RefCell, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;

thread_local! {
    /// The jobs that this thread computes, the innermost last: a thread of a pool may take on a job while another one waits for a part.
    static CURRENT: RefCell<Vec<Stop>> = const { RefCell::new(Vec::new()) };
}

/// Ends a computation.
type End = Arc<dyn Fn() + Send + Sync>;

/// Whether a job is cancelled, and what is to be ended then. Clones share it.
#[derive(Clone)]
pub struct Stop {
    token: CancellationToken,
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    next: u64,
    ends: Vec<(u64, End)>,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("is_cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// A computation that ends if its job is cancelled, until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, it has no effect"]
pub struct Ending<'s> {
    stop: &'s Stop,
    id: u64,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.stop.running.lock().ends.retain(|(id, _)| *id != self.id);
    }
}

/// Cancels a job on drop.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) Stop);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.token.cancel();
        self.0.end();
    }
}

impl Stop {
    /// Cancelled with `token`.
    pub fn new(token: CancellationToken) -> Self {
        Self { token, running: Arc::default() }
    }

    /// Whether the job is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// An error if the job is cancelled.
    pub fn check(&self) -> Result<(), EngineError> {
        if self.is_cancelled() { Err(EngineError::interrupted()) } else { Ok(()) }
    }

    /// Calls `end` when the job is cancelled, at once if it is already, until the result is dropped. It may be called more than once.
    pub fn end_with(&self, end: End) -> Ending<'_> {
        let mut running = self.running.lock();
        let id = running.next;
        running.next += 1;
        running.ends.push((id, Arc::clone(&end)));
        drop(running);
        // A cancellation from here on finds it in the list.
        if self.is_cancelled() {
            end();
        }
        Ending { stop: self, id }
    }

    /// Waits until the job is cancelled, and ends what computes for it.
    pub(crate) async fn end_when_cancelled(&self) {
        self.token.cancelled().await;
        self.end();
    }

    fn end(&self) {
        let ends: Vec<End> = self.running.lock().ends.iter().map(|(_, end)| Arc::clone(end)).collect();
        ends.iter().for_each(|end| end());
    }

    /// Calls `compute` as a part of this job.
    pub fn within<T>(&self, compute: impl FnOnce() -> T) -> T {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(Vec::pop);
            }
        }
        CURRENT.with_borrow_mut(|jobs| jobs.push(self.clone()));
        let _leave = Leave;
        compute()
    }
}

/// The job that this thread computes.
pub fn current() -> Option<Stop> {
    CURRENT.with_borrow(|jobs| jobs.last().cloned())
}

/// An error if the job that this thread computes is cancelled.
pub fn check() -> Result<(), EngineError> {
    CURRENT.with_borrow(|jobs| jobs.last().map_or(Ok(()), Stop::check))
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    fn counted() -> (Arc<AtomicUsize>, End) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let end = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        (count, Arc::new(end))
    }

    #[test]
    fn what_computes_is_ended_and_nothing_else() {
        let stop = Stop::new(CancellationToken::new());
        let (over, end) = counted();
        drop(stop.end_with(end));
        let (running, end) = counted();
        let _running = stop.end_with(end);
        drop(CancelOnDrop(stop.clone()));
        assert_eq!((over.load(Ordering::Relaxed), running.load(Ordering::Relaxed)), (0, 1));
        let (late, end) = counted();
        drop(stop.end_with(end));
        assert_eq!(late.load(Ordering::Relaxed), 1, "the job was cancelled before it began");
    }

    #[test]
    fn a_thread_knows_the_innermost_job() {
        let (outer, inner) = (Stop::new(CancellationToken::new()), Stop::new(CancellationToken::new()));
        inner.token.cancel();
        outer.within(|| {
            assert!(check().is_ok());
            assert!(inner.within(check).is_err());
            let within = AssertUnwindSafe(|| inner.within(|| panic!("within a job")));
            assert!(catch_unwind(within).is_err());
            assert!(check().is_ok(), "the outer job goes on");
        });
        assert!(current().is_none() && check().is_ok());
    }
}
