//! What was asked of this Island and not taken, by reason: why it gets no work.

use std::collections::BTreeMap;

use island_protocol::fabric::{Refusal, RefusalReason};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How often a reason came up, and its latest words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How often since the agent started.
    pub times: u64,
    /// What was said last.
    pub latest: String,
}

/// Refusals since the agent started.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<RefusalReason, Count>>);

impl Refusals {
    /// One more.
    pub fn note(&self, refusal: &Refusal) {
        let mut counts = self.0.lock();
        let count = counts.entry(refusal.reason).or_insert_with(|| Count { times: 0, latest: String::new() });
        count.times += 1;
        count.latest.clone_from(&refusal.message);
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<RefusalReason, Count> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_keeps_the_latest_words() {
        let refusals = Refusals::default();
        for message in ["one", "two"] {
            refusals.note(&Refusal { reason: RefusalReason::NoRam, message: message.to_owned() });
        }
        let all = refusals.all();
        assert_eq!(all[&RefusalReason::NoRam], Count { times: 2, latest: "two".to_owned() });
        assert_eq!(all.len(), 1);
    }
}
