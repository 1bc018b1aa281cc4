//! Chooses the idle workers to stop so that memory is freed. Pure.

use std::time::Duration;

/// Minimum time for which a loaded model stays loaded.
pub const MIN_RESIDENCY: Duration = Duration::from_secs(5);

/// Main and GPU memory, megabytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Main memory.
    pub ram_mb: u64,
    /// GPU memory.
    pub vram_mb: u64,
}

impl Amount {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { ram_mb: self.ram_mb + other.ram_mb, vram_mb: self.vram_mb + other.vram_mb }
    }

    /// This minus `other`, at least zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            ram_mb: self.ram_mb.saturating_sub(other.ram_mb),
            vram_mb: self.vram_mb.saturating_sub(other.vram_mb),
        }
    }

    /// Whether this is at least `other` in both.
    pub fn covers(self, other: Self) -> bool {
        self.ram_mb >= other.ram_mb && self.vram_mb >= other.vram_mb
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Self::plus)
    }
}

/// A worker that may be stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate<K> {
    /// Its identifier.
    pub id: K,
    /// Running and queued jobs.
    pub jobs: u32,
    /// Memory that stopping it frees.
    pub memory: Amount,
    /// Time since it was loaded.
    pub resident: Duration,
    /// Time that loading took, and would take again.
    pub load: Duration,
    /// Weighted jobs for this model in about the last hour: the expected demand.
    pub demand: f64,
}

impl<K> Candidate<K> {
    fn is_evictable(&self) -> bool {
        self.jobs == 0 && self.resident >= MIN_RESIDENCY
    }

    /// Cost of stopping it per freed megabyte: demand times load time.
    fn worth(&self) -> f64 {
        let megabytes = (self.memory.ram_mb + self.memory.vram_mb).max(1) as f64;
        self.demand * self.load.as_secs_f64().max(0.001) / megabytes
    }
}

/// Memory that stopping all idle workers would free.
pub fn reclaimable<K>(workers: &[Candidate<K>]) -> Amount {
    workers.iter().filter(|worker| worker.is_evictable()).map(|worker| worker.memory).sum()
}

/// Returns the idle workers to stop so that `wanted` is free, cheapest first. `None` if stopping all of them would not suffice; then none
/// is stopped.
pub fn choose<K: Copy>(workers: &[Candidate<K>], wanted: Amount) -> Option<Vec<K>> {
    let mut idle: Vec<&Candidate<K>> = workers.iter().filter(|worker| worker.is_evictable()).collect();
    idle.sort_by(|a, b| a.worth().total_cmp(&b.worth()));
    let mut freed = Amount::default();
    let mut chosen = Vec::new();
    for worker in idle {
        let missing = wanted.less(freed);
        let helps = (missing.ram_mb > 0 && worker.memory.ram_mb > 0)
            || (missing.vram_mb > 0 && worker.memory.vram_mb > 0);
        if helps {
            freed = freed.plus(worker.memory);
            chosen.push(worker);
        }
    }
    freed.covers(wanted).then(|| without_unneeded(chosen, freed, wanted))
}

/// Removes workers from the choice that are not needed given the others, the most expensive first.
fn without_unneeded<K: Copy>(mut chosen: Vec<&Candidate<K>>, mut freed: Amount, wanted: Amount) -> Vec<K> {
    for at in (0..chosen.len()).rev() {
        let without = freed.less(chosen[at].memory);
        if without.covers(wanted) {
            freed = without;
            chosen.remove(at);
        }
    }
    chosen.into_iter().map(|worker| worker.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_worker() -> impl Strategy<Value = Candidate<usize>> {
        (0_u32..3, 0_u64..500, 0_u64..500, 0_u64..100, 0_u64..30, 0.0_f64..20.0).prop_map(
            |(jobs, ram_mb, vram_mb, resident, load, demand)| Candidate {
                id: 0,
                jobs,
                memory: Amount { ram_mb, vram_mb },
                resident: Duration::from_secs(resident),
                load: Duration::from_secs(load),
                demand,
            },
        )
    }

    proptest! {
        #[test]
        fn never_stops_a_busy_worker_and_always_frees_enough(
            mut workers in prop::collection::vec(any_worker(), 0..10),
            ram in 0_u64..1500,
            vram in 0_u64..1500,
        ) {
            for (index, worker) in workers.iter_mut().enumerate() {
                worker.id = index;
            }
            let all = reclaimable(&workers);
            let wanted = Amount { ram_mb: ram, vram_mb: vram };
            match choose(&workers, wanted) {
                Some(chosen) => {
                    let freed: Amount = chosen.iter().map(|&index| workers[index].memory).sum();
                    prop_assert!(freed.covers(wanted));
                    for &index in &chosen {
                        let others: Amount =
                            chosen.iter().filter(|&&other| other != index).map(|&other| workers[other].memory).sum();
                        prop_assert!(!others.covers(wanted), "every stopped worker is needed");
                        prop_assert_eq!(workers[index].jobs, 0);
                        prop_assert!(workers[index].resident >= MIN_RESIDENCY);
                    }
                    if wanted == Amount::default() {
                        prop_assert!(chosen.is_empty());
                    }
                }
                None => prop_assert!(!all.covers(wanted)),
            }
        }
    }

    #[test]
    fn the_cheapest_worker_per_megabyte_stops_first_and_alone_if_it_suffices() {
        let worker = |id, ram_mb, demand, load| Candidate {
            id,
            jobs: 0,
            memory: Amount { ram_mb, vram_mb: 0 },
            resident: Duration::from_secs(100),
            load: Duration::from_secs(load),
            demand,
        };
        let some = Amount { ram_mb: 50, vram_mb: 0 };
        let workers = [worker(0, 100, 9.0, 10), worker(1, 100, 1.0, 10), worker(2, 100, 1.0, 60)];
        assert_eq!(choose(&workers, some), Some(vec![1]));
        let workers = [worker(0, 100, 1.0, 10), worker(1, 1000, 1.0, 10)];
        assert_eq!(choose(&workers, some), Some(vec![1]), "it frees more for the same cost");
        let workers = [worker(0, 20, 0.1, 1), worker(1, 100, 1.0, 10)];
        assert_eq!(choose(&workers, some), Some(vec![1]), "the first is not needed");
    }
}
