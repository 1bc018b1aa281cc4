//! A reader's position in a job's sequence of events: decides whether a frame is new.

use island_protocol::event::{END_GAP, JobEvent, Numbered};
use serde_json::Value;

/// Number of the last event received, 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position(pub(super) u64);

/// The relation of a frame to the position.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The next event.
    Event(Box<Numbered<JobEvent>>),
    /// Nothing new: received before, empty, or of a kind unknown to this version.
    Nothing,
    /// Events before it are missing.
    Gap,
}

impl Position {
    /// Processes a frame. Only the next event in the sequence, or an end behind lost events, advances the position.
    pub(super) fn take(&mut self, id: &str, data: &str) -> serde_json::Result<Step> {
        if data.is_empty() {
            return Ok(Step::Nothing);
        }
        let next = self.0 + 1;
        let n = id.parse().unwrap_or(next);
        if n < next {
            return Ok(Step::Nothing);
        }
        // The end of a job whose latest events were lost follows a gap that nothing fills.
        if n > next && n <= END_GAP {
            return Ok(Step::Gap);
        }
        let event = match serde_json::from_str::<JobEvent>(data) {
            Ok(event) => event,
            Err(_) if is_newer(data) => {
                self.0 = n;
                return Ok(Step::Nothing);
            }
            Err(error) => return Err(error),
        };
        self.0 = n;
        Ok(Step::Event(Box::new(Numbered { n, event })))
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
        /// Connections start anywhere up to the position and break anywhere; the sequence is complete.
        #[test]
        fn no_gap_and_no_repeat(total in 1_u64..40, connections in prop::collection::vec((0_u64..5, 0_u64..10), 0..60)) {
            let mut position = Position(0);
            let mut seen = Vec::new();
            for (overlap, length) in connections.into_iter().chain([(0, total)]) {
                let first = (position.0 + 1).saturating_sub(overlap).max(1);
                for n in first..=(first + length).min(total) {
                    match position.take(&n.to_string(), &data(n)).expect("an event") {
                        Step::Event(event) => seen.push(event.n),
                        Step::Nothing => prop_assert!(seen.contains(&n)),
                        Step::Gap => prop_assert!(false, "a gap before {n}"),
                    }
                }
            }
            prop_assert_eq!(seen, (1..=total).collect::<Vec<_>>());
        }

        #[test]
        fn a_skipped_event_is_a_gap(at in 0_u64..1000, skip in 2_u64..1000) {
            let mut position = Position(at);
            prop_assert_eq!(position.take(&(at + skip).to_string(), &data(1)).expect("an event"), Step::Gap);
            prop_assert_eq!(position, Position(at));
        }

        #[test]
        fn an_end_behind_lost_events_is_the_next_event(at in 0_u64..1000, stored in 1_u64..1000) {
            let mut position = Position(at);
            let end = END_GAP + stored;
            let data = r#"{"type":"error","error":"lost","code":"island_lost"}"#;
            let step = position.take(&end.to_string(), data).expect("an event");
            prop_assert!(matches!(step, Step::Event(event) if event.n == end));
        }

        #[test]
        fn malformed_frames_do_not_advance_the_position(text in "\\PC{1,30}") {
            let mut position = Position(3);
            let known = serde_json::from_str::<JobEvent>(&text).is_ok() || is_newer(&text);
            prop_assert_eq!(position.take("4", &text).is_ok(), known);
            prop_assert_eq!(position.0, if known { 4 } else { 3 });
        }
    }

    #[test]
    fn unknown_kinds_are_skipped() {
        let mut position = Position(0);
        assert_eq!(
            position.take("1", r#"{"type":"hologram","depth":3}"#).expect("passed over"),
            Step::Nothing
        );
        assert!(matches!(position.take("2", &data(2)).expect("an event"), Step::Event(_)));
        assert!(position.take("3", r#"{"type":"token"}"#).is_err(), "a known kind must be whole");
    }

    #[test]
    fn frames_without_an_id_are_counted() {
        let mut position = Position(0);
        assert!(matches!(position.take("", &data(1)).expect("an event"), Step::Event(_)));
        assert_eq!(position, Position(1));
    }
}
