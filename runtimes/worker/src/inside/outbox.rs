//! The events of one attempt: numbered, kept until the agent has spooled them, sent in batches.

use std::collections::VecDeque;

use island_protocol::event::{AttemptEvent, Numbered};

use crate::event_limits::{MAX_BATCH_EVENTS, weight};

/// Approximate maximum of content in one frame, bytes: it ends with the event that reaches this.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Numbered events from the oldest that is still needed.
#[derive(Debug)]
pub(super) struct Outbox {
    events: VecDeque<Numbered<AttemptEvent>>,
    next: u64,
    ended: bool,
}

impl Outbox {
    /// Creates one whose first event has this number.
    pub(super) fn starting_at(first: u64) -> Self {
        Self { events: VecDeque::new(), next: first, ended: false }
    }

    /// Appends an event. Nothing can follow the end.
    pub(super) fn push(&mut self, event: AttemptEvent) {
        debug_assert!(!self.ended, "an event after the end");
        self.ended = matches!(event, AttemptEvent::Ended { .. });
        self.events.push_back(Numbered { n: self.next, event });
        self.next += 1;
    }

    /// Number of the oldest event that it still has; that of the next event if it has none.
    pub(super) fn oldest(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// Number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the end was appended.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns the next batch from event `from` on; empty if there are no events.
    pub(super) fn batch(&self, from: u64) -> Vec<Numbered<AttemptEvent>> {
        let skip = from.saturating_sub(self.oldest()) as usize;
        let mut bytes = 0_usize;
        let fits = |event: &&Numbered<AttemptEvent>| {
            let before = bytes;
            bytes = bytes.saturating_add(weight(&event.event));
            before < MAX_BATCH_BYTES
        };
        self.events.iter().skip(skip).take(MAX_BATCH_EVENTS).take_while(fits).cloned().collect()
    }

    /// Drops events below `below`; returns `true` once the end itself is dropped.
    pub(super) fn forget(&mut self, below: u64) -> bool {
        while self.events.front().is_some_and(|event| event.n < below) {
            self.events.pop_front();
        }
        self.ended && self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(text: &str) -> AttemptEvent {
        AttemptEvent::token(text.to_owned(), 1)
    }

    proptest! {
        #[test]
        fn batches_join_to_the_whole_without_gap(first in 1_u64..1000, sizes in proptest::collection::vec(0_usize..200_000, 1..40), spooled in 0_u64..50) {
            let mut outbox = Outbox::starting_at(first);
            for size in &sizes {
                outbox.push(token(&"x".repeat(*size)));
            }
            let ended = outbox.forget(first + spooled);
            prop_assert!(!ended);
            let mut from = first;
            let mut seen = Vec::new();
            loop {
                let batch = outbox.batch(from);
                let Some(last) = batch.last() else { break };
                from = last.n + 1;
                seen.extend(batch.iter().map(|event| event.n));
            }
            let expected: Vec<u64> = (first + spooled.min(sizes.len() as u64)..first + sizes.len() as u64).collect();
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn is_dropped_only_after_its_end() {
        let mut outbox = Outbox::starting_at(5);
        outbox.push(token("a"));
        assert!(!outbox.forget(6));
        outbox.push(AttemptEvent::Ended {
            outcome: island_protocol::job::Outcome::Completed {
                usage: island_protocol::job::Usage::default(),
                output: None,
                finish_reason: None,
                stop_text: None,
            },
        });
        assert!(!outbox.forget(6));
        assert!(outbox.forget(7));
    }
}
