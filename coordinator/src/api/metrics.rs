//! Numbers for Prometheus, on an address of their own. Requests are counted as they are answered; everything else is
//! read when it is requested.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
    routing::get,
};
use island_daemon::{chain::Chain, latest::Latest as _};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::{Instant, timeout};

use crate::{
    execution::Execution,
    storage::{StoreError, jobs},
};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper bounds of the times of requests, seconds.
const SECONDS: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Maximum time for a reply of the database.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: &'static str,
}

/// Counts of answered requests. Clones share them.
#[derive(Clone)]
pub(crate) struct Requests {
    answered: Family<Status, Counter>,
    seconds: Histogram,
    in_flight: Gauge,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}

impl Default for Requests {
    fn default() -> Self {
        let seconds = Histogram::new(SECONDS);
        Self { answered: Family::default(), seconds, in_flight: Gauge::default() }
    }
}

/// Counts a request until it ends, also if it is dropped.
struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts a request and the time until its answer begins.
pub(crate) async fn count(State(requests): State<Requests>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    requests.in_flight.inc();
    let _in_flight = InFlight(requests.in_flight.clone());
    let response = next.run(request).await;
    requests.seconds.observe(begun.elapsed().as_secs_f64());
    requests.answered.get_or_create(&Status { status: response.status().as_u16() }).inc();
    response
}

/// What the numbers are read from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub execution: Arc<Execution>,
    pub requests: Requests,
    pub since: Instant,
}

/// The one route.
pub(crate) fn router(sources: Sources) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(sources)
}

async fn metrics(State(sources): State<Sources>) -> Response {
    let mut page = String::new();
    match encode(&mut page, &read(&sources).await) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn read(sources: &Sources) -> Registry {
    let mut registry = Registry::with_prefix("island_coordinator");
    let Sources { execution, requests, since } = sources;
    let context = execution.context();
    registry.register("requests", "Answered requests.", requests.answered.clone());
    let about = "Time until an answer begins.";
    registry.register_with_unit("request", about, Unit::Seconds, requests.seconds.clone());
    registry.register("requests_in_flight", "Requests that are being answered.", requests.in_flight.clone());

    let mut gauge = |name: &'static str, help: &'static str, value: f64| {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("up_seconds", "Time since the start.", since.elapsed().as_secs_f64());
    let is_connected = context.link.connectivity().latest().connected;
    gauge("fabric_connected", "1 while connected to the fabric.", f64::from(u8::from(is_connected)));
    gauge("relayed_jobs", "Jobs of other coordinators with readers here.", execution.relayed() as f64);
    let open = timeout(PATIENCE, jobs::open_by_status(context.store.reader())).await;
    let is_up = matches!(open, Ok(Ok(_)));
    gauge("database_up", "1 while the database replies.", f64::from(u8::from(is_up)));

    for (name, help, value) in [
        (
            "dropped_messages",
            "Messages of Islands that were dropped: too many or too large.",
            execution.dropped_messages(),
        ),
        ("stale_messages", "Messages about attempts that are not current.", execution.stale_messages()),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    let islands = Family::<ByState, Gauge<i64, AtomicI64>>::default();
    for island in &context.fleet.snapshot(Instant::now()).islands {
        islands.get_or_create(&ByState { state: island.status.to_owned() }).inc();
    }
    registry.register("islands", "Islands by status.", islands);
    let open_jobs = Family::<ByState, Gauge<i64, AtomicI64>>::default();
    for (status, count) in open_counts(open) {
        open_jobs.get_or_create(&ByState { state: status }).set(count);
    }
    registry.register("open_jobs", "Open jobs of all coordinators by status.", open_jobs);
    let (busy, all) = (Family::<PoolLabel, Gauge>::default(), Family::<PoolLabel, Gauge>::default());
    for (pool, connections, idle) in context.store.connections() {
        all.get_or_create(&PoolLabel { pool }).set(i64::from(connections));
        busy.get_or_create(&PoolLabel { pool }).set(i64::from(connections) - idle as i64);
    }
    registry.register("database_connections", "Connections to the database.", all);
    registry.register("database_connections_busy", "Those that are in use.", busy);
    registry
}

fn open_counts(
    read: Result<Result<Vec<(String, i64)>, StoreError>, tokio::time::error::Elapsed>,
) -> Vec<(String, i64)> {
    match read {
        Ok(Ok(counts)) => counts,
        Ok(Err(error)) => {
            tracing::warn!(error = %Chain(&error), "open jobs not counted");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_status() {
        let requests = Requests::default();
        let service: Router = Router::new()
            .fallback(|request: Request| async move {
                if request.uri().path() == "/" { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }
            })
            .layer(axum::middleware::from_fn_with_state(requests.clone(), count));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let stop = tokio_util::sync::CancellationToken::new();
        let server = tokio::spawn(crate::server::serve(listener, None, service, 4, stop.clone()));
        for path in ["/", "/", "/nothing"] {
            reqwest::get(format!("{url}{path}")).await.expect("an answer");
        }
        stop.cancel();
        server.await.expect("it ends");
        let counted = |status| requests.answered.get_or_create(&Status { status }).get();
        assert_eq!((counted(204), counted(404)), (2, 1));
        assert_eq!(requests.in_flight.get(), 0);
    }
}
