//! Creates the parts of an agent.

use std::{path::Path, sync::Arc, time::Duration};

use island_cache::{Beside, Cache, CacheConfig, OpenError};
use island_daemon::traces::{Exporter, Traces};
use island_protocol::ids::{HostId, InstanceId};
use island_runtimes_egress::Internet;
use tokio::time::Instant;

use super::{Agent, StartError, coordinator_url, folders::Folders, machine::Machine};
use crate::{
    config::{self, ApiKeyError, Config, OtlpSection},
    control::{
        check::Checker,
        history::History,
        status::{InForce, Sources},
    },
    disk::{derived::Derived, journal::Journal, state_lock::StateLock},
    fabric::Fabric,
    governor::Governor,
    identity::Identity,
    inventory::meter::Meter,
    link::{credentials::Enrollment, session::About},
    network::destinations::PublicHosts,
    owner::{earnings::Earnings, notices::Notices},
    preload::Preloader,
    supervisor::{Parts, Supervisor},
};

impl Agent {
    /// Builds every part. Starts no task; engines are run once to query what they support.
    pub async fn build(settings: InForce) -> Result<Self, StartError> {
        let mut config = settings.config.clone();
        config.api_url = coordinator_url(&config);
        let folders = Folders::create(&config.state_dir, &config.cache_dir())?;
        let lock = StateLock::acquire(&config.state_dir)?;
        let identity = Identity::load_or_create(&config.state_dir, || HostId(uuid::Uuid::new_v4()))?;
        let identity = Arc::new(identity);
        let fabric = Fabric::new(Arc::clone(&identity), InstanceId(uuid::Uuid::new_v4()));
        let internet = Arc::new(Internet::default());
        let machine = Machine::discover(&config).await;
        let meter = Arc::clone(&machine.meter);
        let cache = open_cache(&config, &internet)?;
        let earnings = Arc::new(Earnings::load(&config.state_dir));
        let governor = Arc::new(governor(&config, &meter));
        let (traces, exporter) = traces(&config.otlp);
        let log_dir = folders.job_logs.clone();
        let supervisor = Supervisor::new(Parts {
            capabilities: machine.capabilities(&config.policy),
            cache: cache.clone(),
            api_url: config.api_url.as_str().into(),
            egress_mounts: Arc::new(machine.egress_mounts(&folders, &internet)),
            pool: machine.into_pool(&config, &folders, governor.stance()),
            derived: Arc::new(Derived::new(folders.derived, folders.adopted, config.allow_weak_sandbox)),
            fabric: Arc::clone(&fabric),
            journal: Journal::new(folders.journal),
            spool_dir: folders.spool,
            max_jobs: config.workers.max_jobs,
            allow_weak_sandbox: config.allow_weak_sandbox,
            rules: config.policy.clone(),
            stance: governor.stance(),
            earnings: Arc::clone(&earnings),
            preload: config.preload.clone(),
            traces,
        });
        let preloader = Arc::new(Preloader::new(
            identity.host_id(),
            config.client_of(&config.api_url)?,
            cache.clone(),
            Arc::clone(&supervisor),
            config.preload.clone(),
        ));
        let notices = Arc::new(Notices::new(config.client_of(&config.api_url)?));
        let sources = Sources {
            name: config.name.clone(),
            api_url: config.api_url.clone(),
            state_dir: config.state_dir.clone(),
            settings,
            fabric: Arc::clone(&fabric),
            supervisor: Arc::clone(&supervisor),
            load: meter.latest(),
            cache: cache.clone(),
            preloader: Arc::clone(&preloader),
            notices: Arc::clone(&notices),
            governor,
            earnings,
            checker: Checker::new(Arc::clone(&identity), config.client_of(&config.api_url)?),
            history: History::default(),
            started: Instant::now(),
        };
        Ok(Self {
            identity,
            enrollment: enrollment(&config)?,
            allow_plaintext: config.allow_plaintext,
            internet,
            drain: Duration::from_secs(config.drain_s),
            meter,
            cache,
            fabric,
            supervisor,
            preloader,
            notices,
            sources: Arc::new(sources),
            page_port: config.page.port,
            exporter,
            log_dir,
            cache_dir: config.cache_dir(),
            measure: config.measure,
            nats_url: config.nats_url,
            about: About { name: config.name, region: config.region },
            otlp: config.otlp,
            _lock: lock,
        })
    }
}

fn governor(config: &Config, meter: &Meter) -> Governor {
    Governor::load(config.policy.clone(), &config.state_dir, config.control.allow_remote, meter.latest())
}

/// Opens the cache, which downloads from the public internet and from the origins that the owner chose.
fn open_cache(config: &Config, internet: &Arc<Internet>) -> Result<Cache, OpenError> {
    let chosen = [config.hub_endpoint(), config.api_url.clone()];
    let destinations = PublicHosts::trusting(Arc::clone(internet), chosen.iter().map(String::as_str));
    Cache::open_for(cache_config(config), Arc::new(destinations))
}

fn enrollment(config: &Config) -> Result<Enrollment, ApiKeyError> {
    Ok(Enrollment {
        api_key: config.read_api_key()?,
        state_dir: config.state_dir.clone(),
        api_url: config.api_url.clone(),
        name: config.name.clone(),
        allow_plaintext: config.allow_plaintext,
    })
}

/// Where the traces that coordinators begin are recorded.
fn traces(settings: &OtlpSection) -> (Traces, Option<Exporter>) {
    let Some(endpoint) = &settings.endpoint else { return (Traces::default(), None) };
    let (traces, exporter) = Traces::to(endpoint, "island-agent", env!("CARGO_PKG_VERSION"), 0.0);
    (traces, Some(exporter))
}

/// The folders of the agent that may grow, and count within the limits of the cache.
fn beside(state: &Path) -> Vec<Beside> {
    let folder = |name: &str, is_evictable| Beside { dir: state.join(name), is_evictable };
    let derived = ["derived", "adopted"].map(|name| folder(name, true));
    let others = ["journal", "spool", "w", "job-logs"].map(|name| folder(name, false));
    derived.into_iter().chain(others).collect()
}

/// Returns the settings of the cache.
pub fn cache_config(config: &Config) -> CacheConfig {
    CacheConfig {
        dir: config.cache_dir(),
        max_bytes: config::gigabytes(config.cache.max_gb),
        min_free_bytes: config::gigabytes(config.cache.keep_free_gb),
        beside: beside(&config.state_dir),
        hub_token: config.read_hub_token(),
        hub_endpoint: config.hub_endpoint(),
        hub_files: config.hub_files(),
        offline: config.cache.offline,
        max_bytes_per_second: config.cache.max_mbit_s.map(|mbit| mbit.saturating_mul(125_000)),
    }
}
