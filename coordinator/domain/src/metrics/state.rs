//! What is read when the page is requested.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPool {
    pool: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Listener {
    listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// States. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct State {
    up: Gauge<f64, AtomicU64>,
    is_connected: Gauge,
    is_database_up: Gauge,
    relayed_jobs: Gauge,
    islands: Family<ByState, Gauge>,
    open_jobs: Family<ByState, Gauge>,
    connections: Family<ByPool, Gauge>,
    busy: Family<ByPool, Gauge>,
    build: Family<Build, Gauge>,
    certificate: Family<Listener, Gauge>,
    maintenance: Gauge,
    clock: Gauge,
}

impl State {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit("up", "Time since the start", Unit::Seconds, self.up.clone());
        self.build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "1, with the version of this program", self.build.clone());
        let about = "1 while operators have closed the network to new jobs";
        registry.register("maintenance", about, self.maintenance.clone());
        let about = "1 while data is deleted and summed by this machine's clock, 0 while the clock needs to be confirmed";
        registry.register("clock_trusted", about, self.clock.clone());
        let about = "When the certificate expires, in seconds since 1970; absent without TLS";
        let seconds = Unit::Seconds;
        registry.register_with_unit(
            "certificate_expires_timestamp",
            about,
            seconds,
            self.certificate.clone(),
        );
        registry.register("fabric_connected", "1 while connected to the fabric", self.is_connected.clone());
        registry.register("database_up", "1 while the database replies", self.is_database_up.clone());
        registry.register("islands", "Islands by status", self.islands.clone());
        registry.register("open_jobs", "Open jobs of all coordinators by status", self.open_jobs.clone());
        let about = "Jobs of other coordinators with readers here";
        registry.register("relayed_jobs", about, self.relayed_jobs.clone());
        registry.register("database_connections", "Connections to the database", self.connections.clone());
        registry.register("database_connections_busy", "Those that are in use", self.busy.clone());
    }

    /// Sets the seconds since the start.
    pub fn set_up(&self, seconds: f64) {
        self.up.set(seconds);
    }

    /// Sets when the certificate of the API expires, in seconds since 1970.
    pub fn set_certificate(&self, expires: i64) {
        self.certificate.get_or_create(&Listener { listener: "http" }).set(expires);
    }

    /// Sets when the certificate of nats-server expires, in seconds since 1970.
    pub fn set_nats_certificate(&self, expires: i64) {
        self.certificate.get_or_create(&Listener { listener: "nats" }).set(expires);
    }

    /// Sets whether the network is closed to new jobs.
    pub fn set_maintenance(&self, is_closed: bool) {
        self.maintenance.set(i64::from(is_closed));
    }

    /// Sets whether data is deleted and summed by this machine's clock.
    pub fn set_clock_trusted(&self, is_trusted: bool) {
        self.clock.set(i64::from(is_trusted));
    }

    /// Sets whether the fabric is connected.
    pub fn set_connected(&self, is_connected: bool) {
        self.is_connected.set(i64::from(is_connected));
    }

    /// Sets the number of relayed jobs.
    pub fn set_relayed(&self, jobs: usize) {
        self.relayed_jobs.set(jobs as i64);
    }

    /// Sets the Islands: the status of each.
    pub fn set_islands<'a>(&self, statuses: impl Iterator<Item = &'a str>) {
        let mut counts = BTreeMap::<_, i64>::new();
        for status in statuses {
            *counts.entry(status).or_default() += 1;
        }
        self.islands.clear();
        for (status, count) in counts {
            self.islands.get_or_create(&ByState { state: status.to_owned() }).set(count);
        }
    }

    /// Sets the open jobs by status; `None` if the database does not reply.
    pub fn set_open_jobs(&self, counts: Option<Vec<(String, i64)>>) {
        self.is_database_up.set(i64::from(counts.is_some()));
        self.open_jobs.clear();
        for (state, count) in counts.into_iter().flatten() {
            self.open_jobs.get_or_create(&ByState { state }).set(count);
        }
    }

    /// Sets the connections to the database: name, connections and idle connections of each pool.
    pub fn set_connections(&self, pools: Vec<(&'static str, u32, usize)>) {
        for (pool, connections, idle) in pools {
            self.connections.get_or_create(&ByPool { pool }).set(i64::from(connections));
            self.busy.get_or_create(&ByPool { pool }).set(i64::from(connections) - idle as i64);
        }
    }
}
