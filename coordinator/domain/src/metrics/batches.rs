//! Batches: their requests, and their ends.

use island_protocol_api::batch::BatchStatus;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use strum::VariantArray;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// What became of a request of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// It was answered with success.
    Completed,
    /// It was answered with an error.
    Failed,
    /// It was not run.
    NotRun,
}

/// Batches. Clones share them.
#[derive(Debug, Clone)]
pub struct Batches {
    requests: Family<ByOutcome, Counter>,
    ended: Family<ByState, Counter>,
}

impl Default for Batches {
    fn default() -> Self {
        let batches = Self { requests: Family::default(), ended: Family::default() };
        // A rate needs a value before the first event.
        for outcome in Outcome::VARIANTS {
            drop(batches.requests.get_or_create(&ByOutcome { outcome: outcome.into() }));
        }
        for state in BatchStatus::ALL.iter().filter(|state| state.is_final()) {
            drop(batches.ended.get_or_create(&ByState { state: state.as_str() }));
        }
        batches
    }
}

impl Batches {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("batch_requests", "Requests of batches with a result", self.requests.clone());
        registry.register("batches_ended", "Ended batches", self.ended.clone());
    }

    /// The result of a request is stored.
    pub fn recorded(&self, outcome: Outcome) {
        self.requests.get_or_create(&ByOutcome { outcome: outcome.into() }).inc();
    }

    /// A batch ended in this state.
    pub fn ended(&self, state: &'static str) {
        self.ended.get_or_create(&ByState { state }).inc();
    }
}
