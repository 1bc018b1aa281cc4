//! State of the handlers.

use std::{sync::Arc, time::Duration};

use island_coordinator_domain::{catalogue::Catalogue, clock::Clock, config, fleet::Fleet, metrics::Metrics};
use island_coordinator_execution::{Execution, deferred_writes, network::Network};
use island_coordinator_fabric::{keys::FabricKeys, link::Link};
use island_coordinator_storage::{Store, market::Market};
use island_daemon::traces::Traces;
use island_protocol::ids::InstanceId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{body::BodyMemory, client, demand::LatestDemands, evaluations::Evaluations, slots::Slots};
use crate::oidc::Provider;

/// Limits of each account, and times.
#[derive(Debug, Clone)]
pub struct Rules {
    /// 0 means unlimited, as for the next four.
    pub requests_per_minute: u32,
    pub concurrent_jobs: u32,
    pub islands: u32,
    pub concurrent_streams: u32,
    pub invalid_keys_per_minute: u32,
    /// Days after which the key of a sign-in expires; 0 for never.
    pub login_key_days: u32,
    /// Credits of a new account.
    pub signup_credits: u32,
    /// Maximum requests that are answered at one time.
    pub max_requests: usize,
    /// Life of an idempotency key.
    pub idempotency_ms: i64,
    /// Maximum time that a chat request waits for an Island.
    pub chat_wait: Duration,
    /// Maximum time that a job waits for an Island.
    pub max_wait_ms: i64,
    /// Life of an Island's fabric credentials.
    pub island_jwt_ms: i64,
    /// Life of a watcher's fabric credentials.
    pub watch_jwt_ms: i64,
    pub files: config::Files,
    /// Life of a file; `None` if it is kept.
    pub files_ms: Option<i64>,
    pub batches: config::Batches,
    pub webhooks: config::Webhooks,
}

/// Parts of the coordinator that handlers use.
#[derive(Debug, Clone)]
pub struct Parts {
    pub store: Store,
    pub link: Link,
    pub fleet: Arc<Fleet>,
    /// Which Cargos are served, and of which of them jobs are accepted.
    pub network: Arc<Network>,
    pub clock: Clock,
    pub instance: InstanceId,
    pub metrics: Metrics,
    pub traces: Traces,
}

/// State of the handlers.
#[derive(Debug)]
pub struct Api {
    pub store: Store,
    pub link: Link,
    pub fleet: Arc<Fleet>,
    pub network: Arc<Network>,
    pub clock: Clock,
    pub instance: InstanceId,
    pub metrics: Metrics,
    pub traces: Traces,
    /// The jobs that this coordinator executes.
    pub execution: Arc<Execution>,
    /// Confirms people who sign in, if the network has sign-in.
    pub provider: Option<Provider>,
    pub keys: FabricKeys,
    pub nats_url: String,
    pub rules: Rules,
    pub streams: Slots,
    /// Memory for request bodies.
    pub bodies: BodyMemory,
    /// Threads for schemas of accounts.
    pub evaluations: Evaluations,
    pub invalid_keys: client::ClientLimit,
    /// Codes for Islands without an account.
    pub pairings: client::ClientLimit,
    /// Sign-ins that have begun.
    pub sign_ins: client::ClientLimit,
    /// Writes that need not be awaited.
    pub deferred: deferred_writes::Sender,
    pub stops: Stops,
    pub market: Market,
    pub demands: LatestDemands,
    /// Notified when a batch was created here, or its cancellation requested.
    pub batches_changed: Notify,
}

/// Steps of an orderly stop.
#[derive(Debug, Clone)]
pub struct Stops {
    /// Triggered when an orderly stop is requested: load balancers should send nobody here any more.
    pub soft: CancellationToken,
    /// Triggered when it takes no new requests: streams of jobs end, so that their readers resume at another one.
    pub http: CancellationToken,
    /// Triggered when it has no more time for replies: each ends with an error, and its job, unless the client can return for it, is cancelled.
    pub replies: CancellationToken,
}

/// Keys that sign access to the fabric for Islands and watchers, and the address that they get.
#[derive(Debug)]
pub struct FabricAccess {
    pub keys: FabricKeys,
    pub nats_url: String,
}

impl Api {
    pub fn new(
        Parts { store, link, fleet, network, clock, instance, metrics, traces }: Parts,
        execution: Arc<Execution>,
        provider: Option<Provider>,
        fabric: FabricAccess,
        rules: Rules,
        deferred: deferred_writes::Sender,
        stops: Stops,
    ) -> Self {
        let streams = Slots {
            counters: store.counters().clone(),
            instance,
            clock: clock.clone(),
            deferred: deferred.clone(),
            limit: rules.concurrent_streams,
            requests: metrics.requests.clone(),
        };
        let FabricAccess { keys, nats_url } = fabric;
        let invalid_keys =
            client::ClientLimit::new(rules.invalid_keys_per_minute, "requests with invalid keys");
        Self {
            store,
            link,
            fleet,
            network,
            clock,
            instance,
            metrics,
            traces,
            execution,
            provider,
            keys,
            nats_url,
            rules,
            streams,
            bodies: BodyMemory::default(),
            evaluations: Evaluations::default(),
            invalid_keys,
            pairings: client::ClientLimit::new(client::PAIRINGS_PER_MINUTE, "requests for a code"),
            sign_ins: client::ClientLimit::new(client::SIGN_INS_PER_MINUTE, "sign-ins"),
            deferred,
            stops,
            market: Market::default(),
            demands: LatestDemands::default(),
            batches_changed: Notify::new(),
        }
    }

    /// The catalogue of this moment.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.network.catalogue()
    }
}
