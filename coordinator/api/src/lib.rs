//! HTTP under `/api/v1`: one module for each noun, one file for each verb.
//!
//! Checks have one order everywhere: route, method, size, key, rate limit, scope, media type, JSON, fields, access to
//! the named object, idempotency, limits, credits, commit. [`auth::Caller`] checks size to scope, [`body`] media type
//! to fields, handlers the rest.

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]
#![expect(
    missing_docs,
    reason = "items are public for the coordinator's other crates; names and types say the rest"
)]

mod account;
mod admin;
mod artifacts;
mod audio;
pub(crate) mod auth;
mod availability;
pub mod batches;
mod body;
mod cargos;
mod chat;
mod client;
mod cors;
mod csv;
pub(crate) mod document;
mod embeddings;
mod error;
mod evaluations;
mod fabric;
mod files;
mod form;
mod health;
mod hosts;
pub(crate) mod idempotency;
mod images;
mod island;
mod jobs;
mod keys;
mod ledger;
mod limits;
mod login;
mod market;
mod messages;
pub mod metrics;
mod models;
mod moderations;
mod network;
mod observe;
pub mod oidc;
mod one_job;
mod openai_form;
mod openapi;
mod publications;
mod query;
mod quotas;
mod rerank;
mod responses;
pub(crate) mod routes;
mod segment;
pub mod server;
mod session;
mod signup;
mod slots;
mod speech;
mod statement;
mod usage;
mod webhooks;
mod workloads;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{Extensions, Uri},
    middleware::{self, Next},
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};
use futures::FutureExt as _;
use island_protocol_api::{PREFIX, problem::Code};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use error::ApiError;

use document::Document;
use routes::Routes;

use crate::{oidc::Provider, server::Peer};
use island_coordinator_domain::config::{self, Http};
use island_coordinator_execution::{Execution, deferred_writes, network::Network};
use island_coordinator_fabric::keys::FabricKeys;
use island_coordinator_storage::market::Market;

/// Maximum bytes of a request body.
pub(crate) const MAX_BODY: usize = 9 << 20;
/// Maximum bytes of a job's input: an assignment must fit into one message of the fabric.
pub(crate) const MAX_INPUT: usize = 8 << 20;

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

/// State of the handlers.
#[derive(Debug)]
pub struct Api {
    pub execution: Arc<Execution>,
    pub network: Arc<Network>,
    /// Confirms people who sign in, if the network has sign-in.
    pub provider: Option<Provider>,
    pub keys: FabricKeys,
    pub nats_url: String,
    pub rules: Rules,
    pub streams: slots::Slots,
    /// Memory for request bodies.
    pub bodies: body::BodyMemory,
    /// Threads for schemas of accounts.
    pub evaluations: evaluations::Evaluations,
    pub invalid_keys: client::ClientLimit,
    /// Codes for Islands without an account.
    pub pairings: client::ClientLimit,
    /// Sign-ins that have begun.
    pub sign_ins: client::ClientLimit,
    /// Writes that need not be awaited.
    pub deferred: deferred_writes::Sender,
    pub stops: Stops,
    pub document: Document,
    pub market: Market,
    pub demands: island::demand::LatestDemands,
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

/// What Islands and watchers are given access to the fabric with.
#[derive(Debug)]
pub struct FabricAccess {
    pub keys: FabricKeys,
    pub nats_url: String,
}

impl Api {
    pub fn new(
        execution: Arc<Execution>,
        network: Arc<Network>,
        provider: Option<Provider>,
        fabric: FabricAccess,
        rules: Rules,
        deferred: deferred_writes::Sender,
        stops: Stops,
    ) -> Self {
        let context = execution.context();
        let streams = slots::Slots {
            counters: context.store.counters().clone(),
            instance: context.instance,
            clock: context.clock.clone(),
            deferred: deferred.clone(),
            limit: rules.concurrent_streams,
            requests: context.metrics.requests.clone(),
        };
        let document = Document::new(&context.catalogue());
        let FabricAccess { keys, nats_url } = fabric;
        let bodies = body::BodyMemory::default();
        let market = Market::default();
        let invalid_keys =
            client::ClientLimit::new(rules.invalid_keys_per_minute, "requests with invalid keys");
        let pairings = client::ClientLimit::new(client::PAIRINGS_PER_MINUTE, "requests for a code");
        let sign_ins = client::ClientLimit::new(client::SIGN_INS_PER_MINUTE, "sign-ins");
        Self {
            execution,
            network,
            provider,
            keys,
            nats_url,
            rules,
            streams,
            bodies,
            evaluations: evaluations::Evaluations::default(),
            invalid_keys,
            pairings,
            sign_ins,
            deferred,
            stops,
            document,
            market,
            demands: island::demand::LatestDemands::default(),
            batches_changed: Notify::new(),
        }
    }
}

/// Who may use the API from where.
#[derive(Debug, Clone)]
pub struct Access {
    addresses: client::Addresses,
    cors_origins: Vec<String>,
}

impl Access {
    pub fn new(http: &Http) -> Self {
        let addresses =
            client::Addresses { trusted: http.trusted_proxies.clone().into(), is_direct: http.tls.is_some() };
        Self { addresses, cors_origins: http.cors_origins.clone() }
    }
}

/// The whole API, and the console if there is one.
pub fn router(api: Arc<Api>, access: Access, console: Option<island_console::Settings>) -> Router {
    let admission = limits::Admission::new(api.rules.max_requests);
    let context = api.execution.context();
    let observer =
        observe::Observer { requests: context.metrics.requests.clone(), traces: context.traces.clone() };
    let with_layers = |router: Router<Arc<Api>>| {
        router
            .fallback(unknown_route)
            .method_not_allowed_fallback(|| async {
                ApiError::new(Code::MethodNotAllowed, "this route does not take that method")
            })
            .layer(middleware::from_fn(limits::add_headers))
            .layer(middleware::from_fn_with_state(admission.clone(), limits::admit))
            .layer(middleware::from_fn_with_state(access.addresses.clone(), client::identify))
            .layer(middleware::from_fn(contain_panics))
            .layer(middleware::from_fn_with_state(observer.clone(), observe::observe))
            .with_state(api.clone())
    };
    let base = || Router::new().nest(PREFIX, Routes::all().router).route("/docs", get(document::page));
    let router = match console {
        None => with_layers(base().route("/", get(|| async { Redirect::temporary("/docs") }))),
        Some(settings) => {
            let inside = with_layers(base().merge(session::routes()));
            island_console::router(inside, carried, settings)
                .layer(middleware::from_fn(contain_panics))
                .fallback_service(with_layers(base()))
        }
    };
    // Without origins, `OPTIONS` is a method like any other.
    if access.cors_origins.is_empty() { router } else { router.layer(cors::layer(&access.cors_origins)) }
}

/// What of a request to the console its requests to the API have, too: the connection that it came on.
fn carried(from: &Extensions, to: &mut Extensions) {
    if let Some(peer) = from.get::<Peer>() {
        to.insert(*peer);
    }
}

/// Names the prefix where it is missing, which is a common mistake in a client's base URL.
async fn unknown_route(uri: Uri) -> ApiError {
    let is_prefixed =
        uri.path().strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let message = if is_prefixed {
        "there is no such route".to_owned()
    } else {
        format!("there is no such route: all routes of the API begin with {PREFIX}")
    };
    ApiError::new(Code::NotFound, message)
}

/// Answers a panic in a handler with 500 and a request id; the connection continues.
async fn contain_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError::new(Code::InternalError, "internal error").into_response(),
    }
}
