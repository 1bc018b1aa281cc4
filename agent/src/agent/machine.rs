//! This machine as an agent finds it: its load, its engines, and what containers may do.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_daemon::latest::Latest as _;
use island_protocol::{
    asking::Asking,
    cargo::RuntimeType,
    egress::Egress,
    host::{Capabilities, ContainerOffer},
};
use island_runtimes_egress::Internet;
use island_runtimes_worker::launch::ContainerRules;
use tokio::sync::watch;

use super::folders::Folders;
use crate::{
    config::Config,
    inventory::{self, gpu::Gpus, meter::Meter, runtimes::Runtimes},
    network::egress::{self, EgressMounts},
    owner::policy::{Rules, Stance, gpus},
    pool::{Pool, PoolConfig},
};

/// Hardware and engines of this machine, with the owner's rules for containers as far as they are possible here.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) meter: Arc<Meter>,
    runtimes: Runtimes,
    containers: ContainerRules,
    forwarder: PathBuf,
}

impl Machine {
    /// Runs engines once to query what they support, and takes the first sample of the load.
    pub(super) async fn discover(config: &Config) -> Self {
        let (containers, forwarder) = with_forwarder(config.containers.clone(), &config.bin_dir());
        let containers = without_gpus(containers, config.policy.yield_gpu);
        let runtimes = Runtimes::probe(&config.bin_dir(), config.simulated, &containers).await;
        let gpus = Gpus::here(&config.state_dir, &runtimes.devices())
            .with_own(runtimes.own_processes())
            .with_consent(gpus::consent(config.policy.gpu.clone()));
        let meter = Arc::new(Meter::new(gpus, config.cache_dir()));
        meter.sample().await;
        Self { meter, runtimes, containers, forwarder }
    }

    /// Returns what this Island offers: its hardware and engines, restricted by the owner's rules.
    pub(super) fn capabilities(&self, rules: &Rules) -> Capabilities {
        let seen = self.meter.latest().latest().gpus.clone();
        let (gpus, no_gpu_reason) = gpus::offered(&rules.gpu, &seen);
        let offer =
            ContainerOffer { max_tier: self.containers.max_tier, egress: self.containers.egress.clone() };
        Capabilities {
            containers: Some(offer),
            asking: (rules.asking != Asking::default()).then(|| rules.asking.clone()),
            gpus,
            no_gpu_reason,
            ..inventory::discover(&seen, self.runtimes.report(&seen.cards), self.runtimes.sandbox())
        }
    }

    /// Returns the access of containers to the network.
    pub(super) fn egress_mounts(&self, folders: &Folders, internet: &Arc<Internet>) -> EgressMounts {
        EgressMounts::new(
            folders.egress.clone(),
            folders.job_logs.clone(),
            self.containers.egress.clone(),
            self.forwarder.clone(),
            Arc::clone(internet),
        )
    }

    /// Returns the pool of workers of these engines.
    pub(super) fn into_pool(
        self,
        config: &Config,
        folders: &Folders,
        stance: watch::Receiver<Stance>,
    ) -> Arc<Pool> {
        let settings = PoolConfig {
            dir: folders.workers.clone(),
            threads: config.threads(inventory::cores()),
            slots: config.workers.slots_per_model,
            shared_slots: config.workers.max_jobs,
            folders: shared_folders(&folders.derived, &folders.adopted, &config.cache_dir()),
            log_dir: folders.job_logs.clone(),
            containers: self.containers,
            egress_dir: folders.egress.clone(),
            reserve_ram_mb: config.memory.reserve_ram_mb,
            reserve_vram_mb: config.memory.reserve_vram_mb,
            gpu_rules: config.policy.gpu.clone(),
            allow_weak_sandbox: config.allow_weak_sandbox,
        };
        Pool::new(settings, self.runtimes, self.meter.latest(), stance)
    }
}

/// Returns the owner's rules for containers with the path of the forwarder. Without a forwarder no egress is possible, so none is offered.
fn with_forwarder(rules: ContainerRules, bin_dir: &Path) -> (ContainerRules, PathBuf) {
    match egress::forwarder(bin_dir) {
        Ok(forwarder) => (rules, forwarder),
        Err(reason) => {
            if rules.egress != Egress::None {
                tracing::warn!(reason, "containers cannot connect to any address");
            }
            (ContainerRules { egress: Egress::None, ..rules }, PathBuf::new())
        }
    }
}

/// The programs of containers cannot be distinguished from the owner's, so with `yield_gpu` containers get no GPU.
fn without_gpus(rules: ContainerRules, yield_gpu: bool) -> ContainerRules {
    if rules.gpus && yield_gpu {
        tracing::warn!("containers get no GPU, because [policy] yield_gpu is set");
    }
    ContainerRules { gpus: rules.gpus && !yield_gpu, ..rules }
}

/// The folders that workers of all Cargos of an engine read: compiled modules, and images. Neither what the cache notes about its files nor
/// files that are not verified yet.
fn shared_folders(derived: &Path, adopted: &Path, cache: &Path) -> BTreeMap<RuntimeType, Vec<PathBuf>> {
    BTreeMap::from([
        (RuntimeType::Wasm, vec![derived.to_owned()]),
        (RuntimeType::Container, vec![adopted.to_owned(), island_cache::verified_files(cache)]),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_workers_read_no_files_of_the_cache_but_verified_ones() {
        let cache = Path::new("/state/cache");
        let folders = shared_folders(Path::new("/state/derived"), Path::new("/state/adopted"), cache);
        assert!(folders[&RuntimeType::Wasm].iter().all(|folder| !folder.starts_with(cache)));
        let verified = island_cache::verified_files(cache);
        for folder in folders.values().flatten() {
            assert!(*folder == verified || !folder.starts_with(cache), "{}", folder.display());
            assert!(!cache.starts_with(folder), "{}", folder.display());
        }
        assert_eq!(folders.keys().collect::<Vec<_>>(), [&RuntimeType::Container, &RuntimeType::Wasm]);
    }
}
