//! The database: rows, compare-and-set, books.

use std::collections::{BTreeMap, BTreeSet};

use island_protocol::{
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{AccountId, AttemptKey, HostId, InstanceId, JobId},
    job::JobStatus,
};

use crate::machine::{EndWrite, Write};
use island_coordinator_domain::{
    job::{Canceller, Job},
    ledger::{Book, Earner, Kind, Posting},
    peers::{PeerHeartbeat, Share},
};

/// A job as stored.
#[derive(Debug)]
pub(super) struct Row {
    pub job: Job,
    pub coordinator: InstanceId,
    pub events: Vec<Numbered<JobEvent>>,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Committed(Vec<(HostId, MicroCredits)>),
    Superseded,
}

#[derive(Debug, Default)]
pub(super) struct Database {
    pub rows: BTreeMap<JobId, Row>,
    pub books: BTreeMap<Book, MicroCredits>,
    /// Heartbeat counters of the coordinators.
    pub coordinators: BTreeMap<InstanceId, i64>,
    /// Accounts of the Islands, as far as coordinators find them.
    pub owners: BTreeMap<HostId, AccountId>,
    /// Accounts of all Islands that were enrolled.
    pub accounts: BTreeMap<HostId, AccountId>,
    /// Number of ends written for each job.
    pub ends: BTreeMap<JobId, u32>,
    /// Number of entries of the audit log about the cancellation of each job.
    pub recorded: BTreeMap<JobId, u32>,
    /// What each job has cost, by the books.
    pub settled: BTreeMap<JobId, MicroCredits>,
}

impl Database {
    fn post(&mut self, posting: &Posting) {
        for (book, amount) in posting.entries() {
            *self.books.entry(book).or_default() += amount;
        }
    }

    pub(super) fn grant(&mut self, account: AccountId, amount: MicroCredits) {
        self.post(&Posting::grant(account, amount));
    }

    /// Limits an end to Islands whose owners are found, as a coordinator does before it writes it.
    pub(super) fn find_earners(&self, end: &mut EndWrite) {
        end.shares.retain(|(host, _)| self.owners.contains_key(host));
        end.set_charged(end.shares.iter().map(|(_, share)| *share).sum());
    }

    /// Stores a new job with its hold.
    pub(super) fn accept(&mut self, job: Job, coordinator: InstanceId) {
        self.post(&Posting::hold(job.account, job.price));
        self.rows.insert(job.id, Row { events: job.head.clone(), job, coordinator });
    }

    pub(super) fn write(&mut self, write: &Write, coordinator: InstanceId) -> Outcome {
        match write {
            Write::Attempt(attempt) => {
                let Some(row) = self.rows.get_mut(&attempt.from.job_id) else { return Outcome::Superseded };
                let key = row.job.key();
                // A repeated write whose first reply was lost matches, too.
                let matches = key == attempt.from || key == attempt.to;
                if row.coordinator != coordinator || row.job.status.is_final() || !matches {
                    return Outcome::Superseded;
                }
                let AttemptKey { attempt: number, epoch, .. } = attempt.to;
                (row.job.attempt, row.job.epoch, row.job.status) = (number, epoch, attempt.status);
                (row.job.host, row.job.head) = (attempt.host, attempt.head.clone());
                row.job.first_event = attempt.head.len() as u64 + 1;
                row.job.parts.clone_from(&attempt.parts);
                Outcome::Committed(Vec::new())
            }
            Write::End(end) => self.end(end, coordinator),
        }
    }

    /// Notes that an attempt executes.
    pub(super) fn record_start(&mut self, key: AttemptKey) {
        let row = self.rows.get_mut(&key.job_id).filter(|row| row.job.key() == key);
        if let Some(row) = row.filter(|row| !row.job.status.is_final()) {
            row.job.status = JobStatus::Running;
        }
    }

    fn end(&mut self, end: &EndWrite, coordinator: InstanceId) -> Outcome {
        let earned = end.shares.clone();
        let Some(row) = self.rows.get_mut(&end.job.id) else { return Outcome::Superseded };
        let is_same_attempt = row.coordinator == coordinator && row.job.key() == end.job.key();
        if row.job.status.is_final() {
            let same = row.job.end.as_ref().is_some_and(|stored| stored.completed_at == end.end.completed_at);
            let is_repeated = is_same_attempt && row.job.status == end.status && same;
            return if is_repeated { Outcome::Committed(earned) } else { Outcome::Superseded };
        }
        if !is_same_attempt {
            return Outcome::Superseded;
        }
        row.job.status = end.status;
        row.job.end = Some(end.end.clone());
        row.events.clone_from(&end.events);
        *self.ends.entry(end.job.id).or_default() += 1;
        if matches!(end.canceller, Some(Canceller::Operator { .. })) {
            *self.recorded.entry(end.job.id).or_default() += 1;
        }
        let earners: Vec<_> = earned
            .iter()
            .map(|(host, share)| Earner { host: *host, account: self.accounts[host], share: *share })
            .collect();
        for posting in Posting::close_hold(end.job.account, &earners, end.job.price) {
            self.post(&posting);
            if posting.kind == Kind::Settle {
                *self.settled.entry(end.job.id).or_default() += posting.amount;
            }
        }
        Outcome::Committed(earned)
    }

    /// Open jobs of a coordinator.
    pub(super) fn open(&self, coordinator: InstanceId) -> Vec<JobId> {
        let open = self.rows.values().filter(|row| !row.job.status.is_final());
        open.filter(|row| row.coordinator == coordinator).map(|row| row.job.id).collect()
    }

    /// Increments the counter of a coordinator. Returns `false` if it was removed.
    pub(super) fn beat(&mut self, own: InstanceId) -> bool {
        self.coordinators.get_mut(&own).map(|beats| *beats += 1).is_some()
    }

    /// The counters of all coordinators.
    pub(super) fn heartbeats(&self) -> Vec<PeerHeartbeat> {
        self.coordinators.iter().map(|(id, beats)| PeerHeartbeat { id: *id, beats: *beats }).collect()
    }

    /// Removes a coordinator whose counter stood still.
    pub(super) fn remove(&mut self, silent: PeerHeartbeat) {
        if self.coordinators.get(&silent.id) == Some(&silent.beats) {
            self.coordinators.remove(&silent.id);
        }
    }

    /// Moves open jobs whose coordinator was removed to `own`. Returns how many, and whether others are left.
    pub(super) fn adopt(&mut self, own: InstanceId, share: &Share) -> (u32, bool) {
        let present: BTreeSet<_> = self.coordinators.keys().copied().collect();
        let (mut taken, mut has_others) = (0, false);
        for row in self.rows.values_mut() {
            if row.job.status.is_final() || present.contains(&row.coordinator) {
                continue;
            }
            if row.job.id.to_string().ends_with(|digit| share.digits().contains(digit)) {
                row.coordinator = own;
                taken += 1;
            } else {
                has_others = true;
            }
        }
        (taken, has_others)
    }
}
