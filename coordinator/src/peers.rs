//! Which of the other coordinators are still there, pure.
//!
//! Each counts up in a row of its own. Who stands still for long enough, while we were looking all the time, is gone; so
//! no clocks are compared, and an outage of the database, or a pause of our own, makes nobody look dead.

use std::{collections::HashMap, time::Duration};

use island_protocol::ids::InstanceId;
use tokio::time::Instant;

/// A coordinator's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pulse {
    pub id: InstanceId,
    pub beats: i64,
}

/// What was seen of the others.
#[derive(Debug)]
pub(crate) struct Watch {
    own: InstanceId,
    silent_after: Duration,
    looked: Option<Instant>,
    /// The last count, and since when it is the same.
    seen: HashMap<InstanceId, (i64, Instant)>,
}

impl Watch {
    /// Watches the others for coordinator `own`.
    pub(crate) fn new(own: InstanceId, silent_after: Duration) -> Self {
        Self { own, silent_after, looked: None, seen: HashMap::new() }
    }

    /// Time between two beats, and between two looks.
    pub(crate) fn beat(&self) -> Duration {
        self.silent_after / 8
    }

    /// Takes what the rows say now; returns those that have stood still for too long.
    pub(crate) fn look(&mut self, rows: &[Pulse], now: Instant) -> Vec<Pulse> {
        let last = self.looked.replace(now);
        if last.is_none_or(|last| now.saturating_duration_since(last) > self.silent_after / 2) {
            self.seen.clear();
        }
        self.seen.retain(|id, _| rows.iter().any(|row| row.id == *id));
        let others = rows.iter().filter(|row| row.id != self.own);
        let silent = others.filter(|row| {
            let (beats, since) = self.seen.entry(row.id).or_insert((row.beats, now));
            if *beats != row.beats {
                (*beats, *since) = (row.beats, now);
            }
            now.saturating_duration_since(*since) >= self.silent_after
        });
        silent.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const SILENT_AFTER: Duration = Duration::from_secs(8);

    fn id(n: u128) -> InstanceId {
        InstanceId(Uuid::from_u128(n))
    }

    proptest! {
        #[test]
        fn who_counts_is_alive_whatever_our_own_pauses(steps in prop::collection::vec((1_u64..30_000, 0_i64..3), 1..60)) {
            let start = Instant::now();
            let (mut now, mut watch) = (start, Watch::new(id(1), SILENT_AFTER));
            let (mut beats, mut moved) = (0, start);
            for (pause, count) in steps {
                now += Duration::from_millis(pause);
                if count > 0 {
                    (beats, moved) = (beats + count, now);
                }
                let silent = watch.look(&[Pulse { id: id(1), beats: 0 }, Pulse { id: id(2), beats }], now);
                if !silent.is_empty() {
                    prop_assert_eq!(silent, vec![Pulse { id: id(2), beats }]);
                    prop_assert!(now - moved >= SILENT_AFTER);
                }
            }
        }

        #[test]
        fn who_stands_still_is_found_by_whoever_keeps_looking(pauses in prop::collection::vec(1_u64..4_000, 40)) {
            let start = Instant::now();
            let (mut now, mut watch) = (start, Watch::new(id(1), SILENT_AFTER));
            let row = Pulse { id: id(2), beats: 7 };
            watch.look(&[row], now);
            for pause in pauses {
                now += Duration::from_millis(pause);
                prop_assert_eq!(watch.look(&[row], now).is_empty(), now - start < SILENT_AFTER);
            }
        }
    }

    #[test]
    fn an_outage_makes_nobody_look_dead() {
        let start = Instant::now();
        let mut watch = Watch::new(id(1), SILENT_AFTER);
        let row = Pulse { id: id(2), beats: 7 };
        assert!(watch.look(&[row], start).is_empty());
        assert!(watch.look(&[row], start + Duration::from_hours(1)).is_empty());
        assert!(watch.look(&[row], start + Duration::from_hours(1) + SILENT_AFTER / 2).is_empty());
        assert_eq!(watch.look(&[row], start + Duration::from_hours(1) + SILENT_AFTER), [row]);
    }
}
