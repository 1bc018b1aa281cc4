//! The current attempt of a job: its Islands, its lease, and what it has done.

use std::time::Duration;

use island_protocol::{
    fabric::LeasedJob,
    ids::{AttemptKey, HostId},
};
use tokio::time::Instant;

use island_coordinator_domain::lease::{Lease, LeaseTimeouts, Verdict};

/// Phase of a renewal while files are downloaded.
const FETCH: &str = "fetch";
/// Maximum time of downloads that does not count against the time limit: a day's traffic of a slow line. A download without progress is a
/// stall long before.
const MAX_FETCH: Duration = Duration::from_hours(12);

/// The Islands of an attempt. The leader gets the assignment, sends the output and renews the lease; members compute
/// for it. Placement chooses a leader alone so far. Only the leader is in the job's row: members that a restarted
/// coordinator does not know stop when their leader does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub leader: HostId,
    pub members: Vec<HostId>,
}

impl Hosts {
    /// One Island.
    pub(crate) fn one(leader: HostId) -> Self {
        Self { leader, members: Vec::new() }
    }

    /// All Islands, the leader first.
    pub(super) fn all(&self) -> impl Iterator<Item = HostId> {
        std::iter::once(self.leader).chain(self.members.iter().copied())
    }
}

/// The current attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    key: AttemptKey,
    hosts: Hosts,
    lease: Lease,
    is_accepted: bool,
    /// Whether another run of a coordinator may have offered it before.
    is_repeated: bool,
    /// Whether events are missing, or may be.
    has_gap: bool,
    /// Number of the event that the log waited for when the lease was last renewed.
    expected: u64,
    /// When the connection was established in which the lease was last renewed.
    connected_since: Instant,
    /// When it must have ended.
    deadline: Option<Instant>,
    /// Time of downloads that did not count.
    fetched: Duration,
    /// Since when it executes.
    executes: Option<Instant>,
    /// Model tokens delivered before it.
    tokens_before: u64,
}

impl Attempt {
    /// An attempt that is about to be offered.
    pub(super) fn new(key: AttemptKey, hosts: Hosts, tokens_before: u64, now: Instant) -> Self {
        Self {
            key,
            hosts,
            lease: Lease::new(now),
            is_accepted: false,
            is_repeated: false,
            has_gap: false,
            expected: 0,
            connected_since: now,
            deadline: None,
            fetched: Duration::ZERO,
            executes: None,
            tokens_before,
        }
    }

    /// An attempt that another run of a coordinator offered. Its Island is requested to send what the log lacks.
    pub(super) fn resume(&mut self, deadline: Option<Instant>) {
        (self.is_accepted, self.has_gap, self.deadline) = (true, true, deadline);
    }

    /// An attempt that another run of a coordinator committed, and may have offered. It is offered again, under the same
    /// key: an Island that has it accepts it and goes on.
    pub(super) fn repeat_offer(&mut self) {
        (self.is_repeated, self.has_gap) = (true, true);
    }

    /// Whether the answer to an offer that may be the second one is awaited.
    pub(super) fn awaits_repeated_offer(&self) -> bool {
        self.is_repeated && !self.is_accepted
    }

    pub(super) fn key(&self) -> AttemptKey {
        self.key
    }

    pub(super) fn leader(&self) -> HostId {
        self.hosts.leader
    }

    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn tokens_before(&self) -> u64 {
        self.tokens_before
    }

    /// Records that its Island has accepted it. Returns `false` if that was known.
    pub(super) fn accept(&mut self, deadline: Option<Instant>) -> bool {
        if self.is_accepted {
            return false;
        }
        (self.is_accepted, self.deadline) = (true, deadline);
        true
    }

    /// Records that it executes.
    pub(super) fn execute(&mut self, now: Instant) {
        self.executes.get_or_insert(now);
    }

    /// Time since it executes.
    pub(super) fn executed(&self, now: Instant) -> Duration {
        self.executes.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Records that events arrived, and whether some are missing before others.
    pub(super) fn progress(&mut self, has_gap: bool, now: Instant) {
        self.lease.progressed(now);
        self.has_gap |= has_gap;
    }

    /// Renews the lease. Returns whether the Island has to send its events again, from `next` on, which is the number
    /// of the event that the log waits for, and by how much the deadline was moved because files were downloaded: the time limit of a job is that of
    /// its computation.
    pub(super) fn renew(
        &mut self,
        job: &LeasedJob,
        next: u64,
        connected_since: Instant,
        now: Instant,
    ) -> (bool, Duration) {
        let is_fetching = self.lease.phase() == Some(FETCH) && job.phase == FETCH && self.executes.is_none();
        let passed = now.saturating_duration_since(self.lease.renewed());
        let moved =
            if is_fetching { passed.min(MAX_FETCH.saturating_sub(self.fetched)) } else { Duration::ZERO };
        self.fetched += moved;
        self.deadline = self.deadline.map(|deadline| deadline + moved);
        self.lease.renew(now, &job.phase, job.work);
        // Events may be in flight; they are requested again only if they should have arrived by now.
        let is_overdue = self.has_gap || self.expected == next || self.connected_since < connected_since;
        self.expected = next;
        self.connected_since = self.connected_since.max(connected_since);
        self.has_gap = false;
        (job.last_event >= next && is_overdue, moved)
    }

    /// Why it is lost, if it is. `resumed` is since when its messages could arrive without interruption.
    pub(super) fn verdict(
        &self,
        resumed: Instant,
        timeouts: &LeaseTimeouts,
        now: Instant,
    ) -> Option<Verdict> {
        if self.is_accepted { self.lease.verdict(now, resumed, timeouts) } else { None }
    }
}
