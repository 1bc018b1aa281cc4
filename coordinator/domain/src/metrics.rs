//! What the coordinator counts and measures, for Prometheus.
//!
//! Each noun has a group of metrics. The part of the program where something happens holds its group and calls the method
//! that names the event; nothing outside this module knows metrics by name. What is a state rather than an event is read
//! when the page is written ([`State`]). Labels have few values: routes, states, reasons, engines, and the Cargos of
//! the catalogue, never ids.
//!
//! `docs/operators.md` lists every metric, and a test compares that list with the page.

mod batches;
mod books;
mod fabric;
mod jobs;
mod requests;
mod state;
mod storage;
mod webhooks;

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::text::encode,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

pub use batches::{Batches, Outcome};
pub use books::Books;
pub use fabric::{Fabric, Subject, Waiting};
pub use jobs::{Ended, Jobs, Loss};
pub use requests::{OpenStream, Requests};
pub use state::State;
pub use storage::{PoolUse, Storage};
pub use webhooks::{Attempt, Webhooks};

/// Content type of [`Metrics::page`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub requests: Requests,
    pub jobs: Jobs,
    pub books: Books,
    pub batches: Batches,
    pub webhooks: Webhooks,
    pub fabric: Fabric,
    pub state: State,
    registry: Arc<Registry>,
}

impl Metrics {
    /// Those of a coordinator whose database and connection have begun to record theirs.
    pub fn new(storage: &Storage, fabric: Fabric) -> Self {
        let (requests, jobs, books) = (Requests::default(), Jobs::default(), Books::default());
        let (state, batches, webhooks) = (State::default(), Batches::default(), Webhooks::default());
        let mut registry = Registry::with_prefix("island_coordinator");
        requests.register(&mut registry);
        jobs.register(&mut registry);
        books.register(&mut registry);
        batches.register(&mut registry);
        webhooks.register(&mut registry);
        fabric.register(&mut registry);
        storage.register(&mut registry);
        state.register(&mut registry);
        Self { requests, jobs, books, batches, webhooks, fabric, state, registry: Arc::new(registry) }
    }

    /// All of them in the OpenMetrics text format.
    pub fn page(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

/// Histograms by label.
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Times of milliseconds, as of requests and statements.
fn short() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0])
}

/// Times of seconds, as of jobs.
fn long() -> Histogram {
    Histogram::new([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0])
}

fn seconds_since(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64()
}
