//! Chooses the idle workers to stop so that memory is freed. Pure.

use std::{collections::BTreeSet, time::Duration};

use island_protocol::demand::{Need, Vram};

/// Minimum time for which a loaded model stays loaded.
pub const MIN_RESIDENCY: Duration = Duration::from_secs(5);

/// Main and GPU memory, megabytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amount {
    /// Main memory.
    pub ram_mb: u64,
    /// Memory of each GPU, by its number.
    pub vram: Vram,
}

impl Amount {
    /// Main memory only.
    pub fn ram(ram_mb: u64) -> Self {
        Self { ram_mb, vram: Vram::new() }
    }

    /// The sum of both. What workers report of themselves is part of it, so it ends at the largest number.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.ram_mb = self.ram_mb.saturating_add(other.ram_mb);
        for (gpu, mb) in &other.vram {
            let sum = self.vram.entry(*gpu).or_default();
            *sum = sum.saturating_add(*mb);
        }
        self
    }

    /// This minus `other`, at least zero.
    #[must_use]
    pub fn less(mut self, other: &Self) -> Self {
        self.ram_mb = self.ram_mb.saturating_sub(other.ram_mb);
        for (gpu, mb) in &mut self.vram {
            *mb = mb.saturating_sub(other.of(*gpu));
        }
        self
    }

    /// Whether this is at least `other` in everything.
    pub fn covers(&self, other: &Self) -> bool {
        self.ram_mb >= other.ram_mb && other.vram.iter().all(|(gpu, mb)| self.of(*gpu) >= *mb)
    }

    /// Memory of one GPU.
    pub fn of(&self, gpu: u32) -> u64 {
        self.vram.get(&gpu).copied().unwrap_or(0)
    }

    /// Memory of these GPUs.
    pub fn vram_of(&self, gpus: &BTreeSet<u32>) -> Vram {
        self.vram.iter().filter(|(gpu, _)| gpus.contains(gpu)).map(|(gpu, mb)| (*gpu, *mb)).collect()
    }

    fn all_mb(&self) -> u64 {
        self.vram.values().fold(self.ram_mb, |sum, mb| sum.saturating_add(*mb))
    }

    /// Whether `other` has some of what is in this.
    fn meets(&self, other: &Self) -> bool {
        (self.ram_mb > 0 && other.ram_mb > 0)
            || self.vram.iter().any(|(gpu, mb)| *mb > 0 && other.of(*gpu) > 0)
    }
}

impl From<Need> for Amount {
    fn from(need: Need) -> Self {
        Self { ram_mb: need.ram_mb, vram: need.vram }
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, amount| sum.plus(&amount))
    }
}

/// A worker that may be stopped.
#[derive(Debug, Clone, PartialEq)]
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
        let megabytes = self.memory.all_mb().max(1) as f64;
        self.demand * self.load.as_secs_f64().max(0.001) / megabytes
    }
}

/// Memory that stopping all idle workers would free.
pub fn reclaimable<K>(workers: &[Candidate<K>]) -> Amount {
    workers.iter().filter(|worker| worker.is_evictable()).map(|worker| worker.memory.clone()).sum()
}

/// Returns the idle workers to stop so that `wanted` is free, cheapest first. `None` if stopping all of them would not suffice; then none
/// is stopped.
pub fn choose<K: Copy>(workers: &[Candidate<K>], wanted: &Amount) -> Option<Vec<K>> {
    let mut idle: Vec<&Candidate<K>> = workers.iter().filter(|worker| worker.is_evictable()).collect();
    idle.sort_by(|a, b| a.worth().total_cmp(&b.worth()));
    let mut freed = Amount::default();
    let mut chosen = Vec::new();
    for worker in idle {
        if wanted.clone().less(&freed).meets(&worker.memory) {
            freed = freed.plus(&worker.memory);
            chosen.push(worker);
        }
    }
    freed.covers(wanted).then(|| without_unneeded(chosen, freed, wanted))
}

/// Removes workers from the choice that are not needed given the others, the most expensive first.
fn without_unneeded<K: Copy>(mut chosen: Vec<&Candidate<K>>, mut freed: Amount, wanted: &Amount) -> Vec<K> {
    for at in (0..chosen.len()).rev() {
        let without = freed.clone().less(&chosen[at].memory);
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
        (
            0_u32..3,
            0_u64..500,
            prop::collection::btree_map(0_u32..3, 0_u64..500, 0..3),
            0_u64..100,
            0_u64..30,
            0.0_f64..20.0,
        )
            .prop_map(|(jobs, ram_mb, vram, resident, load, demand)| Candidate {
                id: 0,
                jobs,
                memory: Amount { ram_mb, vram },
                resident: Duration::from_secs(resident),
                load: Duration::from_secs(load),
                demand,
            })
    }

    proptest! {
        #[test]
        fn never_stops_a_busy_worker_and_always_frees_enough(
            mut workers in prop::collection::vec(any_worker(), 0..10),
            ram in 0_u64..1500,
            vram in prop::collection::btree_map(0_u32..3, 0_u64..1500, 0..3),
        ) {
            for (index, worker) in workers.iter_mut().enumerate() {
                worker.id = index;
            }
            let all = reclaimable(&workers);
            let wanted = Amount { ram_mb: ram, vram };
            match choose(&workers, &wanted) {
                Some(chosen) => {
                    let freed: Amount = chosen.iter().map(|&index| workers[index].memory.clone()).sum();
                    prop_assert!(freed.covers(&wanted));
                    for &index in &chosen {
                        let others: Amount =
                            chosen.iter().filter(|&&other| other != index).map(|&other| workers[other].memory.clone()).sum();
                        prop_assert!(!others.covers(&wanted), "every stopped worker is needed");
                        prop_assert_eq!(workers[index].jobs, 0);
                        prop_assert!(workers[index].resident >= MIN_RESIDENCY);
                    }
                    if Amount::default().covers(&wanted) {
                        prop_assert!(chosen.is_empty());
                    }
                }
                None => prop_assert!(!all.covers(&wanted)),
            }
        }
    }

    #[test]
    fn sums_of_any_reports_end_at_the_largest_number() {
        let all = Amount { ram_mb: u64::MAX, vram: [(0, u64::MAX)].into() };
        assert_eq!([all.clone(), all.clone()].into_iter().sum::<Amount>(), all);
        assert_eq!(all.all_mb(), u64::MAX);
    }

    #[test]
    fn the_cheapest_worker_per_megabyte_stops_first_and_alone_if_it_suffices() {
        let worker = |id, ram_mb, demand, load| Candidate {
            id,
            jobs: 0,
            memory: Amount::ram(ram_mb),
            resident: Duration::from_secs(100),
            load: Duration::from_secs(load),
            demand,
        };
        let some = Amount::ram(50);
        let workers = [worker(0, 100, 9.0, 10), worker(1, 100, 1.0, 10), worker(2, 100, 1.0, 60)];
        assert_eq!(choose(&workers, &some), Some(vec![1]));
        let workers = [worker(0, 100, 1.0, 10), worker(1, 1000, 1.0, 10)];
        assert_eq!(choose(&workers, &some), Some(vec![1]), "it frees more for the same cost");
        let workers = [worker(0, 20, 0.1, 1), worker(1, 100, 1.0, 10)];
        assert_eq!(choose(&workers, &some), Some(vec![1]), "the first is not needed");
    }
}
