//! The coordinators that share a database, pure: which of them are alive, whose jobs this one takes over, and whether
//! others may have taken over its own.
//!
//! Each increments a counter in its own row. One whose counter stands still for long enough, while this coordinator
//! observes it without interruption, is gone. So no clocks are compared, and neither an outage of the database nor a
//! pause of this process makes another coordinator appear dead.
//!
//! [`Peers::step`] takes an [`Input`] and returns the [`Effect`]s that it causes, which the driver performs one after
//! the other. Where one fails, the rest of the round is given up, and [`Input::Due`] begins the next. A takeover waits for
//! rows that others may have locked, so the driver performs it beside the rounds.

use std::{collections::HashMap, time::Duration};

use island_protocol::ids::InstanceId;
use tokio::time::Instant;

/// The heartbeat counter of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerHeartbeat {
    pub id: InstanceId,
    pub beats: i64,
}

/// The jobs without a coordinator that one coordinator takes over: those whose ids end with one of these hexadecimal
/// digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share(String);

const DIGITS: &str = "0123456789abcdef";

impl Share {
    /// All jobs.
    pub fn all() -> Self {
        Self(DIGITS.to_owned())
    }

    /// The jobs of `own` if all coordinators in `alive` take the same number over.
    fn of(own: InstanceId, alive: &[InstanceId]) -> Self {
        let index = alive.iter().filter(|id| **id < own).count();
        let digits = DIGITS.chars().enumerate().filter(|(i, _)| i % alive.len().max(1) == index);
        Self(digits.map(|(_, digit)| digit).collect())
    }

    /// The digits.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

/// What happens.
#[derive(Debug)]
pub enum Input {
    /// It is time for a round.
    Due,
    /// The result of [`Effect::Beat`]: `false` if others have removed this coordinator.
    Beaten { is_registered: bool },
    /// The result of [`Effect::List`].
    Listed { rows: Vec<PeerHeartbeat> },
    /// The result of [`Effect::TakeOver`]: whether jobs are left to others, or `None` if it failed.
    TakenOver { has_others: Option<bool> },
}

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Increments this coordinator's counter.
    Beat,
    /// Reads all counters.
    List,
    /// Removes these coordinators, unless their counters have changed, and takes over a share of the jobs without a
    /// coordinator. Performed beside the rounds; no other takeover follows before its result.
    TakeOver { silent: Vec<PeerHeartbeat>, share: Share },
    /// Stops this coordinator: its writes about jobs have no effect any longer.
    Stop,
}

/// The coordinators, as one of them sees them.
#[derive(Debug)]
pub struct Peers {
    own: InstanceId,
    takeover: Duration,
    monitor: PeerMonitor,
    fence: Fence,
    /// When the heartbeat of this round was sent.
    sent: Instant,
    /// Since when jobs are left to others.
    left_since: Option<Instant>,
    /// Whether the result of a takeover is awaited.
    is_taking_over: bool,
}

impl Peers {
    /// A coordinator whose jobs are taken over after `takeover` without a heartbeat. `has_peers` is whether there may be
    /// others that do so, now or later.
    pub fn new(own: InstanceId, takeover: Duration, has_peers: bool, now: Instant) -> Self {
        let monitor = PeerMonitor::new(own, takeover);
        Self {
            own,
            takeover,
            monitor,
            fence: Fence::new(takeover, has_peers, now),
            sent: now,
            left_since: None,
            is_taking_over: false,
        }
    }

    /// Time between two rounds.
    pub fn interval(&self) -> Duration {
        self.takeover / 8
    }

    /// Whether others may have taken this coordinator's jobs over.
    pub fn is_fenced(&self, now: Instant) -> bool {
        self.fence.is_closed(now)
    }

    /// Applies an input.
    pub fn step(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        match input {
            Input::Due => {
                self.sent = now;
                vec![Effect::Beat]
            }
            Input::Beaten { is_registered: false } => vec![Effect::Stop],
            Input::Beaten { is_registered: true } => {
                // It counts from when it was sent: it may be written at once and its reply arrive late.
                self.fence.renew(self.sent);
                vec![Effect::List]
            }
            Input::Listed { rows } => self.listed(&rows, now),
            Input::TakenOver { has_others } => {
                self.is_taking_over = false;
                if let Some(has_others) = has_others {
                    self.left_since = has_others.then(|| self.left_since.unwrap_or(now));
                }
                Vec::new()
            }
        }
    }

    fn listed(&mut self, rows: &[PeerHeartbeat], now: Instant) -> Vec<Effect> {
        let silent = self.monitor.observe(rows, now);
        let alive: Vec<_> = rows.iter().filter(|row| !silent.contains(row)).map(|row| row.id).collect();
        // What the others have not taken by then is anybody's.
        let is_left =
            self.left_since.is_some_and(|since| now.saturating_duration_since(since) >= self.takeover / 2);
        let share = if is_left { Share::all() } else { Share::of(self.own, &alive) };
        if std::mem::replace(&mut self.is_taking_over, true) {
            return Vec::new();
        }
        vec![Effect::TakeOver { silent, share }]
    }
}

/// Observes the counters of other coordinators.
#[derive(Debug)]
struct PeerMonitor {
    own: InstanceId,
    silent_after: Duration,
    observed: Option<Instant>,
    /// The last value of each counter, and since when it is unchanged.
    counters: HashMap<InstanceId, (i64, Instant)>,
}

impl PeerMonitor {
    /// A monitor for coordinator `own`.
    fn new(own: InstanceId, silent_after: Duration) -> Self {
        Self { own, silent_after, observed: None, counters: HashMap::new() }
    }

    /// Records the current counters and returns those that have not changed for too long.
    fn observe(&mut self, rows: &[PeerHeartbeat], now: Instant) -> Vec<PeerHeartbeat> {
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
struct Fence {
    limit: Duration,
    renewed: Instant,
    /// Whether other coordinators use the same database. They may start at any time.
    has_peers: bool,
}

impl Fence {
    /// An open fence of a coordinator whose jobs are taken over after `takeover`. `has_peers` is whether there may be
    /// others that do so, now or later.
    fn new(takeover: Duration, has_peers: bool, now: Instant) -> Self {
        Self { limit: takeover * 4 / 5, renewed: now, has_peers }
    }

    /// Records a heartbeat that was sent at `sent`.
    fn renew(&mut self, sent: Instant) {
        self.renewed = self.renewed.max(sent);
    }

    /// Whether jobs may have been taken over. With a database of its own a coordinator continues without it.
    fn is_closed(&self, now: Instant) -> bool {
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

    proptest! {
        #[test]
        fn every_job_is_in_the_share_of_one_coordinator(ids in prop::collection::btree_set(any::<u128>(), 1..20)) {
            let alive: Vec<_> = ids.into_iter().map(id).collect();
            let mut digits: Vec<char> =
                alive.iter().flat_map(|own| Share::of(*own, &alive).digits().chars().collect::<Vec<_>>()).collect();
            digits.sort_unstable();
            prop_assert_eq!(digits.into_iter().collect::<String>(), DIGITS);
        }
    }

    fn beat(peers: &mut Peers, rows: &[PeerHeartbeat], now: Instant) -> Vec<Effect> {
        assert_eq!(peers.step(Input::Due, now), [Effect::Beat]);
        assert_eq!(peers.step(Input::Beaten { is_registered: true }, now), [Effect::List]);
        peers.step(Input::Listed { rows: rows.to_vec() }, now)
    }

    #[test]
    fn jobs_that_their_new_coordinator_does_not_take_are_taken_by_others() {
        let start = Instant::now();
        let mut peers = Peers::new(id(1), SILENT_AFTER, true, start);
        let rows = |beats| [PeerHeartbeat { id: id(1), beats }, PeerHeartbeat { id: id(2), beats }];
        let half = Share::of(id(1), &[id(1), id(2)]);
        assert_eq!(half.digits().len(), 8);
        for beats in 0..4_u32 {
            let now = start + beats * Duration::from_secs(1);
            assert_eq!(beat(&mut peers, &rows(beats.into()), now), [take_over(half.clone())], "{beats}");
            peers.step(Input::TakenOver { has_others: Some(true) }, now);
        }
        let now = start + SILENT_AFTER / 2;
        assert_eq!(beat(&mut peers, &rows(5), now), [take_over(Share::all())]);
        peers.step(Input::TakenOver { has_others: Some(false) }, now);
        assert_eq!(beat(&mut peers, &rows(6), now), [take_over(half)]);
    }

    fn take_over(share: Share) -> Effect {
        Effect::TakeOver { silent: Vec::new(), share }
    }

    #[test]
    fn heartbeats_go_on_during_a_takeover_and_one_that_failed_is_repeated() {
        let start = Instant::now();
        let mut peers = Peers::new(id(1), SILENT_AFTER, true, start);
        let rows = |beats| [PeerHeartbeat { id: id(1), beats }];
        assert_eq!(beat(&mut peers, &rows(0), start), [take_over(Share::all())]);
        for beats in 1..20_u32 {
            let now = start + beats * Duration::from_secs(1);
            assert_eq!(beat(&mut peers, &rows(beats.into()), now), [], "one takeover at a time");
            assert!(!peers.is_fenced(now));
        }
        let now = start + Duration::from_secs(20);
        peers.step(Input::TakenOver { has_others: None }, now);
        assert_eq!(beat(&mut peers, &rows(20), now), [take_over(Share::all())]);
    }

    #[test]
    fn a_heartbeat_counts_from_when_it_was_sent_and_a_removed_coordinator_stops() {
        let start = Instant::now();
        let mut peers = Peers::new(id(1), SILENT_AFTER, true, start);
        let sent = start + Duration::from_secs(1);
        peers.step(Input::Due, sent);
        let late = sent + SILENT_AFTER * 4 / 5;
        peers.step(Input::Beaten { is_registered: true }, late);
        assert!(peers.is_fenced(late), "its reply came too late");
        assert_eq!(peers.step(Input::Beaten { is_registered: false }, late), [Effect::Stop]);
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
