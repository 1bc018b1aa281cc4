//! The attempts of this Island, and the epochs of those that have ended.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use island_protocol::ids::{AttemptKey, JobId};

use crate::attempt::{handle::AttemptHandle, state::AttemptState};

/// Number of ended jobs whose epochs are kept, so that a late copy of an assignment starts nothing.
const REMEMBERED: usize = 4096;

/// The attempts, one per job, and the epochs of those that ended.
#[derive(Debug, Default)]
pub(super) struct AttemptTable {
    jobs: BTreeMap<JobId, Arc<AttemptHandle>>,
    ended: BTreeMap<JobId, u64>,
    ended_order: VecDeque<JobId>,
}

impl AttemptTable {
    /// Adds an attempt. Returns the one of an older epoch that it replaces.
    pub(super) fn insert(&mut self, attempt: &Arc<AttemptHandle>) -> Option<Arc<AttemptHandle>> {
        self.jobs.insert(attempt.key().job_id, Arc::clone(attempt))
    }

    /// The attempt with this key.
    pub(super) fn find(&self, key: AttemptKey) -> Option<Arc<AttemptHandle>> {
        self.jobs.get(&key.job_id).filter(|attempt| attempt.key() == key).cloned()
    }

    /// All attempts.
    pub(super) fn all(&self) -> Vec<Arc<AttemptHandle>> {
        self.jobs.values().cloned().collect()
    }

    /// Attempts that have no slot yet.
    pub(super) fn live(&self) -> u32 {
        self.jobs.values().filter(|attempt| attempt.state() < AttemptState::Finishing).count() as u32
    }

    /// Number of attempts, and of ended jobs that are remembered.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.jobs.len(), self.ended.len())
    }

    /// Whether no attempt is here.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns why an assignment of this attempt is invalid, or the attempt if it is here already.
    pub(super) fn known(&self, key: AttemptKey) -> Result<Option<Arc<AttemptHandle>>, &'static str> {
        match self.jobs.get(&key.job_id) {
            Some(attempt) if attempt.key() == key => return Ok(Some(Arc::clone(attempt))),
            Some(attempt) if attempt.key().epoch >= key.epoch => return Err("of an older epoch"),
            _ => {}
        }
        let is_newer = self.ended.get(&key.job_id).is_none_or(|&epoch| epoch < key.epoch);
        if is_newer { Ok(None) } else { Err("of an epoch that has ended here") }
    }

    /// Removes an attempt; its epoch is kept.
    pub(super) fn forget(&mut self, key: AttemptKey) {
        if self.jobs.get(&key.job_id).is_some_and(|attempt| attempt.key() == key) {
            self.jobs.remove(&key.job_id);
        }
        let before = self.ended.get(&key.job_id).copied();
        self.ended.insert(key.job_id, key.epoch.max(before.unwrap_or(0)));
        if before.is_none() {
            self.ended_order.push_back(key.job_id);
        }
        if self.ended_order.len() > REMEMBERED
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disk::spool::Spool, testing};

    fn attempt(folder: &std::path::Path, job: u128, epoch: u64) -> Arc<AttemptHandle> {
        let assignment = testing::assignment(job, epoch);
        let spool = Spool::open(folder, assignment.key, 1).expect("open");
        AttemptHandle::new(assignment, spool, 0, 0)
    }

    #[test]
    fn epochs_only_grow() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut books = AttemptTable::default();
        let (first, second) = (attempt(folder.path(), 1, 5), attempt(folder.path(), 1, 6));
        assert!(books.insert(&first).is_none());
        assert!(books.known(first.key()).is_ok_and(|known| known.is_some()), "the same one again");
        assert!(books.known(attempt(folder.path(), 1, 4).key()).is_err(), "an older one");
        assert!(books.known(second.key()).is_ok_and(|known| known.is_none()), "a newer one");
        assert_eq!(books.insert(&second).map(|older| older.key()), Some(first.key()));
        books.forget(second.key());
        books.forget(first.key());
        assert!(books.is_empty());
        assert!(
            books.known(second.key()).is_err(),
            "it has ended, and a late end of an older one changes nothing"
        );
    }

    #[test]
    fn the_number_of_kept_epochs_is_bounded() {
        let mut books = AttemptTable::default();
        for job in 0..(REMEMBERED as u128 + 10) {
            books.forget(testing::assignment(job, 1).key);
        }
        assert_eq!((books.ended.len(), books.ended_order.len()), (REMEMBERED, REMEMBERED));
        assert!(books.known(testing::assignment(0, 1).key).is_ok(), "removed long ago");
    }
}
