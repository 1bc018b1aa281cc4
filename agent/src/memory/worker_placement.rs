//! Chooses the GPUs for a new worker, and the idle workers that are stopped for it. Pure.
//!
//! Free memory of two GPUs can be added up only for an engine that splits models, so [`demand`] decides what a Cargo needs; main memory is
//! shared by all.

use std::collections::BTreeSet;

use island_protocol::{
    cargo::CargoSpec,
    demand::{self, Need, Offload, Parts, Shortage, Vram},
};

use crate::memory::eviction::{self, Amount, Candidate};

/// The memory of this Island and the workers that use it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine<K> {
    /// Free memory: of the machine, and of each GPU that workers may use.
    pub free: Amount,
    /// The workers, each with the memory that stopping it would free.
    pub workers: Vec<Candidate<K>>,
    /// Number of workers on each GPU.
    pub busy: Vram,
    /// The GPUs that are parts of a card.
    pub parts: Parts,
}

/// Where a worker runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice<K> {
    /// The memory that it needs; its GPUs are those that it is granted.
    pub need: Need,
    /// The workers to stop first.
    pub leaving: Vec<K>,
}

impl<K: Copy + PartialEq> Machine<K> {
    /// Memory that one more worker could get if all idle ones were stopped.
    pub fn headroom(&self) -> Amount {
        // Memory of GPUs that may not be used is not reclaimed for others.
        let reclaimable = eviction::reclaimable(&self.workers);
        let vram =
            self.free.vram.iter().map(|(gpu, mb)| (*gpu, mb.saturating_add(reclaimable.of(*gpu)))).collect();
        Amount { ram_mb: self.free.ram_mb.saturating_add(reclaimable.ram_mb), vram }
    }

    /// Free memory after these workers have stopped.
    pub fn without(&self, leaving: &[K]) -> Amount {
        self.those(leaving).fold(self.free.clone(), |free, worker| free.plus(&worker.memory))
    }

    /// Returns where a worker of this Cargo runs, whose engine runs models on the GPUs `owned`: among equally good GPUs the one for which
    /// the cheapest workers stop, then the least busy, then the smallest. The error is what is short.
    pub fn choose(&self, cargo: &CargoSpec, owned: &BTreeSet<u32>) -> Result<Choice<K>, Shortage> {
        let all = self.headroom();
        let vram = all.vram_of(owned);
        let best = demand::fit(cargo, all.ram_mb, &vram, &self.parts)?;
        let needs = if best.offload(cargo) == Offload::Whole && best.vram.len() == 1 {
            let of_one = |(gpu, mb): (&u32, &u64)| demand::need(cargo, &[(*gpu, *mb)].into(), &self.parts);
            vram.iter().map(of_one).filter(|need| need.offload(cargo) == Offload::Whole).collect()
        } else {
            // Without stopping others if possible: a larger part on GPUs is not worth a loaded model.
            let now = demand::need(cargo, &self.free.vram_of(owned), &self.parts);
            let as_good = now.offload(cargo) == best.offload(cargo);
            now_or_later(as_good.then_some(now), best)
        };
        let choices = needs.into_iter().filter_map(|need| {
            let wanted = Amount::from(need.clone());
            let leaving = eviction::choose(&self.workers, &wanted.less(&self.free))?;
            Some(Choice { need, leaving })
        });
        let choice = choices.min_by(|one, other| {
            self.loss(one).total_cmp(&self.loss(other)).then_with(|| self.rank(one).cmp(&self.rank(other)))
        });
        // Headroom is what is free when all idle workers have stopped, so what fits into it can be obtained.
        choice.ok_or(Shortage::Ram(cargo.ram_mb()))
    }

    /// Cost of loading the stopped workers again, weighted by demand.
    fn loss(&self, choice: &Choice<K>) -> f64 {
        self.those(&choice.leaving).map(|worker| worker.demand * worker.load.as_secs_f64()).sum()
    }

    /// Smaller is better.
    fn rank(&self, choice: &Choice<K>) -> impl Ord + use<K> {
        let gpus = || choice.need.vram.keys();
        let busy: u64 = gpus().map(|gpu| self.busy.get(gpu).copied().unwrap_or(0)).sum();
        (choice.leaving.len(), busy, gpus().map(|gpu| self.free.of(*gpu)).sum::<u64>())
    }

    fn those(&self, ids: &[K]) -> impl Iterator<Item = &Candidate<K>> {
        self.workers.iter().filter(|worker| ids.contains(&worker.id))
    }
}

fn now_or_later(now: Option<Need>, later: Need) -> Vec<Need> {
    now.into_iter().chain([later]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use island_protocol::cargo::RuntimeType;
    use proptest::prelude::*;

    use super::*;
    use crate::testing;

    fn machine(free_vram: &[u64], workers: Vec<Candidate<usize>>) -> Machine<usize> {
        let vram = free_vram.iter().enumerate().map(|(gpu, mb)| (gpu as u32, *mb)).collect();
        Machine { free: Amount { ram_mb: 4000, vram }, workers, busy: Vram::new(), parts: Parts::new() }
    }

    fn worker(id: usize, gpu: u32, vram_mb: u64, demand: f64) -> Candidate<usize> {
        Candidate {
            id,
            jobs: 0,
            memory: Amount { ram_mb: 10, vram: [(gpu, vram_mb)].into() },
            resident: Duration::from_mins(1),
            load: Duration::from_secs(10),
            demand,
        }
    }

    fn cargo(kind: RuntimeType, mb: u64) -> CargoSpec {
        let mut cargo = testing::assignment(1, 1).cargo;
        (cargo.runtime_type, cargo.required_ram_mb, cargo.required_vram_mb) = (kind, mb, mb);
        cargo
    }

    fn chosen(machine: &Machine<usize>, cargo: &CargoSpec) -> Option<(Vec<u32>, Vec<usize>)> {
        let owned = machine.free.vram.keys().copied().collect();
        let choice = machine.choose(cargo, &owned).ok()?;
        Some((choice.need.vram.into_keys().collect(), choice.leaving))
    }

    #[test]
    fn memory_of_two_gpus_is_added_up_only_for_llama_cpp() {
        let machine = machine(&[4000, 100], vec![worker(0, 1, 6000, 1.0)]);
        assert_eq!(machine.headroom().vram, [(0, 4000), (1, 6100)].into());
        assert_eq!(chosen(&machine, &cargo(RuntimeType::Onnx, 6000)), Some((vec![1], vec![0])));
        assert_eq!(
            chosen(&machine, &cargo(RuntimeType::Onnx, 3000)),
            Some((vec![0], vec![])),
            "nothing stops"
        );
        assert_eq!(
            chosen(&machine, &cargo(RuntimeType::Onnx, 9000)),
            None,
            "too large for each, and for main memory"
        );
        assert_eq!(chosen(&machine, &cargo(RuntimeType::Llmcpp, 9000)), Some((vec![0, 1], vec![0])));
        let parts = Machine { parts: [0, 1].into(), ..machine };
        assert_eq!(
            chosen(&parts, &cargo(RuntimeType::Llmcpp, 9000)),
            Some((vec![1], vec![0])),
            "of one card"
        );
    }

    #[test]
    fn the_cheapest_gpu_then_the_least_busy_then_the_smallest_is_chosen() {
        let model = cargo(RuntimeType::Llmcpp, 5000);
        let full = machine(&[0, 0], vec![worker(0, 0, 5000, 9.0), worker(1, 1, 5000, 1.0)]);
        assert_eq!(chosen(&full, &model), Some((vec![1], vec![1])));
        let mut free = machine(&[24_000, 8000], vec![]);
        assert_eq!(chosen(&free, &model), Some((vec![1], vec![])));
        free.busy = [(1, 1)].into();
        assert_eq!(chosen(&free, &model), Some((vec![0], vec![])));
    }

    #[test]
    fn a_gpu_of_another_engine_is_not_used() {
        let machine = machine(&[24_000, 8000], vec![]);
        let model = cargo(RuntimeType::Llmcpp, 3000);
        let choice = machine.choose(&model, &[1].into()).expect("it fits");
        assert_eq!(choice.need.vram.keys().copied().collect::<Vec<_>>(), [1]);
        let choice = machine.choose(&model, &BTreeSet::new()).expect("it fits into main memory");
        assert_eq!(choice.need, Need { ram_mb: 3000, vram: Vram::new() });
    }

    fn any_machine() -> impl Strategy<Value = Machine<usize>> {
        let worker = (0_u32..2, 0_u64..9000, 0_u32..3, 0_u64..20_000, 0_u64..20, 0.0_f64..9.0);
        let workers = prop::collection::vec(worker, 0..6);
        let vram = prop::collection::btree_map(0_u32..3, 0_u64..20_000, 0..4);
        let parts = prop::collection::btree_set(0_u32..3, 0..3);
        (0_u64..30_000, vram, workers, parts).prop_map(|(ram_mb, vram, workers, parts)| {
            let candidate = |(id, (jobs, ram_mb, gpu, vram_mb, resident, demand))| Candidate {
                id,
                jobs,
                memory: Amount { ram_mb, vram: [(gpu, vram_mb)].into() },
                resident: Duration::from_secs(resident),
                load: Duration::from_secs(1),
                demand,
            };
            let workers = workers.into_iter().enumerate().map(candidate).collect();
            Machine { free: Amount { ram_mb, vram }, workers, busy: Vram::new(), parts }
        })
    }

    fn any_cargo() -> impl Strategy<Value = CargoSpec> {
        (prop::sample::select(RuntimeType::ALL.to_vec()), 0_u64..40_000, 0_u64..40_000).prop_map(
            |(kind, ram, vram)| {
                let mut made = cargo(kind, ram);
                made.required_vram_mb = vram;
                made
            },
        )
    }

    proptest! {
        /// The coordinator offers a job where the Cargo fits into the reported headroom; the agent then starts its worker, and only then.
        #[test]
        fn coordinator_and_agent_agree(
            cargo in any_cargo(), machine in any_machine(), owned in prop::collection::btree_set(0_u32..3, 0..4),
        ) {
            let reported = machine.headroom();
            let offered = demand::fit(&cargo, reported.ram_mb, &reported.vram_of(&owned), &machine.parts);
            let chosen = machine.choose(&cargo, &owned);
            prop_assert_eq!(offered.is_ok(), chosen.is_ok());
            if let (Ok(offered), Ok(choice)) = (offered, chosen) {
                prop_assert_eq!(choice.need.offload(&cargo), offered.offload(&cargo), "it runs where it was meant to");
                prop_assert!(choice.need.vram.keys().all(|gpu| owned.contains(gpu)));
                let is_alone = choice.need.vram.len() <= 1;
                prop_assert!(is_alone || choice.need.vram.keys().all(|gpu| !machine.parts.contains(gpu)));
                prop_assert!(machine.without(&choice.leaving).covers(&choice.need.into()));
            }
        }

        /// A worker with the granted memory needs no more than was planned.
        #[test]
        fn a_grant_is_enough(cargo in any_cargo(), machine in any_machine()) {
            let owned = machine.free.vram.keys().copied().collect();
            if let Ok(choice) = machine.choose(&cargo, &owned) {
                let free = machine.without(&choice.leaving);
                let granted: Vram = choice.need.vram.keys().map(|gpu| (*gpu, free.of(*gpu))).collect();
                prop_assert!(demand::need(&cargo, &granted, &machine.parts).ram_mb <= choice.need.ram_mb);
            }
        }
    }
}
