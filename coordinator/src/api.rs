//! HTTP under `/api/v1`: one module per noun, one file per verb.
//!
//! Checks come in one order everywhere: route, method, size, key, requests a minute, scope, media type, JSON, fields,
//! ownership, idempotency, limits, credits, commit. [`auth::Caller`] does size to scope, [`body::Json`] media type and JSON, handlers the rest.

mod account;
pub(crate) mod auth;
mod body;
mod cargos;
mod chat;
mod embeddings;
mod error;
mod fabric;
mod health;
mod hosts;
mod island;
mod jobs;
mod keys;
mod ledger;
mod limits;
mod market;
mod models;
mod network;
pub(crate) mod once;
mod query;
mod segment;
mod slots;
mod workloads;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{delete, get, post},
};
use futures::FutureExt as _;
use island_protocol::{api::PREFIX, problem::Code};
use tokio_util::sync::CancellationToken;

pub(crate) use error::ApiError;

use crate::{fabric::keys::FabricKeys, owner::Owner, upkeep::Notes};

/// Bytes a request body may have.
pub(crate) const MAX_BODY: usize = 1 << 20;
/// Bytes the input of a job may have: an assignment must fit into one message of the fabric.
pub(crate) const MAX_INPUT: usize = 768 << 10;

/// Bounds per account, and times.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// 0: no limit, as with the next two.
    pub requests_per_minute: u32,
    pub concurrent_jobs: u32,
    pub concurrent_streams: u32,
    /// How long a chat request waits for an Island.
    pub chat_wait: Duration,
    /// How long a job may wait for an Island.
    pub max_wait_ms: i64,
    /// Life of an Island's fabric credentials.
    pub island_jwt_ms: i64,
    /// Life of a watcher's fabric credentials.
    pub watch_jwt_ms: i64,
}

/// What handlers work with.
#[derive(Debug)]
pub(crate) struct Api {
    pub owner: Arc<Owner>,
    pub keys: FabricKeys,
    pub nats_url: String,
    pub rules: Rules,
    pub streams: slots::Slots,
    /// To what is written late.
    pub notes: Notes,
    /// Triggered: streams end, so that their readers resume elsewhere.
    pub soft: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        owner: Arc<Owner>,
        keys: FabricKeys,
        nats_url: String,
        rules: Rules,
        notes: Notes,
        soft: CancellationToken,
    ) -> Self {
        let context = owner.context();
        let streams = slots::Slots {
            counters: context.store.counters().clone(),
            instance: context.instance,
            clock: context.clock.clone(),
            notes: notes.clone(),
            limit: rules.concurrent_streams,
        };
        Self { owner, keys, nats_url, rules, streams, notes, soft }
    }
}

/// The whole API.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let routes = Router::new()
        .route("/health", get(health::health))
        .route("/cargos", get(cargos::list))
        .route("/jobs", get(jobs::list::list).post(jobs::submit::submit))
        .route("/jobs/{id}", get(jobs::get::get).delete(jobs::cancel::cancel))
        .route("/jobs/{id}/stream", get(jobs::stream::stream))
        .route("/jobs/{id}/output", get(jobs::get::output))
        .route("/chat/completions", post(chat::complete))
        .route("/models", get(models::list))
        .route("/models/{name}", get(models::get))
        .route("/embeddings", post(embeddings::create))
        .route("/account", get(account::account))
        .route("/account/ledger", get(ledger::entries))
        .route("/api-keys", get(keys::list::list).post(keys::create::create))
        .route("/api-keys/{id}", delete(keys::revoke::revoke))
        .route("/workloads", get(workloads::list))
        .route("/workloads/{slug}", get(workloads::get))
        .route("/hosts", get(hosts::list))
        .route("/hosts/{id}", get(hosts::get))
        .route("/hosts/{id}/karma", get(hosts::karma))
        .route("/market/rates", get(market::rates))
        .route("/market/rates/{slug}", get(market::rate))
        .route("/market/history/{slug}", get(market::history))
        .route("/network/stats", get(network::stats))
        .route("/island/recommendations", get(island::recommendations::recommendations))
        .route("/island/enroll", post(island::enroll::enroll))
        .route("/island/credentials", post(island::credentials::credentials))
        .route("/fabric/credentials", post(fabric::credentials));
    Router::new()
        .nest(PREFIX, routes)
        .fallback(|| async { ApiError::new(Code::NotFound, "there is no such route") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(Code::MethodNotAllowed, "this route does not take that method")
        })
        .layer(middleware::from_fn(limits::show))
        .layer(middleware::from_fn(contain_panics))
        .with_state(api)
}

/// A panic in a handler is a 500 with a request id, and the connection goes on.
async fn contain_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError::new(Code::InternalError, "something went wrong on our side").into_response(),
    }
}
