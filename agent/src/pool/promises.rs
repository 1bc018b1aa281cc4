//! Main memory that is promised to jobs which allocate their own: those of workers that run all Cargos of an engine.
//!
//! A job has a promise while it waits for memory and its worker, and then a claim on the worker. Measurements do not include what it has not
//! allocated yet.

use std::{collections::BTreeMap, sync::Arc};

use island_protocol::cargo::RuntimeType;
use parking_lot::Mutex;

/// The promises to jobs that have no worker yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// Number of the next promise.
    next: u64,
    /// Megabytes by the number of the promise.
    given: BTreeMap<u64, u64>,
}

/// A promise to one job. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    all: Promises,
    number: u64,
}

impl Promises {
    /// Promises memory to a job.
    pub(super) fn give(&self, ram_mb: u64) -> Promise {
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.given.insert(number, ram_mb);
        Promise { all: self.clone(), number }
    }

    /// Megabytes promised in total.
    pub(super) fn all_mb(&self) -> u64 {
        sum(self.0.lock().given.values())
    }
}

impl Promise {
    /// Megabytes that were promised to others earlier. Of two jobs for which the memory suffices once, the first gets it.
    pub(super) fn earlier_mb(&self) -> u64 {
        sum(self.all.0.lock().given.range(..self.number).map(|(_, mb)| mb))
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.all.0.lock().given.remove(&self.number);
    }
}

fn sum<'a>(megabytes: impl Iterator<Item = &'a u64>) -> u64 {
    megabytes.fold(0, |sum, mb| sum.saturating_add(*mb))
}

/// Megabytes that the jobs of a worker may still allocate, of those that they claim. `allocated_mb` is what the worker's process allocated
/// beyond its own needs; containers are other processes, whose part in the memory that is in use is unknown.
pub(super) fn unallocated_mb(engine: &RuntimeType, claimed_mb: u64, allocated_mb: u64) -> u64 {
    match engine {
        RuntimeType::Container => claimed_mb,
        _ => claimed_mb.saturating_sub(allocated_mb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waits_behind_the_promises_before_its_own() {
        let promises = Promises::default();
        let (first, second) = (promises.give(600), promises.give(500));
        assert_eq!((first.earlier_mb(), second.earlier_mb(), promises.all_mb()), (0, 600, 1100));
        drop(first);
        let third = promises.give(u64::MAX);
        assert_eq!(
            (second.earlier_mb(), third.earlier_mb()),
            (0, 500),
            "a later job does not pass an earlier one"
        );
        assert_eq!(promises.all_mb(), u64::MAX);
        drop((second, third));
        assert_eq!(promises.all_mb(), 0);
    }

    #[test]
    fn what_a_worker_allocated_for_its_jobs_is_measured_already() {
        assert_eq!(unallocated_mb(&RuntimeType::Wasm, 600, 0), 600);
        assert_eq!(unallocated_mb(&RuntimeType::Wasm, 600, 200), 400);
        assert_eq!(unallocated_mb(&RuntimeType::Wasm, 600, 700), 0);
        assert_eq!(unallocated_mb(&RuntimeType::Container, 600, 200), 600, "containers are other processes");
    }
}
