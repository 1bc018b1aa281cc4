//! Snapshots of this Island for registrations, heartbeats and renewals.

use std::collections::BTreeSet;

use parking_lot::MutexGuard;

use island_protocol::{
    fabric::LeasedJob,
    host::{Capabilities, Gpu, Headroom, HostModel, Measured, RunningJob},
    ids::AttemptKey,
};
use tokio::sync::watch;

use super::{Supervisor, loaded_models};
use crate::{clock, inventory::gpu::View, owner::policy::gpus};

impl Supervisor {
    /// Changes when a heartbeat must be sent at once.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The capabilities, for registration.
    pub fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.parts.capabilities.clone();
        if let Some(report) = self.parts.pool.sandbox() {
            capabilities.sandbox = report;
        }
        capabilities.hub_reachable = *self.hub();
        capabilities.measured = self.measured();
        (capabilities.gpus, capabilities.no_gpu_reason) = self.gpus().clone();
        capabilities.runtimes = self.parts.pool.runtimes().report(&self.parts.pool.cards());
        let offered: BTreeSet<u32> = capabilities.gpus.iter().map(|gpu| gpu.index).collect();
        for gpus in capabilities.runtimes.iter_mut().filter_map(|report| report.gpus.as_mut()) {
            gpus.retain(|gpu| offered.contains(gpu));
        }
        capabilities
    }

    /// Records the GPUs that were found; returns `true` if the offered ones changed.
    pub fn set_gpus(&self, view: &View) -> bool {
        let offered = gpus::offered(&self.parts.rules.gpu, view);
        let mut known = self.gpus();
        let (now, before) = (names(&offered.0), names(&known.0));
        if now != before {
            tracing::info!(gpus = ?now, ?before, reason = offered.1, "the offered GPUs changed");
        }
        let changed = *known != offered;
        *known = offered;
        changed
    }

    /// Records the measured speed of the machine.
    pub fn set_measured(&self, measured: Measured) {
        *self.measured.lock() = Some(measured);
    }

    /// Records the measured speed of the link; sent with the next registration.
    pub fn set_link_mb_s(&self, speed: u64) {
        let mut measured = self.measured.lock();
        if let Some(measured) = measured.as_mut() {
            measured.link_mb_s = Some(speed);
        }
    }

    /// The measured speed of the machine.
    pub fn measured(&self) -> Option<Measured> {
        self.measured.lock().clone()
    }

    /// Records whether the hub answers; returns `true` if that changed.
    pub fn set_hub_reachable(&self, reachable: bool) -> bool {
        self.hub().replace(reachable) != Some(reachable)
    }

    /// Running attempts, for registration.
    pub fn holding(&self) -> Vec<AttemptKey> {
        self.attempts().iter().map(|attempt| attempt.key()).collect()
    }

    /// Running attempts, for heartbeats.
    pub fn running(&self) -> Vec<RunningJob> {
        let now = clock::boot_ms();
        self.attempts().iter().map(|attempt| attempt.running(now)).collect()
    }

    /// Running attempts, for renewals.
    pub fn leased(&self) -> Vec<LeasedJob> {
        self.attempts().iter().map(|attempt| attempt.leased()).collect()
    }

    /// Models on disk, for heartbeats.
    pub fn models(&self) -> Vec<HostModel> {
        loaded_models::list(&self.parts.cache.list(), &self.parts.pool.workers())
    }

    /// Memory and slots for further jobs, for heartbeats.
    pub fn headroom(&self) -> Headroom {
        let live = self.lock().live();
        let headroom = self.parts.pool.headroom();
        Headroom {
            job_slots: self.parts.max_jobs.saturating_sub(live),
            ram_mb: headroom.ram_mb,
            vram_mb: headroom.vram.values().copied().max().unwrap_or(0),
            gpus: Some(headroom.vram),
        }
    }

    /// Sizes of the tables, by name, for finding leaks.
    pub fn sizes(&self) -> [(&'static str, usize); 6] {
        let (attempts, ended) = self.lock().sizes();
        let workers = self.parts.pool.workers();
        [
            ("attempts", attempts),
            ("ended_jobs", ended),
            ("attempt_tasks", self.tasks.len()),
            ("workers", workers.len()),
            ("attempts_in_workers", workers.iter().map(|worker| worker.stats().held as usize).sum()),
            ("models_in_demand", self.parts.pool.models_in_demand()),
        ]
    }

    fn gpus(&self) -> MutexGuard<'_, (Vec<Gpu>, Option<String>)> {
        self.gpus.lock()
    }

    fn hub(&self) -> MutexGuard<'_, Option<bool>> {
        self.hub_reachable.lock()
    }
}

fn names(gpus: &[Gpu]) -> Vec<String> {
    gpus.iter().map(|gpu| format!("{} {}", gpu.index, gpu.name)).collect()
}
