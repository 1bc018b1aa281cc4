//! The database.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::histogram::Histogram,
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use super::{Histograms, seconds_since, short};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPool {
    pool: &'static str,
}

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Storage {
    seconds: Histograms<ByOperation>,
    wait: Histograms<ByPool>,
    group: Histogram,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            seconds: Histograms::new_with_constructor(short),
            wait: Histograms::new_with_constructor(short),
            group: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
        }
    }
}

impl Storage {
    pub(super) fn register(&self, registry: &mut Registry) {
        let about = "Time of a statement that reads, of a commit, and of a statement about limits";
        registry.register_with_unit("database", about, Unit::Seconds, self.seconds.clone());
        let about = "Time until a connection is free: for reading, for a write transaction, for limits";
        registry.register_with_unit("database_wait", about, Unit::Seconds, self.wait.clone());
        let about = "Transactions that SQLite's writer commits together";
        registry.register("commit_group_transactions", about, self.group.clone());
    }

    /// The use of a pool: `read` or `count`.
    pub fn pool(&self, pool: &'static str) -> PoolUse {
        PoolUse {
            wait: self.wait.get_or_create_owned(&ByPool { pool }),
            seconds: self.seconds.get_or_create_owned(&ByOperation { operation: pool }),
        }
    }

    /// A write transaction that was requested at `requested` begins.
    pub fn begun(&self, requested: Instant) {
        self.wait.get_or_create(&ByPool { pool: "write" }).observe(seconds_since(requested));
    }

    /// A commit that began at `begin` has ended.
    pub fn committed(&self, begin: Instant) {
        self.seconds.get_or_create(&ByOperation { operation: "commit" }).observe(seconds_since(begin));
    }

    /// This number of transactions is committed together.
    pub fn grouped(&self, transactions: usize) {
        self.group.observe(transactions as f64);
    }
}

/// The use of one pool of connections.
#[derive(Debug, Clone)]
pub struct PoolUse {
    wait: Histogram,
    seconds: Histogram,
}

impl PoolUse {
    /// A connection that was requested at `requested` is free.
    pub fn acquired(&self, requested: Instant) {
        self.wait.observe(seconds_since(requested));
    }

    /// A statement that began at `begin` has ended.
    pub fn executed(&self, begin: Instant) {
        self.seconds.observe(seconds_since(begin));
    }
}
