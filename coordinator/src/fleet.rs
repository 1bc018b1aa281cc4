//! The Islands as this coordinator knows them: in memory, built from registrations and heartbeats.
//!
//! An Island's headroom is what its last heartbeat said, less the attempts given to it since, plus the ones that have
//! ended since.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use island_protocol::{
    api::HostView,
    cargo::CargoSpec,
    fabric::{Heartbeat, Register},
    host::Capabilities,
    ids::{AccountId, AttemptKey, HostId, InstanceId},
    time::Timestamp,
};
use tokio::{sync::Notify, time::Instant};

use crate::placement::{self, Candidate, Ranking};

/// An Island that belongs to an account, as SQL keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Enrolled {
    pub id: HostId,
    pub account: AccountId,
    pub public_key: String,
    pub name: String,
    pub region: Option<String>,
    pub capabilities: Option<Capabilities>,
    pub karma_ms: i64,
    /// Tokens a second of its last check's reply.
    pub tokens_per_second: Option<f64>,
    pub last_seen: Option<Timestamp>,
    /// Its owner took it out of the network.
    pub has_left: bool,
}

impl Enrolled {
    /// One that has just come to an account.
    pub(crate) fn newcomer(id: HostId, account: AccountId, public_key: String, name: String) -> Self {
        Self {
            id,
            account,
            public_key,
            name,
            region: None,
            capabilities: None,
            karma_ms: 0,
            tokens_per_second: None,
            last_seen: None,
            has_left: false,
        }
    }
}

/// What a registration tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Heard of for the first time.
    New,
    /// The run of the agent that was known.
    Again,
    /// Another run of the agent.
    Restarted,
}

/// What one attempt takes from an Island.
#[derive(Debug, Clone, Copy)]
struct Claim {
    ram_mb: u64,
    vram_mb: u64,
}

#[derive(Debug)]
struct Island {
    enrolled: Enrolled,
    instance: Option<InstanceId>,
    heard: Option<Instant>,
    beat: Option<Heartbeat>,
    claims: BTreeMap<AttemptKey, Claim>,
    /// Attempts that the last heartbeat lists and that have ended since.
    gone: BTreeMap<AttemptKey, Claim>,
}

/// Which Islands a job may go to, after what it met with so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Past {
    /// The one that it is for, if it is for one.
    pub only: Option<HostId>,
    /// Failures per Island.
    pub strikes: HashMap<HostId, u32>,
    /// Islands that refused, and until when they are not asked again.
    pub refused: BTreeMap<HostId, Instant>,
}

impl Past {
    /// A job for this Island alone, or for any.
    pub(crate) fn none(only: Option<HostId>) -> Self {
        Self { only, ..Self::default() }
    }

    fn allows(&self, host: HostId) -> bool {
        self.only.is_none_or(|only| only == host) && !self.refused.contains_key(&host)
    }
}

/// The Islands. A clone of the handle is the same fleet.
#[derive(Debug)]
pub(crate) struct Fleet {
    islands: Mutex<HashMap<HostId, Island>>,
    offline_after: Duration,
    changed: Notify,
}

impl Fleet {
    /// A fleet in which an Island is offline once it was silent for `offline_after`.
    pub(crate) fn new(offline_after: Duration) -> Self {
        Self { islands: Mutex::default(), offline_after, changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, Island>> {
        self.islands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be room where there was none.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds an Island, or renames one that is there already.
    pub(crate) fn enrol(&self, enrolled: Enrolled) {
        let mut islands = self.lock();
        if let Some(island) = islands.get_mut(&enrolled.id) {
            island.enrolled.name = enrolled.name;
            island.enrolled.account = enrolled.account;
        } else {
            islands.insert(enrolled.id, Island::new(enrolled));
        }
    }

    /// An Island left. Its attempts are lost with their leases.
    pub(crate) fn forget(&self, host: HostId) {
        self.lock().remove(&host);
    }

    /// Takes what SQL says by now.
    pub(crate) fn refresh(&self, enrolled: Enrolled) {
        if enrolled.has_left {
            return self.forget(enrolled.id);
        }
        let mut islands = self.lock();
        if let Some(island) = islands.get_mut(&enrolled.id) {
            island.enrolled.name = enrolled.name;
            island.enrolled.karma_ms = enrolled.karma_ms;
            island.enrolled.tokens_per_second = enrolled.tokens_per_second;
        } else {
            islands.insert(enrolled.id, Island::new(enrolled));
        }
    }

    /// Account and public key of an Island.
    pub(crate) fn owner_and_key(&self, host: HostId) -> Option<(AccountId, String)> {
        let islands = self.lock();
        let enrolled = &islands.get(&host)?.enrolled;
        Some((enrolled.account, enrolled.public_key.clone()))
    }

    /// An Island said who it is.
    pub(crate) fn register(&self, message: &Register, now: Instant, at: Timestamp) -> Arrival {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&message.host_id) else { return Arrival::Again };
        let arrival = match island.instance {
            None => Arrival::New,
            Some(known) if known == message.instance => Arrival::Again,
            Some(_) => Arrival::Restarted,
        };
        island.instance = Some(message.instance);
        island.heard = Some(now);
        island.enrolled.name.clone_from(&message.name);
        island.enrolled.region.clone_from(&message.region);
        island.enrolled.capabilities = Some(message.capabilities.clone());
        island.enrolled.last_seen = Some(at);
        if arrival == Arrival::Restarted {
            island.beat = None;
        }
        drop(islands);
        self.changed.notify_one();
        arrival
    }

    /// An Island reported its load. Unknown Islands are ignored.
    pub(crate) fn beat(&self, beat: Heartbeat, now: Instant, at: Timestamp) {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&beat.host_id) else { return };
        island.instance = Some(beat.instance);
        island.heard = Some(now);
        island.enrolled.last_seen = Some(at);
        island.gone.clear();
        island.beat = Some(beat);
        drop(islands);
        self.changed.notify_one();
    }

    /// Best Island for a job, claimed for `key` at once, or why there is none.
    pub(crate) fn place(
        &self,
        cargo: &CargoSpec,
        key: AttemptKey,
        past: &Past,
        now: Instant,
    ) -> Result<HostId, Ranking> {
        let mut islands = self.lock();
        let candidates = islands.iter().filter(|(id, _)| past.allows(**id)).filter_map(|(id, island)| {
            island.candidate(*id, self.offline_after, past.strikes.get(id).copied().unwrap_or(0), now)
        });
        let ranking = placement::rank(cargo, candidates);
        let Some(&best) = ranking.hosts.first() else { return Err(ranking) };
        if let Some(island) = islands.get_mut(&best) {
            island
                .claims
                .insert(key, Claim { ram_mb: cargo.required_ram_mb, vram_mb: cargo.required_vram_mb });
        }
        Ok(best)
    }

    /// Counts an attempt that runs there already, found after a restart of this coordinator.
    pub(crate) fn claim(&self, host: HostId, key: AttemptKey, cargo: &CargoSpec) {
        if let Some(island) = self.lock().get_mut(&host) {
            island
                .claims
                .insert(key, Claim { ram_mb: cargo.required_ram_mb, vram_mb: cargo.required_vram_mb });
        }
    }

    /// An attempt is over there.
    pub(crate) fn release(&self, host: HostId, key: AttemptKey) {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&host) else { return };
        let Some(claim) = island.claims.remove(&key) else { return };
        if island.lists(&key) {
            island.gone.insert(key, claim);
        }
        drop(islands);
        self.changed.notify_one();
    }

    /// Calls `visit` with every Island that has a picture of itself, as a candidate without claims of the caller.
    pub(crate) fn survey<T>(
        &self,
        now: Instant,
        mut visit: impl FnMut(&Candidate<'_>) -> Option<T>,
    ) -> Vec<T> {
        let islands = self.lock();
        let candidates =
            islands.iter().filter_map(|(id, island)| island.candidate(*id, self.offline_after, 0, now));
        candidates.filter_map(|candidate| visit(&candidate)).collect()
    }

    /// Calls `look` with one Island as placement sees it now. None: it is unknown, or never said what it has.
    pub(crate) fn consider<T>(
        &self,
        host: HostId,
        now: Instant,
        look: impl FnOnce(&Candidate<'_>) -> T,
    ) -> Option<T> {
        let islands = self.lock();
        Some(look(&islands.get(&host)?.candidate(host, self.offline_after, 0, now)?))
    }

    /// Calls `look` with what one Island has, load left out, or with none if it never said. None: it is unknown.
    pub(crate) fn inspect<T>(
        &self,
        host: HostId,
        look: impl FnOnce(Option<&Candidate<'_>>) -> T,
    ) -> Option<T> {
        let islands = self.lock();
        Some(look(islands.get(&host)?.profile(host).as_ref()))
    }

    /// All Islands, as consumers see them.
    pub(crate) fn views(&self, now: Instant) -> Vec<HostView> {
        let islands = self.lock();
        let mut views: Vec<_> = islands.values().map(|island| island.view(self.offline_after, now)).collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// One Island, as consumers see it.
    pub(crate) fn view(&self, host: HostId, now: Instant) -> Option<HostView> {
        self.lock().get(&host).map(|island| island.view(self.offline_after, now))
    }

    /// Notes how fast an Island was in a check.
    pub(crate) fn measured(&self, host: HostId, tokens_per_second: f64) {
        if let Some(island) = self.lock().get_mut(&host) {
            island.enrolled.tokens_per_second = Some(tokens_per_second);
        }
    }

    /// Adds to an Island's karma.
    pub(crate) fn credit_karma(&self, host: HostId, ms: i64) {
        if let Some(island) = self.lock().get_mut(&host) {
            island.enrolled.karma_ms = island.enrolled.karma_ms.saturating_add(ms);
        }
    }
}

impl Island {
    fn new(enrolled: Enrolled) -> Self {
        Self {
            enrolled,
            instance: None,
            heard: None,
            beat: None,
            claims: BTreeMap::new(),
            gone: BTreeMap::new(),
        }
    }

    fn online(&self, offline_after: Duration, now: Instant) -> bool {
        self.heard.is_some_and(|heard| now.saturating_duration_since(heard) < offline_after)
    }

    fn lists(&self, key: &AttemptKey) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.jobs.iter().any(|job| job.key == *key))
    }

    fn candidate(
        &self,
        id: HostId,
        offline_after: Duration,
        strikes: u32,
        now: Instant,
    ) -> Option<Candidate<'_>> {
        let capabilities = self.enrolled.capabilities.as_ref()?;
        let beat = self.beat.as_ref()?;
        let new: Vec<_> =
            self.claims.iter().filter(|(key, _)| !self.lists(key)).map(|(_, claim)| claim).collect();
        let free = |headroom: u64, of: fn(&Claim) -> u64| {
            let taken: u64 = new.iter().map(|claim| of(claim)).sum();
            let back: u64 = self.gone.values().map(of).sum();
            headroom as i64 - taken as i64 + back as i64
        };
        Some(Candidate {
            id,
            capabilities,
            models: &beat.models,
            online: self.online(offline_after, now),
            draining: matches!(beat.status.as_str(), "draining" | "paused"),
            free_slots: i64::from(beat.headroom.job_slots) - new.len() as i64 + self.gone.len() as i64,
            free_ram_mb: free(beat.headroom.ram_mb, |claim| claim.ram_mb),
            free_vram_mb: free(beat.headroom.vram_mb, |claim| claim.vram_mb),
            karma_ms: self.enrolled.karma_ms,
            tokens_per_second: self.enrolled.tokens_per_second,
            running: (beat.jobs.len() + new.len()).saturating_sub(self.gone.len()) as u32,
            strikes,
        })
    }

    /// What it has, as if it were off: for questions that are not about load.
    fn profile(&self, id: HostId) -> Option<Candidate<'_>> {
        Some(Candidate {
            id,
            capabilities: self.enrolled.capabilities.as_ref()?,
            models: self.beat.as_ref().map_or(&[], |beat| &beat.models),
            online: false,
            draining: false,
            free_slots: 0,
            free_ram_mb: 0,
            free_vram_mb: 0,
            karma_ms: self.enrolled.karma_ms,
            tokens_per_second: self.enrolled.tokens_per_second,
            running: 0,
            strikes: 0,
        })
    }

    fn view(&self, offline_after: Duration, now: Instant) -> HostView {
        let status = match &self.beat {
            _ if !self.online(offline_after, now) => "offline",
            Some(beat) if beat.status == "draining" => "draining",
            Some(beat) if beat.status == "paused" => "paused",
            _ => "online",
        };
        let karma = self.enrolled.karma_ms as f64 / 3_600_000.0;
        HostView {
            id: self.enrolled.id,
            name: self.enrolled.name.clone(),
            status: status.to_owned(),
            region: self.enrolled.region.clone(),
            karma,
            karma_score: karma,
            tokens_per_second: self.enrolled.tokens_per_second,
            capabilities: self.enrolled.capabilities.clone(),
            last_heartbeat_at: self.enrolled.last_seen,
        }
    }
}

#[cfg(test)]
mod tests;
