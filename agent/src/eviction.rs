//! Which idle workers stop to make room. Pure.

use std::time::Duration;

/// Time a loaded model keeps its place, whatever else would like it.
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
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { ram_mb: self.ram_mb + other.ram_mb, vram_mb: self.vram_mb + other.vram_mb }
    }

    /// What is left of this without `other`, at least nothing.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            ram_mb: self.ram_mb.saturating_sub(other.ram_mb),
            vram_mb: self.vram_mb.saturating_sub(other.vram_mb),
        }
    }

    /// Whether it holds `other`.
    pub fn covers(self, other: Self) -> bool {
        self.ram_mb >= other.ram_mb && self.vram_mb >= other.vram_mb
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Self::plus)
    }
}

/// A worker, as the choice sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate<K> {
    /// Which one.
    pub id: K,
    /// Jobs in it or waiting for it.
    pub jobs: u32,
    /// What it would give back.
    pub memory: Amount,
    /// Since it was loaded.
    pub resident: Duration,
    /// What loading it took: what bringing it back would cost.
    pub load: Duration,
    /// Jobs for this model in about the last hour: how soon it may be wanted again.
    pub demand: f64,
}

impl<K> Candidate<K> {
    fn is_evictable(&self) -> bool {
        self.jobs == 0 && self.resident >= MIN_RESIDENCY
    }

    /// Cost of losing it for every megabyte that it gives back: demand times what a reload takes.
    fn worth(&self) -> f64 {
        let megabytes = (self.memory.ram_mb + self.memory.vram_mb).max(1) as f64;
        self.demand * self.load.as_secs_f64().max(0.001) / megabytes
    }
}

/// Memory that stopping idle workers would give back.
pub fn reclaimable<K>(workers: &[Candidate<K>]) -> Amount {
    workers.iter().filter(|worker| worker.is_evictable()).map(|worker| worker.memory).sum()
}

/// The idle workers to stop so that `wanted` more is free, the least worth first. `None`: not even all
/// of them are enough, so none should stop.
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
    freed.covers(wanted).then(|| spared(chosen, freed, wanted))
}

/// The chosen without those that turn out not to be needed beside the others, the most worth first.
fn spared<K: Copy>(mut chosen: Vec<&Candidate<K>>, mut freed: Amount, wanted: Amount) -> Vec<K> {
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
        fn never_one_in_use_and_always_enough(
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
                        prop_assert!(!others.covers(wanted), "none stops for nothing");
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
    fn the_seldom_wanted_large_and_cheap_one_goes_first_and_alone_if_it_is_enough() {
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
        assert_eq!(choose(&workers, some), Some(vec![1]), "it gives more back for the same");
        let workers = [worker(0, 20, 0.1, 1), worker(1, 100, 1.0, 10)];
        assert_eq!(choose(&workers, some), Some(vec![1]), "the first would stop for nothing");
    }
}
