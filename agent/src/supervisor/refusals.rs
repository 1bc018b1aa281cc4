//! Refused jobs, by reason.

use std::collections::BTreeMap;

use island_protocol::fabric::{Refusal, RefusalCount, RefusalReason};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::disk::job_logs::printable;

/// How often a reason occurred, and its latest message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How often since the agent started.
    pub times: u64,
    /// The latest message.
    pub latest: String,
}

/// Refusals since the agent started.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<RefusalReason, Count>>);

impl Refusals {
    /// Counts a refusal.
    pub fn note(&self, refusal: &Refusal) {
        let mut counts = self.0.lock();
        let count = counts.entry(refusal.reason).or_insert_with(|| Count { times: 0, latest: String::new() });
        count.times += 1;
        // It may contain untrusted names, and is shown on the owner's terminal.
        count.latest = printable(&refusal.message);
    }

    /// What heartbeats report of them.
    pub fn reported(&self) -> Vec<RefusalCount> {
        let counts = self.0.lock();
        let reported = counts.iter().map(|(&reason, Count { times, latest })| RefusalCount {
            reason,
            times: *times,
            latest: latest.chars().take(RefusalCount::MAX_LATEST).collect(),
        });
        reported.collect()
    }

    /// All refusals by reason.
    pub fn all(&self) -> BTreeMap<RefusalReason, Count> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_keeps_the_latest_message() {
        let refusals = Refusals::default();
        for message in ["one", "two\x1b[2J"] {
            refusals.note(&Refusal { reason: RefusalReason::NoRam, message: message.to_owned() });
        }
        let all = refusals.all();
        assert_eq!(all[&RefusalReason::NoRam], Count { times: 2, latest: "two\u{fffd}[2J".to_owned() });
        assert_eq!(all.len(), 1);
        refusals.note(&Refusal { reason: RefusalReason::NoRam, message: "é".repeat(500) });
        let [reported] = refusals.reported().try_into().expect("one reason");
        assert_eq!((reported.times, reported.latest.chars().count()), (3, RefusalCount::MAX_LATEST));
    }
}
