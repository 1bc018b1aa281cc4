//! The running coordinator: build everything, serve, stop in order.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, serve::ListenerExt as _};
use island_protocol::{ids::InstanceId, time::Timestamp};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    api::{self, Api, Rules},
    catalogue::{Catalogue, CatalogueError},
    clock::Clock,
    config::{Config, Jobs},
    fabric::{
        keys::{FabricKeys, KeysError},
        link::{Link, LinkError},
    },
    fleet::Fleet,
    lease::Patience,
    owner::{Context, Owner, inbox::Inbox},
    storage::{Store, StoreError, host, workload},
    sweep,
    upkeep::Upkeep,
};

/// How long a fabric that is just starting is waited for.
const FABRIC_PATIENCE: Duration = Duration::from_secs(10);

/// How long sent bytes may stay unacknowledged. With the comment that every silent stream gets after 15 s, a client that
/// vanished is noticed within 35 s.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MS: u32 = 20_000;

/// A coordinator that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The catalogue.
    #[error("load the catalogue")]
    Catalogue(#[source] CatalogueError),
    /// The database.
    #[error("use the database")]
    Store(#[from] StoreError),
    /// The keys of the fabric.
    #[error("load the keys of the fabric")]
    Keys(#[from] KeysError),
    /// The fabric.
    #[error("use the fabric")]
    Link(#[from] LinkError),
    /// The address is taken, or not ours.
    #[error("listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A coordinator that is ready to serve.
#[derive(Debug)]
pub struct App {
    listener: TcpListener,
    router: Router,
    owner: Arc<Owner>,
    link: Link,
    store: Store,
    drain: Duration,
    soft: CancellationToken,
    hard: CancellationToken,
    /// Ends the owner's tasks once HTTP has ended.
    stop_jobs: CancellationToken,
}

impl App {
    /// Opens everything and takes up the open jobs. `soft` asks for an orderly stop, `hard` for one at once.
    pub async fn build(
        config: &Config,
        clock: Clock,
        soft: CancellationToken,
        hard: CancellationToken,
    ) -> Result<Self, BuildError> {
        let store = Store::open(&config.database).await?;
        let catalogue = catalogue(config, &store).await?;
        let keys = FabricKeys::load(&config.fabric.dir)?;
        let link = Link::open(&config.fabric.url, &keys, &clock, FABRIC_PATIENCE).await?;
        let heartbeat = Duration::from_millis(config.jobs.heartbeat_ms);
        let fleet = Arc::new(Fleet::new(heartbeat * 3));
        for enrolled in host::changed(store.reader(), Timestamp::from_unix_ms(0)).await? {
            fleet.refresh(enrolled);
        }
        // What Islands send waits in the subscriptions until the open jobs are taken up.
        let instance = InstanceId(Uuid::new_v4());
        let inbox = Inbox::open(&link, instance).await?;
        let stop_jobs = hard.child_token();
        let context = Context {
            store: store.clone(),
            link: link.clone(),
            fleet,
            catalogue: Arc::new(catalogue),
            clock,
            instance,
            patience: patience(&config.jobs),
            heartbeat,
            retries: config.jobs.retries,
            takeover: Duration::from_millis(config.jobs.takeover_ms),
        };
        let owner = Owner::start(context, stop_jobs.clone()).await?;
        inbox.spawn(&owner);
        let listen = config.http.listen;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|source| BuildError::Listen { address: listen, source })?;
        let nats_url = config.fabric.public_url.clone().unwrap_or_else(|| config.fabric.url.clone());
        let (notes, inbox_of_upkeep) = mpsc::unbounded_channel();
        owner.spawn_task(
            Upkeep {
                store: store.clone(),
                clock: owner.context().clock.clone(),
                instance: owner.context().instance,
                notes: inbox_of_upkeep,
                stop: stop_jobs.clone(),
                hard: hard.clone(),
            }
            .run(),
        );
        let api = Api::new(owner.clone(), keys, nats_url, rules(config), notes, soft.clone());
        let router = api::router(Arc::new(api));
        let drain = Duration::from_secs(config.http.drain_s);
        Ok(Self { listener, router, owner, link, store, drain, soft, hard, stop_jobs })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until asked to stop. Jobs are left as they are: Islands go on, another coordinator or the next start takes
    /// them up.
    pub async fn run(self) -> io::Result<()> {
        let (soft, hard) = (self.soft.clone(), self.hard.clone());
        let listener = self.listener.tap_io(|stream| prepare(stream));
        let stopping = soft.clone();
        let http = axum::serve(listener, self.router)
            .with_graceful_shutdown(async move { stopping.cancelled().await });
        let drained = async {
            soft.cancelled().await;
            tokio::time::sleep(self.drain).await;
        };
        let watch = sweep::run(self.link.clone(), self.stop_jobs.clone());
        let ended = tokio::select! {
            biased;
            () = hard.cancelled() => Ok(()),
            ended = std::future::IntoFuture::into_future(http) => ended,
            () = drained => Ok(()),
            () = watch => Ok(()),
            () = self.owner.failed() => Err(io::Error::other("a task that looks after jobs panicked")),
            () = self.owner.deposed() => {
                Err(io::Error::other("silent for so long that other coordinators took the jobs over"))
            }
        };
        self.stop_jobs.cancel();
        self.owner.stopped().await;
        if !hard.is_cancelled() {
            self.owner.leave().await;
        }
        self.link.close().await;
        self.store.close().await;
        ended
    }
}

/// A reply must leave at once, not when the client has acknowledged the one before; and a client that vanished without
/// a word must be noticed by what it does not acknowledge.
fn prepare(stream: &tokio::net::TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY not set");
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS) {
        tracing::debug!(%error, "TCP_USER_TIMEOUT not set");
    }
}

async fn catalogue(config: &Config, store: &Store) -> Result<Catalogue, BuildError> {
    let settings = &config.catalogue;
    let mut catalogue = Catalogue::pinned(settings).map_err(BuildError::Catalogue)?;
    let numbers = workload::number(store, catalogue.iter().map(|cargo| &cargo.entry.slug)).await?;
    catalogue.number(&numbers);
    Ok(catalogue)
}

fn patience(jobs: &Jobs) -> Patience {
    Patience {
        lease: Duration::from_millis(jobs.lease_ms),
        run: Duration::from_millis(jobs.stall_ms + 2 * jobs.heartbeat_ms),
        prepare: Duration::from_millis(jobs.prepare_stall_ms),
    }
}

fn rules(config: &Config) -> Rules {
    Rules {
        requests_per_minute: config.limits.requests_per_minute,
        concurrent_jobs: config.limits.concurrent_jobs,
        concurrent_streams: config.limits.concurrent_streams,
        chat_wait: Duration::from_secs(config.jobs.chat_wait_s),
        max_wait_ms: i64::from(config.jobs.max_wait_s) * 1000,
        island_jwt_ms: i64::from(config.fabric.island_credentials_s) * 1000,
        watch_jwt_ms: i64::from(config.fabric.watch_credentials_s) * 1000,
    }
}
