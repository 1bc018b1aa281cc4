//! Memory of workers: what is free on each GPU, what workers will allocate, and which workers stop to free memory.

use std::{collections::BTreeSet, sync::Arc};

use island_daemon::latest::Latest;
use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    demand::{self, DRIVER_MB, Need, Parts, Vram},
    ids::InstanceId,
};
use island_runtimes_worker::{
    launch::{GpuGrant, Launch},
    lockdown::WorkerMemory,
};
use tokio::time::Instant;

use super::{
    AcquireError, ModelKey, Pool,
    promises::{Promise, unallocated_mb},
};
use crate::{
    inventory::{
        gpu::Card,
        meter::{Memory, Sample},
    },
    memory::{
        eviction::{Amount, Candidate},
        vram_enforcement::{self, VramUser},
        worker_placement::{Choice, Machine},
    },
    owner::policy::gpus,
    worker::{Command, WorkerExit, WorkerHandle},
};

/// Memory of a worker that runs all Cargos of an engine, before any job, megabytes.
pub(super) const SHARED_MB: u64 = 64;

/// What a new worker gets.
#[derive(Debug, Clone, Default)]
pub(super) struct Granted {
    /// Free main memory, megabytes.
    pub(super) ram_mb: u64,
    /// Main memory that was planned for it, megabytes.
    pub(super) needed_mb: u64,
    /// Its GPUs, each with the memory that it may use.
    pub(super) gpus: Vec<GpuGrant>,
}

impl Pool {
    /// Whether a job with this key needs no additional memory: its worker runs, and jobs do not allocate their own.
    pub fn has_place(&self, key: &ModelKey, cargo: &CargoSpec) -> bool {
        !cargo.is_shared() && self.find(key).is_some()
    }

    /// The memory that a job with this key would take of `headroom`; more than that if it does not fit.
    pub fn demand(&self, key: &ModelKey, cargo: &CargoSpec, headroom: &Amount) -> Need {
        if self.has_place(key, cargo) {
            return Need::default();
        }
        let parts = self.load.latest().gpus.parts();
        demand::need(cargo, &headroom.vram_of(&self.gpus_for(cargo)), &parts)
    }

    /// Memory that one more job may use: minus what starting workers and running jobs will allocate, plus what idle ones would free. Measured
    /// now, which reads some files.
    pub fn headroom(&self) -> Amount {
        self.machine(self.promised_mb(None)).headroom()
    }

    /// The same with what is promised to jobs that allocate their own memory, for a caller that subtracts it for each attempt.
    pub fn headroom_with_promises(&self) -> Amount {
        self.machine(0).headroom()
    }

    /// The GPUs on which the engine of this Cargo runs models.
    pub(super) fn gpus_for(&self, cargo: &CargoSpec) -> BTreeSet<u32> {
        if cargo.required_vram_mb == 0 {
            return BTreeSet::new();
        }
        self.runtimes.gpus_for(cargo, &self.load.latest().gpus.cards)
    }

    /// Returns what a worker of this Cargo gets, once the workers that are stopped for it have ended.
    pub(super) async fn free_memory_for(&self, cargo: &CargoSpec) -> Result<Granted, AcquireError> {
        if cargo.is_shared() {
            // Each job allocates its own memory, for which there is room by now; the worker itself is small.
            let machine = self.machine(0);
            let sample = self.load.latest();
            let owned = self.runtimes.gpus_for(cargo, &sample.gpus.cards);
            let gpus = gpus::grants(&machine.free.vram_of(&owned), &sample.gpus);
            return Ok(Granted { ram_mb: machine.free.ram_mb, needed_mb: SHARED_MB, gpus });
        }
        let owned = self.gpus_for(cargo);
        let (machine, choice) = self.stop_idle_for(cargo, &owned, None).await?;
        let sample = self.load.latest();
        // Main memory is measured again; the latest sample of the GPUs may be older than their end.
        let ram_mb = if choice.leaving.is_empty() {
            machine.free.ram_mb
        } else {
            self.free(&sample, Memory::read(), self.promised_mb(None)).ram_mb
        };
        let free = machine.without(&choice.leaving);
        let granted: Vram = choice.need.vram.keys().map(|gpu| (*gpu, free.of(*gpu))).collect();
        Ok(Granted { ram_mb, needed_mb: choice.need.ram_mb, gpus: gpus::grants(&granted, &sample.gpus) })
    }

    /// Promises memory to a job that allocates its own, and stops idle workers if it does not fit beside them: admission counted their memory as
    /// available.
    pub(super) async fn make_room_for_job(&self, cargo: &CargoSpec) -> Result<Option<Promise>, AcquireError> {
        if !cargo.is_shared() {
            return Ok(None);
        }
        let promise = self.promises.give(cargo.ram_mb());
        if self.machine(self.promised_mb(Some(&promise))).free.ram_mb < cargo.ram_mb() {
            let _one_at_a_time = self.starting.lock().await;
            // GPUs of containers are not divided among jobs.
            let main_memory_only = CargoSpec { required_vram_mb: 0, ..cargo.clone() };
            self.stop_idle_for(&main_memory_only, &BTreeSet::new(), Some(&promise)).await?;
        }
        Ok(Some(promise))
    }

    /// Stops the idle workers that must leave for this Cargo, and waits for their ends. `promise` is that of its job, if it has one. Returns the
    /// machine as it was before.
    async fn stop_idle_for(
        &self,
        cargo: &CargoSpec,
        owned: &BTreeSet<u32>,
        promise: Option<&Promise>,
    ) -> Result<(Machine<InstanceId>, Choice<InstanceId>), AcquireError> {
        loop {
            let machine = self.machine(self.promised_mb(promise));
            let choice = machine.choose(cargo, owned).map_err(|_| {
                let need = demand::need(cargo, &machine.headroom().vram_of(owned), &machine.parts);
                AcquireError::NoMemory { ram_mb: need.ram_mb, vram_mb: need.vram.values().sum() }
            })?;
            // A job may have taken one of them after it was chosen.
            let Some(leaving) = self.retire_idle(&choice.leaving.iter().copied().collect()) else { continue };
            let ends = leaving.iter().map(|worker| {
                tracing::info!(instance = %worker.instance, "stopping an idle worker to free memory");
                self.end(worker)
            });
            // All of them end at once, also if this is dropped.
            let ends: Vec<_> = ends.collect();
            futures::future::join_all(ends).await;
            // One that hangs keeps its memory, and is not chosen again.
            if !leaving.iter().any(|worker| worker.hangs()) {
                return Ok((machine, choice));
            }
        }
    }

    /// Ends workers that together use more of a GPU than jobs may, as measured by its driver, or that were granted more where nothing
    /// measures it.
    pub fn enforce_vram_limits(&self) {
        let sample = self.load.latest();
        for card in &sample.gpus.cards {
            let taker = |worker: &Arc<WorkerHandle>| VramUser {
                id: worker.instance,
                jobs: worker.stats().jobs,
                used_mb: counted_mb(card, &worker.launch, worker.pid).unwrap_or(0),
                required_mb: planned(&worker.launch).vram.get(&card.index).copied().unwrap_or(0),
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

    /// Main memory that jobs which allocate their own have not allocated yet, megabytes: of those in workers, and of those that wait for
    /// one, before `promise` if it is given.
    fn promised_mb(&self, promise: Option<&Promise>) -> u64 {
        let waiting_mb = promise.map_or_else(|| self.promises.all_mb(), Promise::earlier_mb);
        self.workers().iter().map(|worker| claimed_mb(worker)).fold(waiting_mb, u64::saturating_add)
    }

    /// Free memory without `promised_mb` of main memory, and the workers that may be stopped for more.
    fn machine(&self, promised_mb: u64) -> Machine<InstanceId> {
        let sample = self.load.latest();
        let mut busy = Vram::new();
        for worker in self.workers() {
            for gpu in &worker.launch.gpus {
                *busy.entry(gpu.index).or_default() += 1;
            }
        }
        let free = self.free(&sample, sample.memory_now(), promised_mb);
        Machine { free, workers: self.candidates(&sample), busy, parts: sample.gpus.parts() }
    }

    /// Free memory, minus what is reserved or promised, and what workers have not allocated yet when it was measured.
    fn free(&self, sample: &Sample, memory: Memory, promised_mb: u64) -> Amount {
        let paused_gpus = self.stance.latest().paused_gpus;
        let measured = gpus::usable(&self.config.gpu_rules, &paused_gpus, &sample.gpus);
        // Each worker's driver takes some memory, too.
        let reserved = self.config.reserve_vram_mb + DRIVER_MB;
        let vram = measured.into_iter().map(|(gpu, mb)| (gpu, mb.saturating_sub(reserved))).collect();
        let ram_mb = memory.available_mb.saturating_sub(self.config.reserve_ram_mb);
        let due: Amount = self.workers().iter().map(|worker| due(worker, sample)).sum();
        let due = due.plus(&Amount::ram(self.warm_containers_mb().saturating_add(promised_mb)));
        let shared = |gpu: &u32| {
            let card = sample.gpus.cards.iter().find(|card| card.index == *gpu);
            card.is_some_and(|card| card.seen.vendor.shares_memory())
        };
        let mut free = Amount { ram_mb, vram }.less(&due);
        // What is due on a GPU that uses main memory is taken from that.
        let due_mb = due
            .vram
            .iter()
            .filter(|(gpu, _)| shared(gpu))
            .fold(0_u64, |sum, (_, mb)| sum.saturating_add(*mb));
        free.ram_mb = free.ram_mb.saturating_sub(due_mb);
        for (_, mb) in free.vram.iter_mut().filter(|(gpu, _)| shared(gpu)) {
            *mb = (*mb).min(free.ram_mb);
        }
        free
    }

    /// Memory that containers started in advance may use, megabytes.
    fn warm_containers_mb(&self) -> u64 {
        let has_containers =
            self.workers().iter().any(|worker| worker.launch.cargo.runtime_type == RuntimeType::Container);
        if !has_containers {
            return 0;
        }
        self.warm_containers.lock().reserved_mb(self.config.containers.ahead, Instant::now())
    }

    /// The loaded workers, each with the memory that stopping it would free: none of one that hangs.
    fn candidates(&self, sample: &Sample) -> Vec<Candidate<InstanceId>> {
        let (model_demand, now) = (self.model_demand(), Instant::now());
        let candidate = |(key, worker): &(ModelKey, Arc<WorkerHandle>)| {
            let stats = worker.stats();
            let reported = spread(&worker.launch.gpus, stats.vram_mb);
            let of_card = |card: &Card| {
                let reported = reported.get(&card.index).copied().unwrap_or(0);
                (card.index, counted_mb(card, &worker.launch, worker.pid).unwrap_or(reported))
            };
            let vram = sample.gpus.cards.iter().map(of_card).collect();
            Candidate {
                id: worker.instance,
                jobs: stats.jobs,
                memory: Amount { ram_mb: freed_mb(worker), vram },
                resident: stats.since.elapsed(),
                load: stats.load,
                demand: model_demand.of(key, now),
            }
        };
        let may_end = |worker: &WorkerHandle| worker.is_ready() && !worker.hangs();
        self.lock().iter().filter(|(_, worker)| may_end(worker)).map(candidate).collect()
    }
}

/// Main memory that the end of a worker makes available: what it allocated. Pages of files that it mapped are counted as available already.
fn freed_mb(worker: &WorkerHandle) -> u64 {
    worker.allocated_mb()
}

/// Main memory that the jobs of a worker may still allocate, of what they claim.
fn claimed_mb(worker: &WorkerHandle) -> u64 {
    let claimed_mb = worker.stats().claimed_mb;
    if claimed_mb == 0 {
        return 0;
    }
    // Only what is measured: of what a worker reports of itself, nothing is subtracted.
    let allocated_mb = worker.memory.as_ref().and_then(WorkerMemory::allocated_mb).unwrap_or(0);
    unallocated_mb(&worker.launch.cargo.runtime_type, claimed_mb, allocated_mb.saturating_sub(SHARED_MB))
}

/// What a worker will allocate that this sample does not include.
fn due(worker: &WorkerHandle, sample: &Sample) -> Amount {
    let (stats, launch) = (worker.stats(), &worker.launch);
    let held = held(launch, &sample.gpus.cards);
    if worker.is_ready() {
        let is_new = is_since(sample, stats.since + stats.load);
        let mut vram = if is_new { spread(&launch.gpus, stats.vram_mb) } else { Vram::new() };
        vram.extend(held);
        return Amount { ram_mb: 0, vram };
    }
    let Need { ram_mb, vram } = planned(launch);
    let mut vram: Vram = vram.into_iter().map(|(gpu, mb)| (gpu, mb.saturating_add(DRIVER_MB))).collect();
    vram.extend(held);
    Amount { ram_mb: ram_mb.saturating_sub(worker.resident_mb()), vram }
}

/// What a worker holds of the GPUs whose limit decides: all that it was granted, from its start to its end. No sample includes any of it, and
/// what engines report there is not accurate enough.
fn held(launch: &Launch, cards: &[Card]) -> Vram {
    let by_limit = |gpu: &&GpuGrant| cards.iter().any(|card| card.by_limit && card.index == gpu.index);
    launch.gpus.iter().filter(by_limit).map(|gpu| (gpu.index, gpu.memory_mb)).collect()
}

/// What a worker was planned to need, given its grants. Only the small worker itself if its jobs allocate their own memory.
fn planned(launch: &Launch) -> Need {
    if launch.cargo.is_shared() {
        return Need { ram_mb: SHARED_MB, vram: Vram::new() };
    }
    // A part of a card was granted alone, so which of them are parts makes no difference.
    let granted = launch.gpus.iter().map(|gpu| (gpu.index, gpu.memory_mb)).collect();
    demand::need(&launch.cargo, &granted, &Parts::new())
}

/// Divides an amount among granted GPUs, in proportion to the grants: engines do the same.
fn spread(gpus: &[GpuGrant], vram_mb: u64) -> Vram {
    let all = gpus.iter().fold(0_u64, |all, gpu| all.saturating_add(gpu.memory_mb));
    let part = |gpu: &GpuGrant| (gpu.index, vram_mb.saturating_mul(gpu.memory_mb) / all.max(1));
    gpus.iter().map(part).collect()
}

/// Memory of a GPU that counts as used by the worker in process `pid`: all that it holds of one whose limit decides, otherwise what the
/// driver reports, if it does.
fn counted_mb(card: &Card, launch: &Launch, pid: u32) -> Option<u64> {
    if card.by_limit {
        let held = held(launch, std::slice::from_ref(card));
        return Some(held.get(&card.index).copied().unwrap_or(0));
    }
    measured_mb(card, pid)
}

/// Memory of a GPU that a process uses, if its driver reports it.
fn measured_mb(card: &Card, pid: u32) -> Option<u64> {
    card.seen.computing.as_ref().ok()?;
    card.seen.processes().get(&pid).copied().flatten()
}

/// Whether something was started after this sample of the machine.
fn is_since(sample: &Sample, moment: Instant) -> bool {
    sample.taken.is_none_or(|taken| taken < moment)
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::{
        inventory::gpu::{Vendor, View},
        owner::policy::{
            Stance,
            gpus::{GpuRule, tests::card},
        },
        testing,
        worker::{WorkerClaim, WorkerState},
    };

    #[tokio::test]
    async fn memory_of_jobs_that_allocate_their_own_is_not_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = watch::channel(Stance::default());
        let pool = testing::pool(folder.path(), load, stance).await;
        let is_free = || pool.headroom().ram_mb > 0;
        assert!(is_free());
        // Of a job that waits for memory and its worker.
        let promise = pool.promises.give(u64::MAX);
        assert!(!is_free());
        assert!(pool.headroom_with_promises().ram_mb > 0, "admission subtracts it itself");
        assert!(
            pool.machine(pool.promised_mb(Some(&promise))).free.ram_mb > 0,
            "it does not wait for itself"
        );
        let later = pool.promises.give(1);
        assert_eq!(pool.machine(pool.promised_mb(Some(&later))).free.ram_mb, 0);
        drop((promise, later));
        assert!(is_free());
        // Of a job in a worker.
        let mut cargo = testing::assignment(1, 1).cargo;
        cargo.engine = serde_json::Value::Null;
        (cargo.runtime_type, cargo.required_ram_mb) = (RuntimeType::Wasm, u64::MAX);
        let (worker, _runs) = WorkerHandle::without_process(cargo.clone());
        pool.lock().push((ModelKey::of(&cargo, None), Arc::clone(&worker)));
        assert!(is_free());
        let claim = WorkerClaim::new(worker, &cargo);
        assert!(!is_free());
        drop(claim);
        assert!(is_free());
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_get_what_the_meter_found_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let (samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = watch::channel(Stance::default());
        let pool = testing::pool(folder.path(), load, stance).await;
        for available_mb in [0, 700] {
            let memory = Memory { total_mb: 1000, available_mb };
            let sample = Sample { taken: Some(Instant::now()), memory, ..Sample::default() };
            samples.send_replace(Arc::new(sample));
            assert_eq!(pool.headroom().ram_mb, available_mb);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_is_measured_of_a_worker_counts_and_not_what_it_reports() {
        /// Memory that this process, which is in the place of the worker, allocates, megabytes.
        const HOARD_MB: u64 = 256;
        const CLAIMED_MB: u64 = 100_000;
        let hoard = std::hint::black_box(vec![1_u8; (HOARD_MB as usize) << 20]);
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = watch::channel(Stance::default());
        let pool = testing::pool(folder.path(), load, stance).await;
        let mut cargo = testing::assignment(1, 1).cargo;
        cargo.engine = serde_json::Value::Null;
        (cargo.runtime_type, cargo.required_ram_mb) = (RuntimeType::Wasm, CLAIMED_MB);
        let memory = WorkerMemory::open(std::process::id()).expect("this process is visible");
        let (worker, _commands) = WorkerHandle::measured(cargo.clone(), memory);
        pool.lock().push((ModelKey::of(&cargo, None), Arc::clone(&worker)));
        assert_eq!(worker.stats().rss_mb, 0, "it has reported nothing");
        let freed_mb = pool.candidates(&Sample::default())[0].memory.ram_mb;
        assert!(freed_mb >= HOARD_MB, "its end frees {freed_mb} MB");
        let _claim = WorkerClaim::new(worker, &cargo);
        let promised_mb = pool.promised_mb(None);
        assert!(
            promised_mb <= CLAIMED_MB - (HOARD_MB - SHARED_MB),
            "what its jobs have allocated is not due again: {promised_mb} MB"
        );
        drop(hoard);
    }

    #[tokio::test]
    async fn no_job_waits_for_the_memory_of_a_worker_that_hangs() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = watch::channel(Stance::default());
        let pool = testing::pool(folder.path(), load, stance).await;
        let cargo = testing::assignment(1, 1).cargo;
        let (_lives, state) = watch::channel(WorkerState::Ready);
        let (worker, _commands) = WorkerHandle::in_state(cargo.clone(), Vec::new(), state);
        pool.lock().push((ModelKey::of(&cargo, None), Arc::clone(&worker)));
        let candidates = || pool.candidates(&Sample::default()).len();
        assert_eq!(candidates(), 1);
        worker.note_hang();
        assert_eq!(candidates(), 0, "its end would free nothing");
        assert_eq!(pool.workers().len(), 1, "it is still counted");
    }

    fn grant(index: u32, memory_mb: u64) -> GpuGrant {
        GpuGrant { index, address: None, memory_mb }
    }

    #[test]
    fn a_starting_worker_is_due_what_was_planned_and_not_all_that_it_may_use() {
        let mut cargo = testing::assignment(1, 1).cargo;
        (cargo.required_ram_mb, cargo.required_vram_mb) = (16_000, 6000);
        let mut launch = Launch::new(InstanceId(uuid::Uuid::nil()), cargo);
        assert_eq!(planned(&launch), Need { ram_mb: 16_000, vram: Vram::new() });
        launch.gpus = vec![grant(1, 20_000)];
        assert_eq!(planned(&launch), Need { ram_mb: 1512, vram: [(1, 6000)].into() });
    }

    #[test]
    fn a_grant_counts_as_used_where_the_owners_limit_decides() {
        let mut cards = [
            card(0, Vendor::Intel, 16_000, Err("it is hidden".into()), None),
            card(1, Vendor::Nvidia, 16_000, Ok(3000), Some(3000)),
        ];
        cards[0].by_limit = true;
        cards[1].seen.computing = Ok([(7, Some(3000))].into());
        let mut launch = Launch::new(InstanceId(uuid::Uuid::nil()), testing::assignment(1, 1).cargo);
        launch.gpus = vec![grant(0, 12_000), grant(1, 8000)];
        assert_eq!(held(&launch, &cards), [(0, 12_000)].into());
        let counted = |launch: &Launch| cards.each_ref().map(|card| counted_mb(card, launch, 7));
        assert_eq!(counted(&launch), [Some(12_000), Some(3000)]);
        launch.gpus.clear();
        assert_eq!(counted(&launch), [Some(0), Some(3000)], "it was granted none");
        cards[0].by_limit = false;
        assert_eq!(counted_mb(&cards[0], &launch, 7), None);
        assert!(held(&launch, &cards).is_empty());
    }

    #[tokio::test]
    async fn grants_together_stay_within_the_limit_of_an_owner_that_decides() {
        const LIMIT_MB: u64 = 6000;
        let folder = tempfile::tempdir().expect("a folder");
        let rule = GpuRule {
            gpu: "0".parse().expect("a name"),
            never: false,
            max_vram_mb: Some(LIMIT_MB),
            max_temperature_c: None,
            max_power_w: None,
        };
        let mut hidden = card(0, Vendor::Intel, 16_000, Err("it is hidden".into()), None);
        hidden.by_limit = gpus::is_by_limit(std::slice::from_ref(&rule), &hidden);
        let view = View { cards: vec![hidden], ..View::default() };
        let sample = Sample { gpus: view, taken: Some(Instant::now()), ..Sample::default() };
        let (_samples, load) = watch::channel(Arc::new(sample.clone()));
        let (_stances, stance) = watch::channel(Stance::default());
        let mut pool = testing::pool(folder.path(), load, stance).await;
        Arc::get_mut(&mut pool).expect("no clone yet").config.gpu_rules = vec![rule];
        let free_mb = || pool.machine(0).free.of(0);
        let all_mb = free_mb();
        assert_eq!(all_mb, LIMIT_MB - pool.config.reserve_vram_mb - DRIVER_MB);
        let cargo = testing::assignment(1, 1).cargo;
        let (lives, state) = watch::channel(WorkerState::Ready);
        let (worker, _commands) = WorkerHandle::in_state(cargo.clone(), vec![grant(0, all_mb)], state);
        pool.lock().push((ModelKey::of(&cargo, None), worker));
        assert_eq!(free_mb(), 0, "all of it is granted");
        assert_eq!(pool.candidates(&sample)[0].memory.of(0), all_mb, "its end makes it available");
        drop(lives);
    }

    #[test]
    fn memory_on_several_gpus_is_divided_by_their_grants() {
        assert_eq!(spread(&[grant(0, 3000), grant(2, 1000)], 2000), [(0, 1500), (2, 500)].into());
        assert!(spread(&[], 2000).is_empty());
    }
}
