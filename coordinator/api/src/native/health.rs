//! `GET /health` and `GET /ready`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use island_daemon::latest::Latest;
use island_protocol_api::Health;
use tokio::time::timeout;

use crate::Api;

/// Maximum time for a reply of the database.
const PATIENCE: Duration = Duration::from_secs(2);
const NO_DATABASE: &str = "database unreachable";
const NO_FABRIC: &str = "fabric unreachable";

/// `ok`, or everything that is away. Without the database no request can be answered, so the status is 503; without
/// the fabric jobs are accepted and wait.
pub(crate) async fn health(State(api): State<Arc<Api>>) -> (StatusCode, Json<Health>) {
    let (has_database, has_fabric) = reachable(&api).await;
    report(has_database, &[(has_database, NO_DATABASE), (has_fabric, NO_FABRIC)])
}

/// 200 if new requests should be sent here: not while the coordinator stops, or lacks anything.
pub(crate) async fn ready(State(api): State<Arc<Api>>) -> (StatusCode, Json<Health>) {
    let (has_database, has_fabric) = reachable(&api).await;
    let runs = !api.stops.soft.is_cancelled();
    let parts = [(has_database, NO_DATABASE), (has_fabric, NO_FABRIC), (runs, "stopping")];
    report(parts.iter().all(|(holds, _)| *holds), &parts)
}

/// How many problems the network has that operators look after: the fabric is away, or maintenance goes on. Without the database there are
/// no pages that show it.
pub(crate) fn problems(api: &Api) -> usize {
    let has_fabric = api.link.connectivity().latest().connected;
    usize::from(!has_fabric) + usize::from(api.network.state().maintenance.is_some())
}

async fn reachable(api: &Api) -> (bool, bool) {
    let has_database = matches!(timeout(PATIENCE, api.store.ping()).await, Ok(Ok(())));
    (has_database, api.link.connectivity().latest().connected)
}

fn report(is_fine: bool, parts: &[(bool, &str)]) -> (StatusCode, Json<Health>) {
    let status = if is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    (status, Json(Health { status: description(parts), version }))
}

fn description(parts: &[(bool, &str)]) -> String {
    let away: Vec<&str> = parts.iter().filter(|(holds, _)| !holds).map(|(_, name)| *name).collect();
    if away.is_empty() { "ok".to_owned() } else { away.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_away_is_named() {
        assert_eq!(description(&[(true, NO_DATABASE), (true, NO_FABRIC)]), "ok");
        let both = [(false, NO_DATABASE), (false, NO_FABRIC)];
        assert_eq!(description(&both), "database unreachable, fabric unreachable");
        assert_eq!(description(&[(true, NO_DATABASE), (false, "stopping")]), "stopping");
    }
}
