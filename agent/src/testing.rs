//! Shared by several unit tests.

use std::{path::Path, sync::Arc};

use island_cache::{Cache, CacheConfig};
use island_protocol::{
    cargo::{CargoSpec, Limits, RuntimeType},
    egress::Egress,
    fabric::Assignment,
    host::Capabilities,
    ids::{AttemptKey, HostId, InstanceId, JobId},
    time::Timestamp,
};
use island_runtimes_worker::launch::ContainerRules;
use serde_json::json;
use tokio::sync::watch;

use crate::{
    disk::{derived::Derived, journal::Journal},
    fabric::Fabric,
    identity::Identity,
    inventory::{meter::Sample, runtimes::Runtimes},
    network::egress::EgressMounts,
    owner::{
        earnings::Earnings,
        policy::{Rules, Stance},
    },
    pool::{Pool, PoolConfig},
    supervisor::{Parts, Supervisor},
};

/// Files that engines derive, in a folder.
pub(crate) fn derived(folder: &Path) -> Arc<Derived> {
    Arc::new(Derived::new(folder.join("derived"), folder.join("adopted"), true))
}

/// The way out of containers, in a folder and without an engine that has one.
pub(crate) fn egress_mounts(folder: &Path) -> Arc<EgressMounts> {
    let (sockets, logs) = (folder.join("egress"), folder.join("job-logs"));
    Arc::new(EgressMounts::new(sockets, logs, Egress::None, "none".into(), Arc::default()))
}

/// The id of a new Island.
pub(crate) fn host() -> HostId {
    HostId(uuid::Uuid::new_v4())
}

/// Settings of a cache in a folder, without a hub.
pub(crate) fn cache(folder: &Path) -> CacheConfig {
    CacheConfig {
        dir: folder.join("cache"),
        max_bytes: 1 << 30,
        min_free_bytes: 0,
        beside: Vec::new(),
        hub_endpoint: "http://127.0.0.1:9".into(),
        hub_token: None,
        hub_files: None,
        offline: true,
        max_bytes_per_second: None,
    }
}

/// Creates a pool over a folder, without engines.
pub(crate) async fn pool(
    folder: &Path,
    load: watch::Receiver<Arc<Sample>>,
    stance: watch::Receiver<Stance>,
) -> Arc<Pool> {
    let config = PoolConfig {
        dir: folder.join("w"),
        threads: 1,
        slots: 1,
        shared_slots: 1,
        folders: std::collections::BTreeMap::new(),
        log_dir: folder.join("job-logs"),
        containers: ContainerRules::default(),
        egress_dir: folder.join("egress"),
        reserve_ram_mb: 0,
        reserve_vram_mb: 0,
        gpu_rules: Vec::new(),
        allow_weak_sandbox: true,
    };
    let runtimes = Runtimes::probe(folder, false, &ContainerRules::default()).await;
    Pool::new(config, runtimes, load, stance)
}

/// Creates a supervisor over a folder, without engines and without a connection.
pub(crate) async fn supervisor(
    folder: &Path,
    load: watch::Receiver<Arc<Sample>>,
) -> (Arc<Fabric>, Arc<Supervisor>) {
    let identity = Identity::load_or_create(folder, host).expect("an identity");
    let fabric = Fabric::new(Arc::new(identity), InstanceId(uuid::Uuid::new_v4()));
    let (_, stance) = watch::channel(Stance::default());
    let parts = Parts {
        traces: island_daemon::traces::Traces::default(),
        capabilities: Capabilities::default(),
        cache: Cache::open(cache(folder)).expect("a cache"),
        api_url: "http://127.0.0.1:9".into(),
        derived: derived(folder),
        egress_mounts: egress_mounts(folder),
        pool: pool(folder, load, stance.clone()).await,
        fabric: Arc::clone(&fabric),
        journal: Journal::new(folder.join("journal")),
        spool_dir: folder.join("spool"),
        max_jobs: 1,
        allow_weak_sandbox: true,
        rules: Rules::default(),
        stance,
        earnings: Arc::new(Earnings::load(folder)),
        preload: crate::config::PreloadSection::default(),
    };
    (fabric, Supervisor::new(parts))
}

/// Returns an assignment of job number `job` with the given epoch.
pub(crate) fn assignment(job: u128, epoch: u64) -> Assignment {
    Assignment {
        v: 1,
        key: AttemptKey { job_id: JobId(uuid::Uuid::from_u128(job)), attempt: 1, epoch },
        instance: None,
        first_event: 1,
        cargo: CargoSpec {
            price_per_job: island_protocol::credits::MicroCredits::ZERO,
            token_prices: island_protocol::cargo::TokenPrices::default(),
            slug: "sim-chat".parse().expect("a slug"),
            runtime_type: RuntimeType::Llmcpp,
            onnx_task_type: None,
            artifacts: Vec::new(),
            required_vram_mb: 0,
            required_ram_mb: 16,
            limits: Limits::default(),
            sandbox_tier: None,
            engine: json!({"simulated": true}),
        },
        input: json!({"prompt": "hello", "max_tokens": 3}),
        continues: None,
        continues_reasoning: None,
        scope: "a".into(),
        isolated: false,
        deadline: Timestamp::from_unix_ms(i64::MAX),
        sent_at: Timestamp::from_unix_ms(0),
    }
}
