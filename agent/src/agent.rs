//! An agent: starting its tasks, and the order in which they stop. [`build`] creates its parts.

mod build;
mod folders;
mod machine;

use std::{
    convert::Infallible,
    io,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use island_cache::{Cache, OpenError};
use island_coordinator_client::ClientError;
use island_daemon::{
    lifecycle::Lifecycle,
    notify,
    progress::{Progress, Watchdog},
    traces::Exporter,
};
use island_runtimes_egress::Internet;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use self::build::cache_config;
use crate::{
    benchmark::Benchmark,
    config::{ApiKeyError, Config, OtlpSection},
    control::{metrics::otlp, server, status::Sources},
    disk::{
        job_logs,
        state_lock::{LockError, StateLock},
    },
    fabric::Fabric,
    identity::{Identity, IdentityError},
    inventory::{self, meter::Meter},
    link::{
        credentials::{self, Credentials, CredentialsError, Enrollment},
        heartbeat, hub, lease,
        session::{self, About, Session},
    },
    owner::notices::Notices,
    preload::Preloader,
    scrub::Scrub,
    supervisor::Supervisor,
};

/// Time after the drain limit to report cancelled attempts and stop workers.
const STOP_MARGIN: Duration = Duration::from_secs(15);

/// An agent that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A folder cannot be made.
    #[error("create folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why it cannot be created.
        #[source]
        source: io::Error,
    },
    /// Another agent uses the state folder, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The identity cannot be read or written.
    #[error("load this Island's identity")]
    Identity(#[from] IdentityError),
    /// The cache cannot be opened.
    #[error("open the cache")]
    Cache(#[from] OpenError),
    /// The API key cannot be read.
    #[error(transparent)]
    ApiKey(#[from] ApiKeyError),
    /// The coordinator gave no credentials.
    #[error("get credentials for the fabric")]
    Credentials(#[from] CredentialsError),
    /// The coordinator's address is invalid.
    #[error("create a client of the coordinator")]
    Coordinator(#[from] ClientError),
    /// The watchdog's thread cannot be started.
    #[error("start the watchdog")]
    Watchdog(#[source] io::Error),
    /// The journal or the workers of the last run cannot be read.
    #[error("recover the attempts of the last run")]
    Recover(#[source] io::Error),
}

/// An agent, built and not yet running.
#[derive(Debug)]
pub struct Agent {
    identity: Arc<Identity>,
    enrollment: Enrollment,
    nats_url: Option<String>,
    allow_plaintext: bool,
    internet: Arc<Internet>,
    about: About,
    drain: Duration,
    meter: Arc<Meter>,
    cache: Cache,
    fabric: Arc<Fabric>,
    supervisor: Arc<Supervisor>,
    preloader: Arc<Preloader>,
    notices: Arc<Notices>,
    sources: Arc<Sources>,
    page_port: Option<u16>,
    otlp: OtlpSection,
    /// Sends traces, if a collector is set.
    exporter: Option<Exporter>,
    log_dir: PathBuf,
    cache_dir: PathBuf,
    measure: bool,
    _lock: StateLock,
}

impl Agent {
    /// Runs until stopped, or until this Island has enrolled with another coordinator. Returns `None` then: the next agent of this process
    /// starts there.
    pub async fn run(mut self) -> Result<Option<ExitCode>, StartError> {
        let Some(exporter) = self.exporter.take() else { return self.work().await };
        let stop = CancellationToken::new();
        let worked = async {
            let ended = self.work().await;
            // Spans end with what they are about.
            stop.cancel();
            ended
        };
        let (ended, ()) = tokio::join!(worked, exporter.run(stop.clone()));
        ended
    }

    async fn work(self) -> Result<Option<ExitCode>, StartError> {
        let life = Lifecycle::new(self.drain + STOP_MARGIN);
        tracing::info!(host_id = %self.identity.host_id(), "starting");
        self.supervisor.recover().await.map_err(StartError::Recover)?;
        // From here on systemd may not end the workers that were found, however long the fabric is away.
        notify::ready("connecting to the coordinator");
        // Until its workers were found again, they counted as other programs.
        self.meter.sample().await;
        // Before credentials are obtained, so that `status` shows that the Island waits for its coordinator.
        self.spawn_control(&life);
        let moved = Arc::new(AtomicBool::new(false));
        let following =
            follow_enrollment(self.sources.settings.config.clone(), life.clone(), Arc::clone(&moved));
        life.spawn("enrollment", well(following));
        let soft = life.soft();
        let obtain = Credentials::obtain(Arc::clone(&self.identity), &self.enrollment, &soft);
        let obtained = tokio::select! {
            biased;
            () = stop_requested() => Ok(None),
            obtained = obtain => obtained,
        };
        let ended = match obtained {
            Ok(Some(credentials)) => {
                let _watchdog = self.spawn(&life, credentials).map_err(StartError::Watchdog)?;
                let code = life.run().await;
                return Ok((!moved.load(Ordering::Acquire)).then_some(code));
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        soft.cancel();
        self.sources.governor.stop_accepting();
        self.supervisor.stop(Duration::ZERO, &life.hard()).await;
        let code = life.run().await;
        Ok(ended.map(|()| (!moved.load(Ordering::Acquire)).then_some(code))?)
    }

    /// Starts the owner's socket and page and the tasks that supply their data. They end with `soft`.
    fn spawn_control(&self, life: &Lifecycle) {
        let (sources, stop) = (Arc::clone(&self.sources), life.soft());
        life.spawn("history", well(async move { sources.record_history(stop).await }));
        let (sources, state, stop) =
            (Arc::clone(&self.sources), self.enrollment.state_dir.clone(), life.soft());
        life.spawn("control", server::serve_socket(sources, state, stop));
        life.spawn("page", server::serve_page(Arc::clone(&self.sources), self.page_port, life.soft()));
        let sent = otlp::run(Arc::clone(&self.sources), self.otlp.clone(), life.soft());
        life.spawn("otlp", well(sent));
        let (policy, supervisor) = (Arc::clone(&self.sources.governor), Arc::clone(&self.supervisor));
        let stop = life.soft();
        life.spawn("policy", well(async move { policy.run(supervisor, stop).await }));
    }

    /// Starts the tasks. Those of the link outlive `soft`, because running attempts must still be reported. Returns the watchdog of the
    /// tasks without which the coordinator would count this Island as offline.
    fn spawn(&self, life: &Lifecycle, credentials: Arc<Credentials>) -> io::Result<Watchdog> {
        let [metering, beating, dispatching] = ["meter", "heartbeat", "dispatch"].map(Progress::new);
        let watchdog = Watchdog::start([&metering, &beating, &dispatching])?;
        let link = CancellationToken::new();
        let meter = Arc::clone(&self.meter);
        let stop = link.clone();
        life.spawn("meter", well(async move { meter.run(metering, stop).await }));

        let (keeper, stop) = (Arc::clone(&credentials), link.clone());
        life.spawn("credentials", well(async move { keeper.run(stop).await }));

        let session = Session {
            identity: Arc::clone(&self.identity),
            credentials,
            fabric: Arc::clone(&self.fabric),
            governor: Arc::clone(&self.sources.governor),
            supervisor: Arc::clone(&self.supervisor),
            nats_url: self.nats_url.clone(),
            allow_plaintext: self.allow_plaintext,
            internet: Arc::clone(&self.internet),
            about: self.about.clone(),
            progress: dispatching,
        };
        let stop = link.clone();
        life.spawn("link", well(session::run(session, stop)));

        let beat = heartbeat::run(
            Arc::clone(&self.fabric),
            Arc::clone(&self.supervisor),
            self.meter.latest(),
            beating,
            link.clone(),
        );
        life.spawn("heartbeat", well(beat));
        let lease = lease::run(Arc::clone(&self.fabric), Arc::clone(&self.supervisor), link.clone());
        life.spawn("lease", well(lease));

        let hub = hub::run(
            self.cache.clone(),
            Arc::clone(&self.supervisor),
            Arc::clone(&self.fabric),
            link.clone(),
        );
        life.spawn("hub", well(hub));
        let benchmark = Benchmark {
            state: self.enrollment.state_dir.clone(),
            models: self.cache_dir.clone(),
            sources: Arc::clone(&self.sources),
        };
        // Ends with `soft`: an agent that stops is not benchmarked.
        if self.measure {
            life.spawn("benchmark", well(benchmark.run(life.soft())));
        }
        let (supervisor, fabric) = (Arc::clone(&self.supervisor), Arc::clone(&self.fabric));
        let prober = Arc::clone(&self.supervisor);
        let withholding = Arc::clone(self.supervisor.pool().runtimes().withholding());
        let (registered, stop) = (Arc::clone(&self.fabric), link.clone());
        let register = async move {
            while stop.run_until_cancelled(withholding.changed()).await.is_some() {
                registered.request_registration();
            }
        };
        life.spawn("withholding", well(register));
        let follow = inventory::gpu::follow::run(
            self.meter.latest(),
            move |gpus| supervisor.set_gpus(gpus),
            async move |is_other: bool| prober.pool().runtimes().probe_again(is_other).await,
            self.supervisor.pool().runtimes().probe_requests(),
            move || fabric.request_registration(),
            link.clone(),
        );
        life.spawn("gpus", well(follow));
        // Ends with `soft`: no job waits for a preload.
        let (preloader, stop) = (Arc::clone(&self.preloader), life.soft());
        life.spawn("preload", well(async move { preloader.run(stop).await }));
        let state = self.enrollment.state_dir.clone();
        let scrub = Scrub::new(self.cache.clone(), Arc::clone(&self.supervisor), state);
        let stop = life.soft();
        life.spawn("scrub", well(async move { scrub.run(stop).await }));
        let (notices, stop) = (Arc::clone(&self.notices), life.soft());
        life.spawn("notices", well(async move { notices.run(stop).await }));
        life.spawn("job-logs", well(job_logs::prune(self.log_dir.clone(), link.clone())));

        let (supervisor, governor) = (Arc::clone(&self.supervisor), Arc::clone(&self.sources.governor));
        let (drain, soft, hard) = (self.drain, life.soft(), life.hard());
        life.spawn("supervisor", async move {
            soft.cancelled().await;
            governor.stop_accepting();
            // Attempts first, then their workers; the link last, because it carries their reports.
            supervisor.stop(drain, &hard).await;
            link.cancel();
            Ok::<_, Infallible>(())
        });
        Ok(watchdog)
    }
}

/// Stops the agent once this Island has enrolled with another coordinator, and notes that in `moved`.
async fn follow_enrollment(config: Config, life: Lifecycle, moved: Arc<AtomicBool>) {
    let (own, soft) = (coordinator_url(&config), life.soft());
    while !soft.is_cancelled() {
        if credentials::enrolled_with(&config.state_dir).is_some() && coordinator_url(&config) != own {
            tracing::info!(
                coordinator = coordinator_url(&config),
                "enrolled with another coordinator: starting there"
            );
            moved.store(true, Ordering::Release);
            return life.stop_to_restart();
        }
        tokio::select! {
            biased;
            () = soft.cancelled() => {}
            () = tokio::time::sleep(credentials::POLL_EVERY) => {}
        }
    }
}

/// Resolves at SIGTERM or SIGINT. For the time before the [`Lifecycle`] handles them.
pub(crate) async fn stop_requested() {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn well(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}

/// Returns the coordinator's address: the configured one, otherwise the one that this Island enrolled with.
pub fn coordinator_url(config: &Config) -> String {
    let is_set = config.api_url != Config::default().api_url;
    let enrolled = || credentials::enrolled_with(&config.state_dir);
    if is_set { config.api_url.clone() } else { enrolled().unwrap_or_else(|| config.api_url.clone()) }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use island_daemon::latest::Latest;

    use super::*;
    use crate::{config::WorkersSection, control::status::InForce};

    /// The session of the fabric notes this machine's address in `internet`, and the meter's task replaces the sample: those
    /// who decide must read the same.
    #[tokio::test]
    async fn parts_that_decide_share_what_others_find_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let workers = WorkersSection { bin_dir: Some(folder.path().to_owned()), ..WorkersSection::default() };
        let config = Config { state_dir: folder.path().join("state"), workers, ..Config::default() };
        // It is large.
        let agent = Box::pin(Agent::build(InForce::new(config.clone(), move || Ok(config.clone()))))
            .await
            .expect("an agent");

        let address = SocketAddr::from(([9, 9, 9, 9], 443));
        let egress = agent.supervisor.egress_mounts().outside();
        let is_own =
            || egress.check(address).is_err_and(|kind| kind.to_string().contains("as the internet sees it"));
        assert!(!is_own());
        agent.internet.set_external(address.ip());
        assert!(is_own(), "the proxy of containers refuses the address that the fabric states");

        agent.meter.sample().await;
        let (measured, used) = (agent.meter.latest().latest(), agent.supervisor.pool().sample());
        assert!(Arc::ptr_eq(&measured, &used), "memory is divided as it was measured last");
    }
}
