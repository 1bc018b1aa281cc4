//! Which attempts are here, and which were.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use island_protocol::ids::{AttemptKey, JobId};

use crate::job::{cell::JobCell, state::JobState};

/// Ended jobs whose epochs are remembered, so that a late copy of an assignment starts nothing.
const REMEMBERED: usize = 4096;

/// The attempts, one per job, and the epochs of those that ended.
#[derive(Debug, Default)]
pub(super) struct Books {
    jobs: BTreeMap<JobId, Arc<JobCell>>,
    ended: BTreeMap<JobId, u64>,
    ended_order: VecDeque<JobId>,
}

impl Books {
    /// Notes an attempt; gives the one of an older epoch that it takes the place of.
    pub(super) fn insert(&mut self, cell: &Arc<JobCell>) -> Option<Arc<JobCell>> {
        self.jobs.insert(cell.key().job_id, Arc::clone(cell))
    }

    /// The cell of an attempt.
    pub(super) fn find(&self, key: AttemptKey) -> Option<Arc<JobCell>> {
        self.jobs.get(&key.job_id).filter(|cell| cell.key() == key).cloned()
    }

    /// All attempts.
    pub(super) fn all(&self) -> Vec<Arc<JobCell>> {
        self.jobs.values().cloned().collect()
    }

    /// Attempts that still need a place.
    pub(super) fn live(&self) -> u32 {
        self.jobs.values().filter(|cell| cell.state() < JobState::Finishing).count() as u32
    }

    /// Whether no attempt is here.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Why an assignment of this attempt makes no sense, or the cell that is it already.
    pub(super) fn known(&self, key: AttemptKey) -> Result<Option<Arc<JobCell>>, &'static str> {
        match self.jobs.get(&key.job_id) {
            Some(cell) if cell.key() == key => return Ok(Some(Arc::clone(cell))),
            Some(cell) if cell.key().epoch >= key.epoch => return Err("of an older epoch"),
            _ => {}
        }
        let is_newer = self.ended.get(&key.job_id).is_none_or(|&epoch| epoch < key.epoch);
        if is_newer { Ok(None) } else { Err("of an epoch that has ended here") }
    }

    /// An attempt is done with; its epoch is remembered.
    pub(super) fn forget(&mut self, key: AttemptKey) {
        if self.jobs.get(&key.job_id).is_some_and(|cell| cell.key() == key) {
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
    use crate::{spool::Spool, testing};

    fn cell(folder: &std::path::Path, job: u128, epoch: u64) -> Arc<JobCell> {
        let assignment = testing::assignment(job, epoch);
        let spool = Spool::open(folder, assignment.key, 1).expect("open");
        JobCell::new(assignment, spool, 0, 0)
    }

    #[test]
    fn epochs_only_grow() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut books = Books::default();
        let (first, second) = (cell(folder.path(), 1, 5), cell(folder.path(), 1, 6));
        assert!(books.insert(&first).is_none());
        assert!(books.known(first.key()).is_ok_and(|known| known.is_some()), "the same one again");
        assert!(books.known(cell(folder.path(), 1, 4).key()).is_err(), "an older one");
        assert!(books.known(second.key()).is_ok_and(|known| known.is_none()), "a newer one");
        assert_eq!(books.insert(&second).map(|older| older.key()), Some(first.key()));
        books.forget(second.key());
        books.forget(first.key());
        assert!(books.is_empty());
        assert!(
            books.known(second.key()).is_err(),
            "it has ended, and the late end of an older one changes nothing"
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut books = Books::default();
        for job in 0..(REMEMBERED as u128 + 10) {
            books.forget(testing::assignment(job, 1).key);
        }
        assert_eq!((books.ended.len(), books.ended_order.len()), (REMEMBERED, REMEMBERED));
        assert!(books.known(testing::assignment(0, 1).key).is_ok(), "long forgotten");
    }
}
