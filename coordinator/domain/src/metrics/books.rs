//! Movements of credits, and the sums of the books that must be zero.

use std::sync::atomic::AtomicU64;

use island_protocol::{credits::MicroCredits, time::Timestamp};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

/// The books. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Books {
    moved: Family<ByKind, Counter<f64, AtomicU64>>,
    sum: Gauge<f64, AtomicU64>,
    holds: Gauge<f64, AtomicU64>,
    checked: Gauge<f64, AtomicU64>,
}

impl Books {
    pub(super) fn register(&self, registry: &mut Registry) {
        let credits = || Unit::Other("credits".to_owned());
        registry.register_with_unit("moved", "Credits by kind of movement", credits(), self.moved.clone());
        let about = "Sum of all balances, which must be zero";
        registry.register_with_unit("books_sum", about, credits(), self.sum.clone());
        let about = "Holds without the prices of open jobs, which must be zero";
        registry.register_with_unit("books_holds_difference", about, credits(), self.holds.clone());
        let about = "When these sums were last read, in seconds since 1970";
        registry.register_with_unit("books_checked_timestamp", about, Unit::Seconds, self.checked.clone());
    }

    /// A committed transaction moved credits, by a posting of this kind.
    pub fn moved(&self, kind: &'static str, amount: MicroCredits) {
        self.moved.get_or_create(&ByKind { kind }).inc_by(credits(amount).max(0.0));
    }

    /// Both sums were read.
    pub fn checked(&self, sum: MicroCredits, holds: MicroCredits, now: Timestamp) {
        self.sum.set(credits(sum));
        self.holds.set(credits(holds));
        self.checked.set(now.unix_ms() as f64 / 1e3);
    }
}

fn credits(amount: MicroCredits) -> f64 {
    amount.0 as f64 / 1e6
}
