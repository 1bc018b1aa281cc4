//! A handle on a running attempt.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use island_protocol::{
    event::{AttemptEvent, Numbered},
    fabric::{Assignment, LeasedJob},
    host::RunningJob,
    ids::AttemptKey,
    job::{Failure, Fault, Outcome},
};
use island_runtimes_api::{MAX_STEPS, Phase, Step, WorkCounter};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    attempt::state::{AttemptState, AttemptStep},
    disk::spool::{Spool, SpoolError},
};

/// A longer time is never waited for.
const LONGEST_MS: u64 = 30 * 24 * 3_600_000;
/// Maximum time of downloads that does not count against the limit of an attempt, as the coordinator allows it.
const MAX_FETCH_MS: u64 = 12 * 3_600_000;

/// One attempt, shared between its task, heartbeats, lease renewals and cancellation.
#[derive(Debug)]
pub struct AttemptHandle {
    assignment: Assignment,
    accepted_ms: u64,
    /// Time in which files were downloaded.
    fetched_ms: AtomicU64,
    state: Mutex<AttemptState>,
    spool: Mutex<Spool>,
    work: Mutex<(Phase, u64)>,
    /// What the worker reports about the steps of the run, if that was requested.
    steps: Mutex<Vec<Step>>,
    /// Send time of the last answered renewal, on the clock that counts suspended time; 0 before the first.
    confirmed_ms: AtomicU64,
    /// Event number that the coordinator requested again; `u64::MAX` without a request.
    replay_from: AtomicU64,
    wake: Notify,
    cancel: CancellationToken,
    reason: OnceLock<Failure>,
    dropped: CancellationToken,
}

impl AttemptHandle {
    /// Creates the handle of an attempt accepted at `accepted_ms`, whose lease was last confirmed at `confirmed_ms`.
    pub fn new(assignment: Assignment, spool: Spool, accepted_ms: u64, confirmed_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            assignment,
            accepted_ms,
            fetched_ms: AtomicU64::new(0),
            state: Mutex::new(AttemptState::Accepted),
            spool: Mutex::new(spool),
            work: Mutex::new((Phase::Wait, 0)),
            steps: Mutex::default(),
            confirmed_ms: AtomicU64::new(confirmed_ms),
            replay_from: AtomicU64::new(u64::MAX),
            wake: Notify::new(),
            cancel: CancellationToken::new(),
            reason: OnceLock::new(),
            dropped: CancellationToken::new(),
        })
    }

    /// Its key.
    pub fn key(&self) -> AttemptKey {
        self.assignment.key
    }

    /// Its assignment.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// How long it may still run. Wall-clock times may be wrong on both sides, so only the duration counts, without the time in which files were
    /// downloaded.
    pub fn time_left(&self, now_ms: u64) -> Duration {
        let limit = self.assignment.deadline.unix_ms().saturating_sub(self.assignment.sent_at.unix_ms());
        let passed = now_ms.saturating_sub(self.accepted_ms);
        let passed = passed.saturating_sub(self.fetched_ms.load(Ordering::Relaxed).min(MAX_FETCH_MS));
        Duration::from_millis(u64::try_from(limit).unwrap_or(0).saturating_sub(passed).min(LONGEST_MS))
    }

    /// Does not count this time against its limit: in it files were downloaded.
    pub fn add_fetched(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.fetched_ms.fetch_add(ms.min(MAX_FETCH_MS), Ordering::Relaxed);
    }

    /// Keeps what the worker reports about the steps of the run.
    pub fn note_steps(&self, mut steps: Vec<Step>) {
        steps.truncate(MAX_STEPS);
        // A worker that was taken over may have sent millions.
        steps.shrink_to_fit();
        *lock(&self.steps) = steps;
    }

    /// Takes the steps that were reported.
    pub fn take_steps(&self) -> Vec<Step> {
        std::mem::take(&mut *lock(&self.steps))
    }

    /// Its state.
    pub fn state(&self) -> AttemptState {
        *lock(&self.state)
    }

    /// Applies a step. Returns `false`, and changes nothing, if the step is not possible in the present state.
    pub fn step(&self, step: AttemptStep) -> bool {
        let mut state = lock(&self.state);
        state.after(step).is_some_and(|next| {
            *state = next;
            true
        })
    }

    /// Calls `read` with the spool.
    pub fn with_spool<T>(&self, look: impl FnOnce(&Spool) -> T) -> T {
        look(&lock(&self.spool))
    }

    /// Appends a worker's events and wakes the reporter.
    pub fn append(&self, mut events: Vec<Numbered<AttemptEvent>>) -> Result<(), SpoolError> {
        // A worker that stops because its jobs are cancelled reports only that it stopped; the reason is known here.
        if let (
            Some(Numbered {
                event: AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }, ..
            }),
            Some(why),
        ) = (events.last_mut(), self.reason())
            && failure.fault == Fault::Interrupted
        {
            *failure = why;
        }
        let done = lock(&self.spool).append(events);
        self.wake.notify_one();
        done
    }

    /// Appends an event of the agent and wakes the reporter.
    pub fn push(&self, event: AttemptEvent) -> Result<(), SpoolError> {
        let done = lock(&self.spool).push(event);
        self.wake.notify_one();
        done
    }

    /// Ends the attempt, on disk if there is space and otherwise in memory. Does nothing if it has ended.
    pub fn end(&self, event: AttemptEvent) {
        let mut spool = lock(&self.spool);
        if spool.end().is_none()
            && let Err(error) = spool.push(event.clone())
        {
            tracing::error!(key = %self.key(), %error, "the end of an attempt is kept only in memory");
            spool.push_unwritten(event);
        }
        drop(spool);
        self.wake.notify_one();
    }

    /// Records work reported by a worker.
    pub fn note_work(&self, phase: Phase, work: u64) {
        *lock(&self.work) = (phase, work);
    }

    /// Records work of the agent itself.
    pub fn note_counter(&self, counter: &WorkCounter) {
        let (phase, work) = counter.read();
        self.note_work(phase, work);
    }

    /// Records that the answer to a request sent at `sent_ms` confirmed the lease.
    pub fn confirm(&self, sent_ms: u64) {
        self.confirmed_ms.fetch_max(sent_ms, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Whether nothing may be published, because the lease has not been confirmed for `limit_ms`.
    pub fn is_fenced(&self, now_ms: u64, limit_ms: u64) -> bool {
        now_ms.saturating_sub(self.confirmed_ms.load(Ordering::Relaxed)) > limit_ms
    }

    /// Requests that events from number `from` are sent again.
    pub fn replay(&self, from: u64) {
        self.replay_from.fetch_min(from, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Takes the request of [`AttemptHandle::replay`].
    pub fn take_replay(&self) -> Option<u64> {
        let from = self.replay_from.swap(u64::MAX, Ordering::Relaxed);
        (from != u64::MAX).then_some(from)
    }

    /// Resolves when there may be something new to report. For one waiter; a wake between two waits is kept.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Cancels the attempt with `failure`; the first reason counts.
    pub fn cancel(&self, failure: Failure) {
        let _ = self.reason.set(failure);
        self.cancel.cancel();
    }

    /// Triggered by [`AttemptHandle::cancel`].
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// The reason for which it was cancelled.
    pub fn reason(&self) -> Option<Failure> {
        self.reason.get().cloned()
    }

    /// Stops the attempt without publishing anything more.
    pub fn forget(&self) {
        self.dropped.cancel();
    }

    /// Triggered by [`AttemptHandle::forget`].
    pub fn forgotten(&self) -> &CancellationToken {
        &self.dropped
    }

    /// Its entry in a lease renewal.
    pub fn leased(&self) -> LeasedJob {
        let (phase, work) = *lock(&self.work);
        let spool = lock(&self.spool);
        let phase = if spool.end().is_some() { "ended" } else { phase.as_str() };
        LeasedJob { key: self.key(), phase: phase.to_owned(), work, last_event: spool.next() - 1 }
    }

    /// Its entry in a heartbeat.
    pub fn running(&self, now_ms: u64) -> RunningJob {
        RunningJob {
            key: self.key(),
            slug: self.assignment.cargo.slug.clone(),
            phase: self.state().as_str().to_owned(),
            duration_ms: now_ms.saturating_sub(self.accepted_ms),
            last_event: self.with_spool(Spool::next) - 1,
        }
    }
}

/// No panic happens while one of these locks is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use island_protocol::time::Timestamp;

    use super::*;
    use crate::{clock, testing};

    fn attempt(folder: &std::path::Path) -> Arc<AttemptHandle> {
        let assignment = testing::assignment(1, 1);
        let spool = Spool::open(folder, assignment.key, 1).expect("open");
        AttemptHandle::new(assignment, spool, 1000, 1000)
    }

    #[test]
    fn of_a_workers_steps_a_limited_number_is_kept() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let attempt = attempt(folder.path());
        let step = |at| Step { phase: Phase::Run, begin_us: at, length_us: 1 };
        attempt.note_steps((0..100 * MAX_STEPS as u64).map(step).collect());
        let steps = attempt.take_steps();
        assert_eq!(steps.len(), MAX_STEPS);
        assert!(steps.capacity() < 2 * MAX_STEPS, "the memory of the others is returned");
    }

    #[test]
    fn an_unconfirmed_lease_fences_until_the_next_answer() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let attempt = attempt(folder.path());
        assert!(!attempt.is_fenced(25_000, 24_000));
        assert!(attempt.is_fenced(25_001, 24_000));
        attempt.confirm(20_000);
        assert!(!attempt.is_fenced(25_001, 24_000));
        attempt.confirm(10_000);
        assert!(!attempt.is_fenced(44_000, 24_000), "an older answer does not revoke the confirmation");
    }

    #[test]
    fn a_deadline_is_a_duration_whatever_the_wall_clocks_show() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for hour in [-1, 0, 1, 480_000] {
            let mut assignment = testing::assignment(1, 1);
            let sent = clock::now().unix_ms() + hour * 3_600_000;
            assignment.sent_at = Timestamp::from_unix_ms(sent);
            assignment.deadline = Timestamp::from_unix_ms(sent + 60_000);
            let spool = Spool::open(folder.path(), assignment.key, 1).expect("open");
            let attempt = AttemptHandle::new(assignment, spool, 5_000, 5_000);
            assert_eq!(attempt.time_left(15_000), Duration::from_secs(50));
            assert_eq!(attempt.time_left(65_000), Duration::ZERO);
        }
    }

    #[test]
    fn downloads_do_not_count_against_the_limit() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut assignment = testing::assignment(1, 1);
        assignment.sent_at = Timestamp::from_unix_ms(0);
        assignment.deadline = Timestamp::from_unix_ms(60_000);
        let spool = Spool::open(folder.path(), assignment.key, 1).expect("open");
        let attempt = AttemptHandle::new(assignment, spool, 5_000, 5_000);
        attempt.add_fetched(Duration::from_mins(10));
        assert_eq!(attempt.time_left(615_000), Duration::from_secs(50));
        attempt.add_fetched(Duration::from_hours(1000));
        assert_eq!(attempt.time_left(65_000 + MAX_FETCH_MS), Duration::ZERO, "there is a limit");
    }

    #[test]
    fn the_earliest_replay_counts_once() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let attempt = attempt(folder.path());
        attempt.replay(7);
        attempt.replay(3);
        attempt.replay(9);
        assert_eq!((attempt.take_replay(), attempt.take_replay()), (Some(3), None));
    }
}
