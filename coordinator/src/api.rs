//! HTTP under `/api/v1`: one module per noun, one file per verb.
//!
//! Checks come in one order everywhere: route, method, size, key, requests a minute, scope, media type, JSON, fields,
//! ownership, idempotency, limits, credits, commit. [`auth::Caller`] does size to scope, [`body::Json`] media type and JSON, handlers the rest.

mod account;
mod artifacts;
pub(crate) mod auth;
mod body;
mod cargos;
mod chat;
pub(crate) mod document;
mod embeddings;
mod error;
mod fabric;
mod health;
mod hosts;
mod images;
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
pub(crate) mod routes;
mod segment;
mod slots;
mod workloads;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::FutureExt as _;
use island_protocol::{api::PREFIX, problem::Code};
use tokio_util::sync::CancellationToken;

pub(crate) use error::ApiError;

use document::Document;
use routes::Routes;

use crate::{fabric::keys::FabricKeys, owner::Owner, upkeep::Notes};

/// Bytes a request body may have.
pub(crate) const MAX_BODY: usize = 9 << 20;
/// Bytes the input of a job may have: an assignment must fit into one message of the fabric.
pub(crate) const MAX_INPUT: usize = 8 << 20;

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
    pub document: Document,
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
        let document = Document::new(&context.catalogue);
        Self { owner, keys, nats_url, rules, streams, notes, soft, document }
    }
}

/// The whole API.
pub(crate) fn router(api: Arc<Api>) -> Router {
    Router::new()
        .nest(PREFIX, Routes::all().router)
        .route("/docs", get(document::page))
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
