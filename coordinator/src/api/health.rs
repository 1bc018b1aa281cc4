//! `GET /health`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use island_daemon::latest::Latest;
use island_protocol::api::Health;
use tokio::time::timeout;

use super::Api;

/// Maximum time for a reply of the database.
const PATIENCE: Duration = Duration::from_secs(2);

/// `ok`, or everything that is away. Without the database no request can be answered, so the status is 503; without
/// the fabric jobs are accepted and wait.
pub(super) async fn health(State(api): State<Arc<Api>>) -> (StatusCode, Json<Health>) {
    let context = api.execution.context();
    let has_database = matches!(timeout(PATIENCE, context.store.ping()).await, Ok(Ok(())));
    let has_fabric = context.link.connectivity().latest().connected;
    let status = if has_database { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    (status, Json(Health { status: description(has_database, has_fabric), version }))
}

fn description(has_database: bool, has_fabric: bool) -> String {
    let parts = [(has_database, "database unreachable"), (has_fabric, "fabric unreachable")];
    let away: Vec<&str> = parts.into_iter().filter(|(has, _)| !has).map(|(_, name)| name).collect();
    if away.is_empty() { "ok".to_owned() } else { away.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_away_is_named() {
        assert_eq!(description(true, true), "ok");
        assert_eq!(description(true, false), "fabric unreachable");
        assert_eq!(description(false, false), "database unreachable, fabric unreachable");
    }
}
