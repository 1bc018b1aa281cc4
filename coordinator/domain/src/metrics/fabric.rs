//! Messages of the fabric.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use super::{Histograms, seconds_since, short};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySubject {
    subject: &'static str,
}

/// The fabric. Clones share it.
#[derive(Debug, Clone)]
pub struct Fabric {
    connects: Counter,
    dropped: Counter,
    waiting: Family<BySubject, Gauge>,
    wait: Histograms<BySubject>,
    publish: Histogram,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            connects: Counter::default(),
            dropped: Counter::default(),
            waiting: Family::default(),
            wait: Histograms::new_with_constructor(short),
            publish: short(),
        }
    }
}

impl Fabric {
    pub(super) fn register(&self, registry: &mut Registry) {
        let about = "Connections to the fabric that were established, the first one included";
        registry.register("fabric_connects", about, self.connects.clone());
        let about = "Messages of Islands that were dropped: too many or too large";
        registry.register("dropped_messages", about, self.dropped.clone());
        registry.register("inbox_messages", "Messages that are not handled yet", self.waiting.clone());
        let about = "Time from the arrival of a message until it is handled";
        registry.register_with_unit("inbox_wait", about, Unit::Seconds, self.wait.clone());
        let about = "Time until the stream acknowledges a message of events";
        registry.register_with_unit("publish", about, Unit::Seconds, self.publish.clone());
    }

    /// A connection was established.
    pub fn connected(&self) {
        self.connects.inc();
    }

    /// A message was dropped.
    pub fn dropped(&self) {
        self.dropped.inc();
    }

    /// Number of messages that were dropped.
    pub fn dropped_messages(&self) -> u64 {
        self.dropped.get()
    }

    /// A message that was sent at `begin` is acknowledged.
    pub fn published(&self, begin: Instant) {
        self.publish.observe(seconds_since(begin));
    }

    /// The messages of one subject.
    pub fn subject(&self, subject: &'static str) -> Subject {
        let label = BySubject { subject };
        Subject {
            waiting: self.waiting.get_or_create_owned(&label),
            wait: self.wait.get_or_create_owned(&label),
        }
    }
}

/// The messages of one subject.
#[derive(Debug, Clone)]
pub struct Subject {
    waiting: Gauge,
    wait: Histogram,
}

impl Subject {
    /// Counts a message that arrived at this time, until the value is dropped.
    pub fn arrived(&self, at: Instant) -> Waiting {
        self.waiting.inc();
        Waiting { subject: self.clone(), at }
    }
}

/// A message that is not handled yet.
#[derive(Debug)]
pub struct Waiting {
    subject: Subject,
    at: Instant,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.subject.waiting.dec();
        self.subject.wait.observe(seconds_since(self.at));
    }
}
