//! `GET /health`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_daemon::latest::Latest;
use island_protocol::api::Health;

use super::Api;

/// `ok`, or the part that is unreachable. Always 200, as the process replies.
pub(super) async fn health(State(api): State<Arc<Api>>) -> Json<Health> {
    let context = api.execution.context();
    let status = if context.store.ping().await.is_err() {
        "database unreachable"
    } else if !context.link.connectivity().latest().connected {
        "fabric unreachable"
    } else {
        "ok"
    };
    Json(Health { status: status.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}
