//! State shared by the server, the runs and the connection.

use std::collections::BTreeMap;

use island_protocol::{
    event::AttemptEvent,
    ids::AttemptKey,
    job::{Failure, Outcome},
};
use island_runtimes_api::WorkCounter;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::attempt::Attempt;
use crate::frame::{FromWorker, HeldJob, JobWork};

/// Returns the latest value of a watch channel, with no lock held: a guard that lives across a call deadlocks once a sender waits.
#[expect(clippy::disallowed_methods, reason = "the guard ends with the clone")]
pub(super) fn latest<T: Clone>(channel: &watch::Receiver<T>) -> T {
    channel.borrow().clone()
}

/// The state of loading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LoadState {
    Loading { done: u64, total: u64 },
    Ready { version: String, slots: u32, vram_mb: u64 },
    Failed(Failure),
}

impl LoadState {
    pub(super) fn frame(&self) -> FromWorker {
        match self.clone() {
            Self::Loading { done, total } => FromWorker::Loading { done, total },
            Self::Ready { version, slots, vram_mb } => FromWorker::Ready { version, slots, vram_mb },
            Self::Failed(failure) => FromWorker::LoadFailed { failure },
        }
    }
}

/// The handles that a new run needs.
#[derive(Debug, Clone)]
pub(super) struct RunHandles {
    pub(super) cancel: CancellationToken,
    pub(super) work: WorkCounter,
}

/// All attempts. The lock is held for a few instructions, never across an await.
#[derive(Debug, Default)]
pub(super) struct State {
    attempts: Mutex<BTreeMap<AttemptKey, Attempt>>,
    /// Notified when something can be sent, or an attempt was added.
    pub(super) changed: Notify,
}

impl State {
    fn attempts(&self) -> MutexGuard<'_, BTreeMap<AttemptKey, Attempt>> {
        self.attempts.lock()
    }

    /// Adds an attempt; `None` if it is already here.
    pub(super) fn admit(
        &self,
        key: AttemptKey,
        first_event: u64,
        max_output_bytes: u64,
        reports_steps: bool,
    ) -> Option<RunHandles> {
        let mut attempts = self.attempts();
        if attempts.contains_key(&key) {
            return None;
        }
        let attempt = Attempt::new(first_event, max_output_bytes, reports_steps);
        let handles = RunHandles { cancel: attempt.cancel.clone(), work: attempt.work.clone() };
        attempts.insert(key, attempt);
        // Pulses are sent more often from now on.
        self.changed.notify_one();
        Some(handles)
    }

    pub(super) fn append(&self, key: AttemptKey, event: AttemptEvent) {
        if let Some(attempt) = self.attempts().get_mut(&key) {
            attempt.append(event);
        }
        self.changed.notify_one();
    }

    pub(super) fn end(&self, key: AttemptKey, outcome: Outcome) {
        if let Some(attempt) = self.attempts().get_mut(&key) {
            attempt.end(outcome);
        }
        self.changed.notify_one();
    }

    pub(super) fn stop(&self, key: AttemptKey, failure: Failure) {
        if let Some(attempt) = self.attempts().get_mut(&key).filter(|attempt| !attempt.outbox.ended()) {
            attempt.stop(failure);
        }
    }

    pub(super) fn stop_all(&self, failure: &Failure) {
        for attempt in self.attempts().values_mut().filter(|attempt| !attempt.outbox.ended()) {
            attempt.stop(failure.clone());
        }
    }

    /// Requests this attempt's events from `from` on.
    pub(super) fn replay(&self, key: AttemptKey, from: u64) {
        if let Some(attempt) = self.attempts().get_mut(&key) {
            attempt.cursor = Some(from);
        }
        self.changed.notify_one();
    }

    /// A new connection starts: it has requested nothing yet.
    pub(super) fn forget_cursors(&self) {
        for attempt in self.attempts().values_mut() {
            attempt.cursor = None;
        }
    }

    /// The agent has spooled events below `below`.
    pub(super) fn spooled(&self, key: AttemptKey, below: u64) {
        let mut attempts = self.attempts();
        if attempts.get_mut(&key).is_some_and(|attempt| attempt.outbox.forget(below)) {
            attempts.remove(&key);
        }
    }

    /// Whether no attempt is left, including those whose end must still be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.attempts().is_empty()
    }

    /// Returns the next frames for the connection, one for each attempt with events to send.
    pub(super) fn take_batches(&self) -> Vec<FromWorker> {
        let mut frames = Vec::new();
        for (&key, attempt) in self.attempts().iter_mut() {
            let Some(from) = attempt.cursor else { continue };
            let events = attempt.outbox.batch(from);
            let Some(last) = events.last() else { continue };
            attempt.cursor = Some(last.n + 1);
            // The agent needs them before the end, with which it forgets the attempt.
            frames.extend(attempt.take_steps().map(|steps| FromWorker::Steps { key, steps }));
            frames.push(FromWorker::Events { key, events });
        }
        frames
    }

    pub(super) fn held(&self) -> Vec<HeldJob> {
        let held = |(&key, attempt): (&AttemptKey, &Attempt)| HeldJob {
            key,
            oldest_event: attempt.outbox.oldest(),
            next_event: attempt.outbox.next(),
        };
        self.attempts().iter().map(held).collect()
    }

    pub(super) fn work(&self) -> Vec<JobWork> {
        let running = |(&key, attempt): (&AttemptKey, &Attempt)| {
            let (phase, work) = attempt.work.read();
            (!attempt.outbox.ended()).then_some(JobWork { key, phase, work })
        };
        self.attempts().iter().filter_map(running).collect()
    }
}
