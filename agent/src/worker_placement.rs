//! Chooses the GPU for a new worker, and the idle workers that are stopped for it. Pure.
//!
//! Free memory of two GPUs cannot be added up for one model, so each GPU is considered separately; main memory is shared by all.

use crate::{
    eviction::{self, Amount, Candidate},
    policy::gpus::Share,
};

/// A GPU, or the processor alone, with the workers on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement<K> {
    /// The GPU and the share that workers may use.
    pub share: Share,
    /// Free memory.
    pub free: Amount,
    /// The workers, each with the memory that stopping it would free.
    pub workers: Vec<Candidate<K>>,
}

impl<K: Copy + PartialEq> Placement<K> {
    /// Memory that could be free.
    fn all(&self) -> Amount {
        self.free.plus(eviction::reclaimable(&self.workers))
    }

    /// Free memory after these workers have stopped.
    pub fn without(&self, leaving: &[K]) -> Amount {
        self.free.plus(self.those(leaving).map(|worker| worker.memory).sum())
    }

    /// Cost of loading these workers again, weighted by demand.
    fn loss(&self, leaving: &[K]) -> f64 {
        self.those(leaving).map(|worker| worker.demand * worker.load.as_secs_f64()).sum()
    }

    fn those(&self, ids: &[K]) -> impl Iterator<Item = &Candidate<K>> {
        self.workers.iter().filter(|worker| ids.contains(&worker.id))
    }
}

/// Returns the memory that one more worker could get.
pub fn headroom<K: Copy + PartialEq>(placements: &[Placement<K>]) -> Amount {
    let all = placements.iter().map(Placement::all);
    all.max_by_key(|amount| (amount.vram_mb, amount.ram_mb)).unwrap_or_default()
}

/// Returns the placement for a worker of this size and the workers to stop first: the cheapest, and among equals the one with the most free
/// memory. `None` if it fits nowhere.
pub fn choose<K: Copy + PartialEq>(
    placements: Vec<Placement<K>>,
    wanted: Amount,
) -> Option<(Placement<K>, Vec<K>)> {
    let choices = placements.into_iter().filter_map(|placement| {
        let leaving = eviction::choose(&placement.workers, wanted.less(placement.free))?;
        Some((placement, leaving))
    });
    // Placements are sorted by free memory, and the first of equals is chosen.
    choices.min_by(|(one, leaving), (other, others)| {
        let losses = (one.loss(leaving), other.loss(others));
        losses.0.total_cmp(&losses.1).then(leaving.len().cmp(&others.len()))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn placement(gpu: u32, free_vram_mb: u64, workers: Vec<Candidate<usize>>) -> Placement<usize> {
        let share = Share { gpu: Some(gpu), free_mb: free_vram_mb, ..Share::default() };
        Placement { share, free: Amount { ram_mb: 1000, vram_mb: free_vram_mb }, workers }
    }

    fn worker(id: usize, vram_mb: u64, demand: f64) -> Candidate<usize> {
        Candidate {
            id,
            jobs: 0,
            memory: Amount { ram_mb: 10, vram_mb },
            resident: Duration::from_mins(1),
            load: Duration::from_secs(10),
            demand,
        }
    }

    fn vram(vram_mb: u64) -> Amount {
        Amount { ram_mb: 0, vram_mb }
    }

    #[test]
    fn memory_of_two_gpus_is_not_added_up() {
        let placements =
            vec![placement(0, 4000, vec![worker(0, 0, 1.0)]), placement(1, 100, vec![worker(0, 6000, 1.0)])];
        assert_eq!(headroom(&placements).vram_mb, 6100);
        assert_eq!(choose(placements.clone(), vram(9000)), None);
        let (chosen, leaving) = choose(placements.clone(), vram(6000)).expect("a placement");
        assert_eq!(
            (chosen.share.gpu, &leaving[..], chosen.without(&leaving).vram_mb),
            (Some(1), &[0][..], 6100)
        );
        let (chosen, leaving) = choose(placements, vram(3000)).expect("a placement");
        assert_eq!((chosen.share.gpu, leaving.len()), (Some(0), 0), "no worker stops if memory is free");
    }

    #[test]
    fn the_cheapest_placement_is_chosen() {
        let placements =
            vec![placement(0, 0, vec![worker(0, 5000, 9.0)]), placement(1, 0, vec![worker(1, 5000, 1.0)])];
        let (chosen, leaving) = choose(placements, vram(5000)).expect("a placement");
        assert_eq!((chosen.share.gpu, leaving), (Some(1), vec![1]));
    }

    fn any_placement() -> impl Strategy<Value = Placement<usize>> {
        let worker = (0_u32..2, 0_u64..500, 0_u64..500, 0_u64..20, 0.0_f64..9.0);
        let workers = prop::collection::vec(worker, 0..6);
        (0_u64..500, 0_u64..500, workers).prop_map(|(ram_mb, vram_mb, workers)| {
            let candidate = |(id, (jobs, ram_mb, vram_mb, resident, demand))| Candidate {
                id,
                jobs,
                memory: Amount { ram_mb, vram_mb },
                resident: Duration::from_secs(resident),
                load: Duration::from_secs(1),
                demand,
            };
            let workers = workers.into_iter().enumerate().map(candidate).collect();
            Placement { share: Share::default(), free: Amount { ram_mb, vram_mb }, workers }
        })
    }

    proptest! {
        /// Reported headroom can be obtained, and is free once the others have stopped.
        #[test]
        fn reported_headroom_can_be_obtained(placements in prop::collection::vec(any_placement(), 1..4), ram in 0_u64..1500, vram in 0_u64..1500) {
            let reported = headroom(&placements);
            let (placement, leaving) = choose(placements.clone(), reported).expect("reported headroom can be obtained");
            prop_assert!(placement.without(&leaving).covers(reported));
            let wanted = Amount { ram_mb: ram, vram_mb: vram };
            match choose(placements.clone(), wanted) {
                Some((placement, leaving)) => {
                    prop_assert!(placement.without(&leaving).covers(wanted));
                    prop_assert!(vram <= reported.vram_mb);
                }
                None => prop_assert!(placements.iter().all(|placement| !placement.all().covers(wanted))),
            }
        }
    }
}
