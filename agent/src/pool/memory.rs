//! Memory of workers: what is free on each GPU, what workers will allocate, and which workers stop to free memory.

use std::sync::Arc;

use island_daemon::latest::Latest;
use island_protocol::{cargo::CargoSpec, ids::InstanceId};
use tokio::time::Instant;

use super::{AcquireError, ModelKey, Pool, await_stop};
use crate::{
    admission::Demand,
    eviction::{Amount, Candidate},
    inventory::{
        gpu::Card,
        meter::{Memory, Sample},
    },
    policy::gpus::{self, Share},
    vram_enforcement::{self, VramUser},
    worker::{Command, WorkerExit, WorkerHandle},
    worker_placement::{self, Placement},
};

/// Memory of a worker that runs all Cargos of an engine, before any job, megabytes.
const SHARED_MB: u64 = 64;

impl Pool {
    /// Whether a job with this key needs no additional memory: its worker runs, and jobs do not allocate their own.
    pub fn has_place(&self, key: &ModelKey, cargo: &CargoSpec) -> bool {
        !cargo.is_shared() && self.find(key).is_some()
    }

    /// The headroom that a job with this key would use.
    pub fn demand(&self, key: &ModelKey, cargo: &CargoSpec, headroom: Amount) -> Demand {
        if self.has_place(key, cargo) {
            return Demand::default();
        }
        let need = need(cargo, headroom.vram_mb);
        Demand { ram_mb: need.ram_mb, vram_mb: need.vram_mb, ..Demand::default() }
    }

    /// Memory that one more job may use: minus what starting workers will allocate, plus what idle ones would free. Measured now, which
    /// reads some files.
    pub fn headroom(&self) -> Amount {
        worker_placement::headroom(&self.placements())
    }

    /// Returns the placement for a worker of this Cargo once the workers that are stopped for it have ended.
    pub(super) async fn free_memory_for(
        &self,
        cargo: &CargoSpec,
    ) -> Result<Placement<InstanceId>, AcquireError> {
        // If each job allocates its own memory, admission has checked it; the worker itself is small.
        let (placements, is_small) = (self.placements(), cargo.is_shared());
        let wanted = if is_small {
            Amount::default()
        } else {
            need(cargo, worker_placement::headroom(&placements).vram_mb)
        };
        let no_memory = AcquireError::NoMemory { ram_mb: wanted.ram_mb, vram_mb: wanted.vram_mb };
        let (placement, leaving) = worker_placement::choose(placements, wanted).ok_or(no_memory)?;
        if leaving.is_empty() {
            return Ok(placement);
        }
        let workers = self.workers();
        for worker in workers.iter().filter(|worker| leaving.contains(&worker.instance)) {
            tracing::info!(instance = %worker.instance, "stopping an idle worker to free memory");
            self.lock().retain(|(_, other)| other.instance != worker.instance);
            worker.send(Command::Stop { now: false });
            await_stop(worker).await;
        }
        let ram_mb = self.free_beside(&placement.share, &self.load.latest(), Memory::read()).ram_mb;
        // The latest sample of the GPU may be older than their end.
        let vram_mb = placement.without(&leaving).vram_mb;
        Ok(Placement { free: Amount { ram_mb, vram_mb }, ..placement })
    }

    /// Ends workers that together use more of a GPU than jobs may, as measured by its driver.
    pub fn enforce_vram_limits(&self) {
        let sample = self.load.latest();
        for card in &sample.gpus.cards {
            let taker = |worker: &Arc<WorkerHandle>| VramUser {
                id: worker.instance,
                jobs: worker.stats().jobs,
                used_mb: measured_mb(card, worker.pid).unwrap_or(0),
                required_mb: worker.launch.cargo.required_vram_mb,
            };
            let workers = self.workers();
            let takers: Vec<_> = workers.iter().map(taker).collect();
            let most_mb = gpus::most_mb(&self.config.gpu_rules, card, self.config.reserve_vram_mb);
            let chosen = vram_enforcement::choose(&takers, most_mb);
            let ended = workers.iter().zip(&takers).filter(|(worker, _)| chosen.contains(&worker.instance));
            for (worker, taker) in ended {
                let used_mb = taker.used_mb;
                tracing::warn!(
                    instance = %worker.instance, cargo = %worker.launch.cargo.slug, gpu = card.index, used_mb, most_mb,
                    "workers use more GPU memory than allowed: ending one"
                );
                worker.send(Command::Kill(WorkerExit::VramExceeded { used_mb }));
            }
        }
    }

    /// The possible placements of a worker, those with the most free GPU memory first.
    fn placements(&self) -> Vec<Placement<InstanceId>> {
        let sample = self.load.latest();
        let memory = sample.memory_now();
        let paused_gpus = self.stance.latest().paused_gpus;
        let shares = gpus::shares(&self.config.gpu_rules, &paused_gpus, &sample.gpus);
        let placement = |share: Share| Placement {
            free: self.free_beside(&share, &sample, memory),
            workers: self.candidates(&share, &sample),
            share,
        };
        shares.into_iter().map(placement).collect()
    }

    /// Free memory, minus what workers have not allocated yet when it was measured.
    fn free_beside(&self, share: &Share, sample: &Sample, memory: Memory) -> Amount {
        let due = |worker: &Arc<WorkerHandle>| {
            let (stats, cargo) = (worker.stats(), &worker.launch.cargo);
            let is_beside = worker.launch.gpus.iter().any(|gpu| Some(gpu.index) == share.gpu);
            let vram_mb = match worker.is_ready() {
                _ if !is_beside => 0,
                false => cargo.required_vram_mb.min(worker.launch.vram_limit_mb()),
                true if is_since(sample, stats.since + stats.load) => stats.vram_mb,
                true => 0,
            };
            let ram_mb = if worker.is_ready() { 0 } else { own_mb(cargo).saturating_sub(stats.rss_mb) };
            Amount { ram_mb, vram_mb }
        };
        let due = self.workers().iter().map(due).sum();
        let reserve = Amount { ram_mb: self.config.reserve_ram_mb, vram_mb: self.config.reserve_vram_mb };
        let measured = Amount { ram_mb: memory.available_mb, vram_mb: share.free_mb };
        measured.less(reserve).less(due)
    }

    /// The loaded workers, each with the memory that stopping it would free in addition to this GPU's.
    fn candidates(&self, share: &Share, sample: &Sample) -> Vec<Candidate<InstanceId>> {
        let cards = &sample.gpus.cards;
        let card = cards.iter().find(|card| Some(card.index) == share.gpu);
        let (model_demand, now) = (self.model_demand(), Instant::now());
        let candidate = |(key, worker): &(ModelKey, Arc<WorkerHandle>)| {
            let stats = worker.stats();
            let vram_mb = card.map_or(0, |card| {
                let is_here = worker.launch.gpus.iter().any(|gpu| gpu.index == card.index);
                let reported = if is_here { stats.vram_mb } else { 0 };
                measured_mb(card, worker.pid).unwrap_or(reported)
            });
            Candidate {
                id: worker.instance,
                jobs: stats.jobs,
                memory: Amount { ram_mb: stats.rss_mb, vram_mb },
                resident: stats.since.elapsed(),
                load: stats.load,
                demand: model_demand.of(key, now),
            }
        };
        self.lock().iter().filter(|(_, worker)| worker.is_ready()).map(candidate).collect()
    }
}

/// Memory of a GPU that a process uses, if its driver reports it.
fn measured_mb(card: &Card, pid: u32) -> Option<u64> {
    *card.seen.computing.as_ref().ok()?.get(&pid)?
}

/// Whether something was started after this sample of the machine.
fn is_since(sample: &Sample, moment: Instant) -> bool {
    sample.taken.is_none_or(|taken| taken < moment)
}

/// Memory that a worker of this Cargo uses; no GPU memory if too little is free and the engine also runs on the processor.
fn need(cargo: &CargoSpec, free_vram_mb: u64) -> Amount {
    let does_without = cargo.runtime_type.gpu_is_optional() && cargo.required_vram_mb > free_vram_mb;
    let vram_mb = if does_without { 0 } else { cargo.required_vram_mb };
    Amount { ram_mb: cargo.required_ram_mb, vram_mb }
}

/// Memory that a worker itself uses, without that of its jobs.
fn own_mb(cargo: &CargoSpec) -> u64 {
    if cargo.is_shared() { SHARED_MB } else { cargo.required_ram_mb }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn gpu_memory_is_optional_for_engines_that_also_run_on_processors() {
        let mut cargo = testing::assignment(1, 1).cargo;
        (cargo.required_ram_mb, cargo.required_vram_mb) = (4000, 6000);
        cargo.runtime_type = island_protocol::cargo::RuntimeType::Llmcpp;
        assert_eq!(need(&cargo, 8000), Amount { ram_mb: 4000, vram_mb: 6000 });
        assert_eq!(need(&cargo, 5000), Amount { ram_mb: 4000, vram_mb: 0 });
        cargo.runtime_type = island_protocol::cargo::RuntimeType::Container;
        assert_eq!(need(&cargo, 5000), Amount { ram_mb: 4000, vram_mb: 6000 });
    }
}
