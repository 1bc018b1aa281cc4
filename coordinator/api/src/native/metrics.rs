//! The page of [`island_coordinator_domain::metrics`], on an address of its own.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use island_daemon::{chain::Chain, latest::Latest as _};
use tokio::time::{Instant, timeout};

use crate::{http::state::Parts, server::Certificate};
use island_coordinator_domain::metrics::CONTENT_TYPE;
use island_coordinator_execution::Execution;
use island_coordinator_storage::jobs;

/// Maximum time for a reply of the database.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the state is read from.
#[derive(Debug, Clone)]
pub struct Sources {
    pub parts: Parts,
    pub execution: Arc<Execution>,
    pub certificate: Option<Arc<Certificate>>,
    pub since: Instant,
}

/// The one route.
pub fn router(sources: Sources) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(sources)
}

async fn metrics(State(sources): State<Sources>) -> Response {
    read_state(&sources).await;
    match sources.parts.metrics.page() {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn read_state(Sources { parts, execution, certificate, since }: &Sources) {
    let open = match timeout(PATIENCE, jobs::open_by_status(parts.store.reader())).await {
        Ok(Ok(counts)) => Some(counts),
        Ok(Err(error)) => {
            tracing::warn!(error = %Chain(&error), "open jobs not counted");
            None
        }
        Err(_) => None,
    };
    let state = &parts.metrics.state;
    state.set_up(since.elapsed().as_secs_f64());
    state.set_connected(parts.link.connectivity().latest().connected);
    state.set_relayed(execution.relayed());
    if let Some(expires) = certificate.as_ref().and_then(|certificate| certificate.expires()) {
        state.set_certificate(expires);
    }
    let fleet = parts.fleet.snapshot(Instant::now());
    state.set_islands(fleet.islands.iter().map(|island| island.status));
    state.set_open_jobs(open);
    state.set_connections(parts.store.connections());
}
