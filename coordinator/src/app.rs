//! The coordinator as a whole: builds its parts, serves, and stops them in order.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use island_daemon::{
    notify,
    traces::{Exporter, Traces},
};
use island_protocol::{ids::InstanceId, time::Timestamp};
use island_protocol_api::PREFIX;
use tokio::{net::TcpListener, sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock_gap;
use island_coordinator_api as api;
use island_coordinator_api::{
    Api, FabricAccess, Parts, Rules, Stops,
    batches::Batches,
    metrics::{self as metrics_page, Sources},
    oidc::Provider,
    server::{self, Certificate, CertificateError, Port},
};
use island_coordinator_domain::{
    catalogue::{Catalogue, CatalogueError},
    clock::Clock,
    config::{Config, Console, Jobs, Otlp},
    fleet::Fleet,
    lease::LeaseTimeouts,
    metrics::{self, Metrics},
};
use island_coordinator_execution::{
    Context, Execution,
    deferred_writes::{self, DeferredWrites},
    inbox::Inbox,
    maintenance::{Counting, Maintenance, Revocations},
    network::Network,
    tasks::Tasks,
    webhooks::{self, Webhooks},
};
use island_coordinator_fabric::{
    keys::{FabricKeys, KeysError},
    link::{Link, LinkError},
};
use island_coordinator_storage::{
    Store, StoreError,
    file_lock::{FileLock, LockError},
    host, workload,
};

/// Maximum time to wait for a fabric that is starting.
const FABRIC_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum connections for metrics.
const MAX_SCRAPES: usize = 16;
/// Time between two reads of the certificate of nats-server.
const CERTIFICATE_INTERVAL: Duration = Duration::from_mins(1);

/// Why a coordinator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The catalogue.
    #[error("load the catalogue")]
    Catalogue(#[source] CatalogueError),
    /// The database.
    #[error("use the database")]
    Store(#[from] StoreError),
    /// The embedded database is another coordinator's.
    #[error("use the database alone")]
    Lock(#[from] LockError),
    /// The keys of the fabric.
    #[error("load the keys of the fabric")]
    Keys(#[from] KeysError),
    /// The fabric.
    #[error("use the fabric")]
    Link(#[from] LinkError),
    /// The certificate of the API.
    #[error("use http.tls")]
    Certificate(#[from] CertificateError),
    /// The OpenID Connect provider of the settings.
    #[error("set sign-in up")]
    Provider(#[source] anyhow::Error),
    /// The HTTP client of webhooks.
    #[error("set webhooks up")]
    Webhooks(#[source] reqwest::Error),
    /// The address is in use or not available.
    #[error("listen on {address}; `--listen` or http.listen selects another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Maximum time in which replies that did not end in time get their last event, and the ends of their jobs are stored.
pub(crate) const FAREWELL: Duration = Duration::from_secs(3);

/// Time by which systemd is requested to wait further while requests finish.
const EXTENSION: Duration = Duration::from_secs(30);

/// A coordinator that is ready to serve.
#[derive(Debug)]
pub struct App {
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    router: Router,
    execution: Arc<Execution>,
    tasks: Tasks,
    link: Link,
    store: Store,
    /// Of the embedded database, until it is closed.
    lock: Option<FileLock>,
    unready: Duration,
    drain: Duration,
    max_connections: usize,
    /// HTTP ends `unready` after the order to stop, and replies `drain` after that.
    stops: Stops,
    hard: CancellationToken,
    /// Ends job execution after HTTP has ended.
    stop_jobs: CancellationToken,
    /// Sends traces, if they are recorded.
    exporter: Option<Exporter>,
}

impl App {
    /// Opens everything and begins to resume the open jobs. Takes its port first, and accepts connections on it at the end.
    /// `soft` requests an orderly stop, `hard` an immediate one.
    pub async fn build(
        config: &Config,
        clock: Clock,
        soft: CancellationToken,
        hard: CancellationToken,
    ) -> Result<Self, BuildError> {
        // What can be wrong at once is checked before anything that takes time.
        let certificate = config.http.tls.as_ref().map(Certificate::load).transpose()?;
        let sender = webhooks::Sender::new(&config.webhooks).map_err(BuildError::Webhooks)?;
        let provider = provider(config)?;
        let unavailable = |source| BuildError::Listen { address: config.http.listen, source };
        let port = Port::take(config.http.listen).map_err(unavailable)?;
        warn_of_plain_text(config);
        let lock = FileLock::acquire(&config.database)?;
        let store = Store::open(&config.database).await?;
        let network = network(config, &store).await?;
        let keys = FabricKeys::load(&config.fabric.dir)?;
        let link =
            Link::open(&config.fabric.url, config.nats.replicas, &keys, &clock, FABRIC_TIMEOUT).await?;
        let heartbeat = Duration::from_millis(config.jobs.heartbeat_ms);
        let fleet = Arc::new(Fleet::new(heartbeat * 3));
        let enrolled = host::changed(store.reader(), Timestamp::from_unix_ms(0), clock.now()).await?;
        for enrolled in enrolled {
            fleet.refresh(enrolled);
        }
        let instance = InstanceId(Uuid::new_v4());
        let inbox = Inbox::open(&link, instance).await?;
        let stop_jobs = hard.child_token();
        let stops = Stops { soft, http: hard.child_token(), replies: hard.child_token() };
        let (deferred, deferred_inbox) = mpsc::unbounded_channel();
        let (traces, exporter) = traces(&config.otlp);
        let parts = Parts {
            store: store.clone(),
            link: link.clone(),
            fleet,
            network: network.clone(),
            clock,
            instance,
            metrics: Metrics::new(store.metrics(), link.metrics().clone()),
            traces,
        };
        let tasks = Tasks::default();
        let context = execution_context(&parts, config, deferred.clone());
        let execution = Execution::start(context, tasks.clone(), stop_jobs.clone()).await?;
        // Open jobs are resumed meanwhile: the leases of those that have a runner already must not expire unread.
        inbox.spawn(&execution);
        tasks.spawn(link.clone().keep_stream(stop_jobs.clone()));
        let nats_url = config.fabric_url();
        link.check_public(&nats_url);
        watch_certificates(config, &parts, &tasks, certificate.as_ref(), &stop_jobs);
        tasks.spawn(
            DeferredWrites {
                store: store.clone(),
                clock: parts.clock.clone(),
                instance,
                writes: deferred_inbox,
                stop: stop_jobs.clone(),
                hard: hard.clone(),
            }
            .run(),
        );
        spawn_maintenance(config, &parts, &tasks, &keys, &stop_jobs);
        let state = &parts.metrics.state;
        tasks.spawn(network.clone().run(state.clone(), stop_jobs.clone()));
        let api = Api::new(
            parts.clone(),
            execution.clone(),
            provider,
            FabricAccess { keys, nats_url },
            rules(config),
            deferred,
            stops.clone(),
        );
        let sources = Sources {
            parts: parts.clone(),
            execution: execution.clone(),
            certificate: certificate.clone(),
            since: Instant::now(),
        };
        serve_metrics(config, sources, &tasks, &stop_jobs).await?;
        let api = Arc::new(api);
        tasks.spawn(Batches { api: api.clone(), stop: stops.soft.clone(), end: stop_jobs.clone() }.run());
        spawn_webhooks(config, &parts, &tasks, sender, &stop_jobs);
        let router = api::router(api, api::Access::new(&config.http), console(config));
        // Not before: a connection that nobody answers yet waits, and one that is refused goes to another coordinator.
        let listener = port.listen().map_err(unavailable)?;
        Ok(Self {
            listener,
            certificate,
            router,
            execution,
            tasks,
            link,
            store,
            lock,
            unready: Duration::from_secs(config.http.unready_s),
            drain: Duration::from_secs(config.http.drain_s),
            max_connections: config.http.max_connections as usize,
            stops,
            hard,
            stop_jobs,
            exporter,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is stopped. Jobs stay open: Islands continue them, and another coordinator or the next start
    /// resumes them.
    pub async fn run(mut self) -> io::Result<()> {
        let Some(exporter) = self.exporter.take() else { return self.serve().await };
        let stop = CancellationToken::new();
        let served = async {
            let ended = self.serve().await;
            // Spans end with what they are about.
            stop.cancel();
            ended
        };
        let (ended, ()) = tokio::join!(served, exporter.run(stop.clone()));
        ended
    }

    async fn serve(self) -> io::Result<()> {
        let (Stops { soft, http: stop_http, replies }, hard) = (self.stops, self.hard);
        let tls = self.certificate.as_ref().map(Certificate::acceptor);
        let http = server::serve(self.listener, tls, self.router, self.max_connections, stop_http.clone());
        let drained = async {
            soft.cancelled().await;
            tokio::time::sleep(self.unready).await;
            stop_http.cancel();
            tokio::time::sleep(self.drain).await;
            replies.cancel();
            tokio::time::sleep(FAREWELL).await;
        };
        let extended = async {
            soft.cancelled().await;
            loop {
                notify::extend(EXTENSION);
                tokio::time::sleep(EXTENSION / 3).await;
            }
        };
        let clock_gap = clock_gap::run(self.link.clone(), self.stop_jobs.clone());
        let ended = tokio::select! {
            biased;
            () = hard.cancelled() => Ok(()),
            () = http => Ok(()),
            () = drained => Ok(()),
            () = clock_gap => Ok(()),
            () = extended => Ok(()),
            () = self.tasks.failed() => Err(io::Error::other("a task of the coordinator panicked")),
            () = self.execution.removed() => {
                Err(io::Error::other("other coordinators removed this one and took its jobs over: its heartbeats had stopped"))
            }
        };
        self.stop_jobs.cancel();
        self.tasks.stopped().await;
        if !hard.is_cancelled() {
            self.execution.unregister().await;
        }
        self.link.close().await;
        self.store.close().await;
        drop(self.lock);
        ended
    }
}

/// Starts the tasks that read when certificates change or expire.
fn watch_certificates(
    config: &Config,
    parts: &Parts,
    tasks: &Tasks,
    certificate: Option<&Arc<Certificate>>,
    stop: &CancellationToken,
) {
    if let Some(certificate) = certificate {
        tasks.spawn(certificate.clone().watch(stop.clone()));
    }
    if let Some(tls) = &config.nats.tls {
        let state = parts.metrics.state.clone();
        tasks.spawn(watch_nats_certificate(tls.certificate.clone(), state, stop.clone()));
    }
}

/// Reads at intervals when the certificate of nats-server expires, if its file is on this machine.
async fn watch_nats_certificate(file: PathBuf, state: metrics::State, stop: CancellationToken) {
    loop {
        if let Some(expires) = server::expires(&file) {
            state.set_nats_certificate(expires);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CERTIFICATE_INTERVAL) => {}
        }
    }
}

fn spawn_webhooks(
    config: &Config,
    parts: &Parts,
    tasks: &Tasks,
    sender: webhooks::Sender,
    stop: &CancellationToken,
) {
    let webhooks = Webhooks {
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        settings: config.webhooks.clone(),
        sender,
        metrics: parts.metrics.webhooks.clone(),
        stop: stop.clone(),
    };
    tasks.spawn(webhooks.run());
}

/// Serves the metrics at an address of their own, if there is one.
async fn serve_metrics(
    config: &Config,
    sources: Sources,
    tasks: &Tasks,
    stop: &CancellationToken,
) -> Result<(), BuildError> {
    let Some(address) = config.http.metrics else { return Ok(()) };
    let listener = listen_on(address).await?;
    let metrics = metrics_page::router(sources);
    tasks.spawn(server::serve(listener, None, metrics, MAX_SCRAPES, stop.clone()));
    Ok(())
}

async fn listen_on(address: SocketAddr) -> Result<TcpListener, BuildError> {
    TcpListener::bind(address).await.map_err(|source| BuildError::Listen { address, source })
}

fn warn_of_plain_text(config: &Config) {
    let http = &config.http;
    if http.tls.is_none() && http.trusted_proxies.is_empty() && !http.listen.ip().to_canonical().is_loopback()
    {
        tracing::warn!(
            listen = %http.listen,
            "the API is served in plain text on an address that other machines may reach: set http.tls, or http.trusted_proxies of the reverse proxy that ends TLS"
        );
    }
}

/// Starts the tasks that keep the database small, and the fabric's list of revoked users complete.
fn spawn_maintenance(
    config: &Config,
    parts: &Parts,
    tasks: &Tasks,
    keys: &FabricKeys,
    stop: &CancellationToken,
) {
    let credentials_s = config.fabric.island_credentials_s.max(config.fabric.watch_credentials_s);
    let maintenance = Maintenance {
        store: parts.store.clone(),
        clock: parts.clock.clone(),
        retention: config.retention.clone(),
        credentials_ms: i64::from(credentials_s) * 1000,
        unindexed: config.database.url.clone(),
        metrics: parts.metrics.clone(),
        fleet: parts.fleet.clone(),
        stop: stop.clone(),
    };
    tasks.spawn(maintenance.run());
    let (store, fleet) = (parts.store.clone(), parts.fleet.clone());
    tasks.spawn(Counting { store, fleet, stop: stop.clone() }.run());
    let revocations = Revocations {
        store: parts.store.clone(),
        link: parts.link.clone(),
        keys: keys.clone(),
        url: config.fabric.url.clone(),
        clock: parts.clock.clone(),
        stop: stop.clone(),
    };
    tasks.spawn(revocations.run());
}

/// The state of the network, with the catalogue of the settings.
async fn network(config: &Config, store: &Store) -> Result<Arc<Network>, BuildError> {
    let settings = &config.catalogue;
    let mut catalogue = Catalogue::pinned(settings).map_err(BuildError::Catalogue)?;
    let numbers = workload::number(store, catalogue.iter().map(|cargo| &cargo.entry.slug)).await?;
    catalogue.number(&numbers);
    Ok(Arc::new(Network::load(store.clone(), catalogue, settings.dir.clone()).await?))
}

fn traces(settings: &Otlp) -> (Traces, Option<Exporter>) {
    let Some(endpoint) = &settings.endpoint else { return (Traces::default(), None) };
    let version = env!("CARGO_PKG_VERSION");
    let (traces, exporter) = Traces::to(endpoint, "island-coordinator", version, settings.sample);
    (traces, Some(exporter))
}

/// The provider of the settings, which returns people to this network's public address.
fn provider(config: &Config) -> Result<Option<Provider>, BuildError> {
    let (Some(oidc), Some(url)) = (&config.oidc, &config.http.public_url) else { return Ok(None) };
    let provider = Provider::new(
        oidc,
        &format!("{}{PREFIX}/login/callback", String::from(url.clone()).trim_end_matches('/')),
    );
    provider.map(Some).map_err(|error| BuildError::Provider(error.into()))
}

/// The console of the settings. Where clients reach the coordinator with TLS, its cookies are for TLS only.
fn console(config: &Config) -> Option<island_console::Settings> {
    let Console { enabled, grafana } = &config.console;
    // The coordinator's own TLS is on every connection.
    let proxied = config.http.public_url.as_ref().filter(|_| config.http.tls.is_none());
    enabled.then(|| island_console::Settings {
        is_encrypted: config.http.tls.is_some() || config.http.public_url.is_some(),
        grafana: grafana.clone(),
        public_url: proxied.map(ToString::to_string),
    })
}

/// Dependencies of job execution, from the parts and the settings.
fn execution_context(parts: &Parts, config: &Config, deferred: deferred_writes::Sender) -> Context {
    let Parts { store, link, fleet, network, clock, instance, metrics, traces } = parts.clone();
    Context {
        store,
        link,
        fleet,
        network,
        clock,
        instance,
        deferred,
        metrics,
        traces,
        timeouts: timeouts(&config.jobs),
        heartbeat: Duration::from_millis(config.jobs.heartbeat_ms),
        retries: config.jobs.retries,
        takeover: Duration::from_millis(config.jobs.takeover_ms),
        max_input_mb: config.jobs.max_input_mb,
    }
}

fn timeouts(jobs: &Jobs) -> LeaseTimeouts {
    LeaseTimeouts {
        lease: Duration::from_millis(jobs.lease_ms),
        run: Duration::from_millis(jobs.stall_ms + jobs.heartbeat_ms),
        prepare: Duration::from_millis(jobs.prepare_stall_ms),
    }
}

fn rules(config: &Config) -> Rules {
    Rules {
        requests_per_minute: config.limits.requests_per_minute,
        concurrent_jobs: config.limits.concurrent_jobs,
        islands: config.limits.islands,
        concurrent_streams: config.limits.concurrent_streams,
        invalid_keys_per_minute: config.limits.invalid_keys_per_minute,
        login_key_days: config.oidc.as_ref().map_or(0, |oidc| oidc.key_days),
        signup_credits: config.accounts.signup_credits,
        max_requests: config.http.max_requests as usize,
        idempotency_ms: i64::from(config.retention.idempotency_h) * 3_600_000,
        chat_wait: Duration::from_secs(config.jobs.chat_wait_s),
        max_wait_ms: i64::from(config.jobs.max_wait_s) * 1000,
        island_jwt_ms: i64::from(config.fabric.island_credentials_s) * 1000,
        watch_jwt_ms: i64::from(config.fabric.watch_credentials_s) * 1000,
        files: config.files.clone(),
        files_ms: (config.retention.files_d > 0)
            .then(|| i64::from(config.retention.files_d) * 24 * 3_600_000),
        batches: config.batches.clone(),
        webhooks: config.webhooks.clone(),
    }
}
