//! All Islands at one moment, for lists and counts, so that requests for them do not delay placement.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use island_protocol::{
    cargo::CargoSpec,
    demand::Vram,
    fabric::Heartbeat,
    host::Capabilities,
    ids::{AccountId, HostId, Slug},
    time::Timestamp,
};
use island_protocol_api::{HostView, admin::Trust};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Island;
use crate::placement::{self, Candidate, Nearness, Reasons, Selection, pace::Paces};

/// A snapshot is reused for this many times what it cost to take, so that snapshots take 2 % of the time at most.
const REUSE: u32 = 50;
/// Maximum age of a snapshot.
const MAX_AGE: Duration = Duration::from_secs(5);

/// One Island.
#[derive(Debug)]
pub struct IslandSummary {
    id: HostId,
    account: AccountId,
    trust: Trust,
    name: String,
    pub status: &'static str,
    pub region: Option<String>,
    capabilities: Option<Arc<Capabilities>>,
    heartbeat: Option<Arc<Heartbeat>>,
    karma_ms: i64,
    tokens_per_second: Option<f64>,
    paces: Paces,
    last_heartbeat_at: Option<Timestamp>,
    load: Option<Load>,
}

/// The states of Islands.
pub const STATES: [&str; 5] = ["online", "draining", "paused", "suspended", "offline"];

/// Whose Islands a list has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Owner {
    #[default]
    Anybody,
    Only(AccountId),
    Except(AccountId),
}

/// Restricts the Islands of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IslandFilter {
    /// Part of the id, the name or the region, in lower case.
    pub text: String,
    /// One of [`STATES`].
    pub status: Option<&'static str>,
    pub owner: Owner,
}

impl IslandFilter {
    fn accepts(&self, island: &IslandSummary) -> bool {
        let is_owned = match self.owner {
            Owner::Anybody => true,
            Owner::Only(account) => island.account == account,
            Owner::Except(account) => island.account != account,
        };
        let has_text = || {
            let region = island.region.as_deref().unwrap_or_default();
            island.id.to_string().contains(&self.text)
                || [island.name.as_str(), region].iter().any(|text| text.to_lowercase().contains(&self.text))
        };
        is_owned
            && self.status.is_none_or(|status| status == island.status)
            && (self.text.is_empty() || has_text())
    }
}

/// What an Island had free.
#[derive(Debug)]
struct Load {
    free_slots: i64,
    free_ram_mb: i64,
    free_vram: Vram,
    running: u32,
    last_resort: bool,
    unreliability: u8,
}

impl IslandSummary {
    pub(super) fn new(island: &Island, offline_after: Duration, now: Instant) -> Self {
        let enrolled = &island.enrolled;
        let load = island.candidate(enrolled.id, offline_after, 0, now).map(|candidate| Load {
            free_slots: candidate.free_slots,
            free_ram_mb: candidate.free_ram_mb,
            free_vram: candidate.free_vram.into_owned(),
            running: candidate.running,
            last_resort: candidate.last_resort,
            unreliability: candidate.unreliability,
        });
        Self {
            id: enrolled.id,
            account: enrolled.account,
            trust: enrolled.trust,
            name: enrolled.name.clone(),
            status: island.status(offline_after, now),
            region: enrolled.region.clone(),
            capabilities: enrolled.capabilities.clone(),
            heartbeat: island.heartbeat.clone(),
            karma_ms: enrolled.karma_ms,
            tokens_per_second: enrolled.tokens_per_second,
            paces: island.paces.clone(),
            last_heartbeat_at: enrolled.last_seen,
            load,
        }
    }

    pub fn id(&self) -> HostId {
        self.id
    }

    /// The Island as placement saw it, if it has registered and sent a heartbeat.
    pub fn candidate(&self) -> Option<Candidate<'_>> {
        let load = self.load.as_ref()?;
        Some(Candidate {
            id: self.id,
            account: self.account,
            region: self.region.as_deref(),
            trust: self.trust,
            capabilities: self.capabilities.as_deref()?,
            models: &self.heartbeat.as_ref()?.models,
            online: self.status != "offline",
            draining: matches!(self.status, "draining" | "paused" | "suspended"),
            free_slots: load.free_slots,
            free_ram_mb: load.free_ram_mb,
            free_vram: Cow::Borrowed(&load.free_vram),
            karma_ms: self.karma_ms,
            tokens_per_second: self.tokens_per_second,
            paces: Cow::Borrowed(&self.paces),
            running: load.running,
            failures: 0,
            last_resort: load.last_resort,
            unreliability: load.unreliability,
        })
    }

    /// As consumers see it.
    pub fn view(&self) -> HostView {
        let karma = self.karma_ms as f64 / 3_600_000.0;
        HostView {
            id: self.id,
            name: self.name.clone(),
            status: self.status.to_owned(),
            region: self.region.clone(),
            karma,
            karma_score: karma,
            tokens_per_second: self.tokens_per_second,
            capabilities: self.capabilities.as_deref().cloned(),
            last_heartbeat_at: self.last_heartbeat_at,
        }
    }

    /// The Island as a candidate regardless of its load, if it is online and accepts jobs.
    pub fn idle(&self) -> Option<Candidate<'_>> {
        if self.status != "online" || self.heartbeat.is_none() {
            return None;
        }
        self.profile()
    }

    /// The Island as a candidate regardless of its load and its state, if it has registered.
    pub fn profile(&self) -> Option<Candidate<'_>> {
        Some(Candidate {
            id: self.id,
            account: self.account,
            region: self.region.as_deref(),
            trust: self.trust,
            capabilities: self.capabilities.as_deref()?,
            models: self.heartbeat.as_ref().map_or(&[], |heartbeat| &heartbeat.models),
            online: true,
            draining: false,
            free_slots: 0,
            free_ram_mb: 0,
            free_vram: Cow::default(),
            karma_ms: self.karma_ms,
            tokens_per_second: self.tokens_per_second,
            paces: Cow::Borrowed(&self.paces),
            running: 0,
            failures: 0,
            last_resort: false,
            unreliability: 0,
        })
    }
}

/// All Islands at one moment, in the order of their ids.
#[derive(Debug)]
pub struct Snapshot {
    pub islands: Vec<IslandSummary>,
    taken: Instant,
    /// What this snapshot and its counts cost, microseconds.
    cost: AtomicU64,
    able: Mutex<HashMap<Slug, u64>>,
    outlooks: Mutex<HashMap<Slug, Arc<Outlook>>>,
    /// How often all Islands were compared with something.
    #[cfg(test)]
    pub walks: AtomicU64,
}

/// Suitability of a snapshot's Islands for one Cargo.
#[derive(Debug, Default)]
pub struct Outlook {
    /// How near the files are on the Island that has them nearest, of those that could run the Cargo apart from free slots.
    pub nearest: Option<Nearness>,
    /// Places of the Islands that can run it, now or when jobs end.
    able: Vec<u32>,
    /// Why the others cannot.
    pub reasons: Reasons,
}

impl Outlook {
    /// Whether an Island can run the Cargo, now or when jobs end.
    pub fn is_hopeful(&self) -> bool {
        !self.able.is_empty()
    }
}

/// The Islands on which a job may be placed at once.
#[derive(Debug, Clone)]
pub struct Candidates {
    islands: Arc<Snapshot>,
    outlook: Arc<Outlook>,
}

impl Candidates {
    /// Candidates that an outlook on these Islands leaves.
    pub fn new(islands: Arc<Snapshot>, outlook: Arc<Outlook>) -> Self {
        Self { islands, outlook }
    }

    /// Their ids.
    pub fn hosts(&self) -> impl Iterator<Item = &HostId> {
        let places = self.outlook.able.iter().map(|place| *place as usize);
        places.filter_map(|place| self.islands.islands.get(place)).map(|island| &island.id)
    }
}

impl Snapshot {
    pub(super) fn new(mut islands: Vec<IslandSummary>, taken: Instant, cost: Duration) -> Self {
        islands.sort_by_key(|island| island.id);
        let snapshot = Self {
            islands,
            taken,
            cost: AtomicU64::new(0),
            able: Mutex::default(),
            outlooks: Mutex::default(),
            #[cfg(test)]
            walks: AtomicU64::default(),
        };
        snapshot.spent(cost);
        snapshot
    }

    fn spent(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.cost.fetch_add(micros, Ordering::Relaxed);
    }

    /// Whether this snapshot may still be used.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        let life = (Duration::from_micros(self.cost.load(Ordering::Relaxed)) * REUSE).min(MAX_AGE);
        now >= self.taken && now - self.taken < life
    }

    /// The number of Islands for which `is_able`, which depends on the Cargo only, holds; computed once for each Cargo.
    pub fn count(&self, cargo: &Slug, is_able: impl Fn(&Candidate<'_>) -> bool) -> u64 {
        let known = self.able.lock().get(cargo).copied();
        known.unwrap_or_else(|| {
            let begun = Instant::now();
            let able =
                self.islands.iter().filter_map(IslandSummary::idle).filter(|island| is_able(island)).count();
            let able = able as u64;
            self.able.lock().insert(cargo.clone(), able);
            self.spent(begun.elapsed());
            able
        })
    }
}

impl Snapshot {
    /// The Islands that a filter accepts, without the first `offset`, and the number of all that it accepts.
    pub fn page(&self, filter: &IslandFilter, offset: u64, limit: u64) -> (Vec<&IslandSummary>, u64) {
        let [offset, limit] = [offset, limit].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let mut total = 0;
        let mut page = Vec::new();
        for island in self.islands.iter().filter(|island| filter.accepts(island)) {
            if total >= offset && page.len() < limit {
                page.push(island);
            }
            total += 1;
        }
        (page, total as u64)
    }

    /// Suitability of the Islands for a Cargo, for a job of any request; computed once for each Cargo.
    pub fn outlook(&self, cargo: &CargoSpec) -> Arc<Outlook> {
        let known = self.outlooks.lock().get(&cargo.slug).cloned();
        known.unwrap_or_else(|| {
            let begun = Instant::now();
            let outlook = Arc::new(self.outlook_for(cargo, &Selection::default()));
            self.outlooks.lock().insert(cargo.slug.clone(), outlook.clone());
            self.spent(begun.elapsed());
            outlook
        })
    }

    /// Suitability of the Islands for a Cargo, for a job with this selection.
    pub fn outlook_for(&self, cargo: &CargoSpec, selection: &Selection) -> Outlook {
        #[cfg(test)]
        self.walks.fetch_add(1, Ordering::Relaxed);
        let mut outlook = Outlook::default();
        for (place, island) in (0..).zip(&self.islands) {
            let Some(island) = island.candidate() else { continue };
            match placement::usable_by(cargo, selection, &island) {
                Ok(nearness) => {
                    outlook.nearest = Some(outlook.nearest.map_or(nearness, |nearest| nearest.min(nearness)));
                    outlook.able.push(place);
                }
                Err(reason) if reason.is_temporary() => outlook.able.push(place),
                Err(reason) => *outlook.reasons.entry(reason).or_default() += 1,
            }
        }
        outlook
    }
}

/// The latest snapshot.
#[derive(Debug, Default)]
pub(super) struct Latest(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    snapshot: Option<Arc<Snapshot>>,
    changes: u64,
}

impl Latest {
    pub(super) fn get(&self, now: Instant) -> Option<Arc<Snapshot>> {
        self.0.lock().snapshot.clone().filter(|snapshot| snapshot.is_fresh(now))
    }

    /// The number of changes so far, to be read before a snapshot is taken.
    pub(super) fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// Keeps a snapshot, unless something has changed since `changes` was read: the snapshot may lack it.
    pub(super) fn set(&self, snapshot: Arc<Snapshot>, changes: u64) {
        let mut kept = self.0.lock();
        if kept.changes == changes {
            kept.snapshot = Some(snapshot);
        }
    }

    /// Forgets the snapshot: an Island was added, removed, or changed its name or status.
    pub(super) fn clear(&self) {
        let mut kept = self.0.lock();
        kept.changes += 1;
        kept.snapshot = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_that_was_taken_before_a_change_is_not_kept() {
        let (latest, now) = (Latest::default(), Instant::now());
        let taken = || Arc::new(Snapshot::new(Vec::new(), now, Duration::from_secs(1)));
        let changes = latest.changes();
        let old = taken();
        latest.clear();
        latest.set(old, changes);
        assert!(latest.get(now).is_none());
        latest.set(taken(), latest.changes());
        assert!(latest.get(now).is_some());
    }

    #[test]
    fn a_snapshot_is_reused_for_fifty_times_its_cost_and_never_for_long() {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let cheap = Snapshot::new(Vec::new(), now, Duration::from_millis(1));
        assert!(cheap.is_fresh(now) && cheap.is_fresh(after(49)) && !cheap.is_fresh(after(50)));
        let dear = Snapshot::new(Vec::new(), now, Duration::from_mins(1));
        assert!(dear.is_fresh(after(4_999)) && !dear.is_fresh(after(5_000)));
        cheap.spent(Duration::from_millis(1));
        assert!(cheap.is_fresh(after(99)));
    }
}
