//! Where a reader stands in a job's one sequence of events: decides what of a frame is new.

use island_protocol::event::{JobEvent, Numbered};
use serde_json::Value;

/// Number of the last event received, 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position(pub(super) u64);

/// What a frame is to a reader.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// The next event.
    Event(Numbered<JobEvent>),
    /// Nothing: received before, empty, or of a kind newer than this version.
    Nothing,
    /// Events before it are missing.
    Gap,
}

impl Position {
    /// Takes a frame. Its place moves only with the next event in the sequence.
    pub(super) fn take(&mut self, id: &str, data: &str) -> serde_json::Result<Taken> {
        if data.is_empty() {
            return Ok(Taken::Nothing);
        }
        let next = self.0 + 1;
        let n = id.parse().unwrap_or(next);
        if n < next {
            return Ok(Taken::Nothing);
        }
        if n > next {
            return Ok(Taken::Gap);
        }
        let event = match serde_json::from_str::<JobEvent>(data) {
            Ok(event) => event,
            Err(_) if is_newer(data) => {
                self.0 = n;
                return Ok(Taken::Nothing);
            }
            Err(error) => return Err(error),
        };
        self.0 = n;
        Ok(Taken::Event(Numbered { n, event }))
    }
}

/// Whether data is an event of a kind that this version does not know.
fn is_newer(data: &str) -> bool {
    const KNOWN: [&str; 6] = ["token", "progress", "status", "image", "done", "error"];
    let data: Option<Value> = serde_json::from_str(data).ok();
    data.and_then(|data| data["type"].as_str().map(|kind| !KNOWN.contains(&kind))).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(n: u64) -> String {
        format!(r#"{{"type":"token","content":"t{n}"}}"#)
    }

    proptest! {
        /// Connections begin anywhere up to the right place and break anywhere; the sequence comes out whole.
        #[test]
        fn no_gap_and_no_repeat(total in 1_u64..40, connections in prop::collection::vec((0_u64..5, 0_u64..10), 0..60)) {
            let mut position = Position(0);
            let mut seen = Vec::new();
            for (overlap, length) in connections.into_iter().chain([(0, total)]) {
                let first = (position.0 + 1).saturating_sub(overlap).max(1);
                for n in first..=(first + length).min(total) {
                    match position.take(&n.to_string(), &data(n)).expect("an event") {
                        Taken::Event(event) => seen.push(event.n),
                        Taken::Nothing => prop_assert!(seen.contains(&n)),
                        Taken::Gap => prop_assert!(false, "a gap before {n}"),
                    }
                }
            }
            prop_assert_eq!(seen, (1..=total).collect::<Vec<_>>());
        }

        #[test]
        fn a_skipped_event_is_a_gap(at in 0_u64..1000, skip in 2_u64..1000) {
            let mut position = Position(at);
            prop_assert_eq!(position.take(&(at + skip).to_string(), &data(1)).expect("an event"), Taken::Gap);
            prop_assert_eq!(position, Position(at));
        }

        #[test]
        fn garbage_moves_nothing(text in "\\PC{1,30}") {
            let mut position = Position(3);
            let known = serde_json::from_str::<JobEvent>(&text).is_ok() || is_newer(&text);
            prop_assert_eq!(position.take("4", &text).is_ok(), known);
            prop_assert_eq!(position.0, if known { 4 } else { 3 });
        }
    }

    #[test]
    fn kinds_of_tomorrow_are_passed_over() {
        let mut position = Position(0);
        assert_eq!(
            position.take("1", r#"{"type":"hologram","depth":3}"#).expect("passed over"),
            Taken::Nothing
        );
        assert!(matches!(position.take("2", &data(2)).expect("an event"), Taken::Event(_)));
        assert!(position.take("3", r#"{"type":"token"}"#).is_err(), "a known kind must be whole");
    }

    #[test]
    fn frames_without_an_id_are_counted() {
        let mut position = Position(0);
        assert!(matches!(position.take("", &data(1)).expect("an event"), Taken::Event(_)));
        assert_eq!(position, Position(1));
    }
}
