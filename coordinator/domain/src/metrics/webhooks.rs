//! Webhooks: attempts to deliver events.

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

/// What an attempt resulted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Attempt {
    /// The event was accepted.
    Delivered,
    /// It is tried again.
    Postponed,
    /// It is not tried again.
    GivenUp,
}

/// Webhooks. Clones share them.
#[derive(Debug, Clone)]
pub struct Webhooks {
    attempts: Family<ByOutcome, Counter>,
    disabled: Counter,
}

impl Default for Webhooks {
    fn default() -> Self {
        let webhooks = Self { attempts: Family::default(), disabled: Counter::default() };
        // A rate needs a value before the first event.
        for outcome in Attempt::VARIANTS {
            drop(webhooks.attempts.get_or_create(&ByOutcome { outcome: outcome.into() }));
        }
        webhooks
    }
}

impl Webhooks {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "webhook_attempts",
            "Attempts to deliver an event to a webhook",
            self.attempts.clone(),
        );
        let about = "Webhooks that were disabled after long failure";
        registry.register("webhooks_disabled", about, self.disabled.clone());
    }

    /// An attempt ended.
    pub fn attempted(&self, outcome: Attempt) {
        self.attempts.get_or_create(&ByOutcome { outcome: outcome.into() }).inc();
    }

    /// A webhook was disabled.
    pub fn disabled(&self) {
        self.disabled.inc();
    }
}
