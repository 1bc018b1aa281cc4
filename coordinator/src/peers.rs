//! Which of the other coordinators are alive, pure.
//!
//! Each increments a counter in its own row. One whose counter stands still for long enough, while this coordinator
//! observes it without interruption, is gone. So no clocks are compared, and neither an outage of the database nor a
//! pause of this process makes another coordinator appear dead.

use std::{collections::HashMap, time::Duration};

use island_protocol::ids::InstanceId;
use tokio::time::Instant;

/// The heartbeat counter of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerHeartbeat {
    pub id: InstanceId,
    pub beats: i64,
}

/// Observes the counters of other coordinators.
#[derive(Debug)]
pub(crate) struct PeerMonitor {
    own: InstanceId,
    silent_after: Duration,
    observed: Option<Instant>,
    /// The last value of each counter, and since when it is unchanged.
    counters: HashMap<InstanceId, (i64, Instant)>,
}

impl PeerMonitor {
    /// A monitor for coordinator `own`.
    pub(crate) fn new(own: InstanceId, silent_after: Duration) -> Self {
        Self { own, silent_after, observed: None, counters: HashMap::new() }
    }

    /// Time between two heartbeats, and between two observations.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.silent_after / 8
    }

    /// Records the current counters and returns those that have not changed for too long.
    pub(crate) fn observe(&mut self, rows: &[PeerHeartbeat], now: Instant) -> Vec<PeerHeartbeat> {
        let last = self.observed.replace(now);
        if last.is_none_or(|last| now.saturating_duration_since(last) > self.silent_after / 2) {
            self.counters.clear();
        }
        self.counters.retain(|id, _| rows.iter().any(|row| row.id == *id));
        let others = rows.iter().filter(|row| row.id != self.own);
        let silent = others.filter(|row| {
            let (beats, since) = self.counters.entry(row.id).or_insert((row.beats, now));
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
        fn a_peer_whose_counter_grows_is_alive_whatever_our_own_pauses(steps in prop::collection::vec((1_u64..30_000, 0_i64..3), 1..60)) {
            let start = Instant::now();
            let (mut now, mut monitor) = (start, PeerMonitor::new(id(1), SILENT_AFTER));
            let (mut beats, mut moved) = (0, start);
            for (pause, count) in steps {
                now += Duration::from_millis(pause);
                if count > 0 {
                    (beats, moved) = (beats + count, now);
                }
                let silent = monitor.observe(&[PeerHeartbeat { id: id(1), beats: 0 }, PeerHeartbeat { id: id(2), beats }], now);
                if !silent.is_empty() {
                    prop_assert_eq!(silent, vec![PeerHeartbeat { id: id(2), beats }]);
                    prop_assert!(now - moved >= SILENT_AFTER);
                }
            }
        }

        #[test]
        fn a_peer_whose_counter_stands_still_is_found_without_a_pause_of_ours(pauses in prop::collection::vec(1_u64..4_000, 40)) {
            let start = Instant::now();
            let (mut now, mut monitor) = (start, PeerMonitor::new(id(1), SILENT_AFTER));
            let row = PeerHeartbeat { id: id(2), beats: 7 };
            monitor.observe(&[row], now);
            for pause in pauses {
                now += Duration::from_millis(pause);
                prop_assert_eq!(monitor.observe(&[row], now).is_empty(), now - start < SILENT_AFTER);
            }
        }
    }

    #[test]
    fn an_outage_makes_no_peer_appear_dead() {
        let start = Instant::now();
        let mut monitor = PeerMonitor::new(id(1), SILENT_AFTER);
        let row = PeerHeartbeat { id: id(2), beats: 7 };
        assert!(monitor.observe(&[row], start).is_empty());
        assert!(monitor.observe(&[row], start + Duration::from_hours(1)).is_empty());
        assert!(monitor.observe(&[row], start + Duration::from_hours(1) + SILENT_AFTER / 2).is_empty());
        assert_eq!(monitor.observe(&[row], start + Duration::from_hours(1) + SILENT_AFTER), [row]);
    }
}
