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

/// Whether this coordinator may still act for its jobs. Others take its jobs over when its heartbeats stand still for
/// long enough; it stops before that by its own clock, when it cannot write them or did not run.
#[derive(Debug)]
pub(crate) struct Fence {
    limit: Duration,
    renewed: Instant,
    /// Whether other coordinators use the same database. They may start at any time.
    has_peers: bool,
}

impl Fence {
    /// An open fence of a coordinator whose jobs are taken over after `takeover`. `has_peers` is whether there may be
    /// others that do so, now or later.
    pub(crate) fn new(takeover: Duration, has_peers: bool, now: Instant) -> Self {
        Self { limit: takeover * 4 / 5, renewed: now, has_peers }
    }

    /// Records a heartbeat that was sent at `sent`.
    pub(crate) fn renew(&mut self, sent: Instant) {
        self.renewed = self.renewed.max(sent);
    }

    /// Whether jobs may have been taken over. With a database of its own a coordinator continues without it.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        self.has_peers && now.saturating_duration_since(self.renewed) >= self.limit
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

    proptest! {
        #[test]
        fn the_fence_is_closed_before_a_peer_removes_this_coordinator(
            beats in prop::collection::vec((0_u64..4_000, 0_u64..2_000), 1..30), silence in 0_u64..20_000,
        ) {
            let start = Instant::now();
            let (mut now, mut fence) = (start, Fence::new(SILENT_AFTER, true, start));
            let mut peer = PeerMonitor::new(id(1), SILENT_AFTER);
            for (beat, (pause, delay)) in beats.into_iter().enumerate() {
                let sent = now;
                // The peer sees the heartbeat before its sender gets the reply.
                now += Duration::from_millis(delay);
                let row = PeerHeartbeat { id: id(2), beats: beat as i64 };
                let silent = peer.observe(&[row], now);
                prop_assert!(silent.is_empty());
                fence.renew(sent);
                prop_assert!(!fence.is_closed(now));
                now += Duration::from_millis(pause);
            }
            let last = PeerHeartbeat { id: id(2), beats: i64::MAX };
            peer.observe(&[last], now);
            fence.renew(now);
            let end = now + Duration::from_millis(silence);
            while now < end {
                now = (now + Duration::from_millis(500)).min(end);
                prop_assert!(peer.observe(&[last], now).is_empty() || fence.is_closed(now));
            }
        }
    }

    #[test]
    fn a_coordinator_with_its_own_database_is_never_fenced() {
        let start = Instant::now();
        let later = start + Duration::from_hours(1);
        assert!(!Fence::new(SILENT_AFTER, false, start).is_closed(later));
        assert!(Fence::new(SILENT_AFTER, true, start).is_closed(later));
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
