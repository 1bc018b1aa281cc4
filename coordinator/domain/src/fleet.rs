//! The Islands as this coordinator knows them, in memory, from registrations and heartbeats.
//!
//! An Island's headroom is the value of its last heartbeat, minus the attempts assigned to it since and plus those that
//! have ended since.

mod file_reports;
mod health;
mod instances;
mod snapshot;

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use island_protocol::{
    cargo::CargoSpec,
    demand::{Need, Vram},
    fabric::{Heartbeat, Register},
    host::Capabilities,
    ids::{AccountId, AttemptKey, HostId, InstanceId, Slug},
    time::Timestamp,
    version::Mismatch,
};
use island_protocol_api::{HostView, admin::Trust};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};

use crate::placement::{
    self, Candidate, Reasons, Selection,
    pace::{Paces, Run, UsualTimes},
};
use file_reports::FileReports;
pub use health::Conduct;
use health::Health;
use instances::Instances;
use snapshot::Latest;
pub use snapshot::{Candidates, IslandFilter, IslandSummary, Outlook, Owner, STATES, Snapshot};

/// An Island and its account, as stored in SQL.
#[derive(Debug, Clone)]
pub struct Enrolled {
    pub id: HostId,
    pub account: AccountId,
    pub public_key: String,
    pub name: String,
    pub region: Option<String>,
    pub capabilities: Option<Arc<Capabilities>>,
    pub karma_ms: i64,
    /// Tokens per second in the reply of its last check.
    pub tokens_per_second: Option<f64>,
    pub last_seen: Option<Timestamp>,
    /// Whether its owner took it out of the network.
    pub has_left: bool,
    /// Whether an operator gives it no new jobs.
    pub suspended: bool,
    /// How far operators trust it.
    pub trust: Trust,
}

impl Enrolled {
    /// A newly enrolled Island.
    pub fn new(id: HostId, account: AccountId, public_key: String, name: String) -> Self {
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
            suspended: false,
            trust: Trust::Normal,
        }
    }
}

/// An Island as its owner sees it.
#[derive(Debug, Clone)]
pub struct OwnedIsland {
    pub id: HostId,
    pub name: String,
    pub status: &'static str,
    /// What it sent last, while it is online.
    pub heartbeat: Option<Arc<Heartbeat>>,
}

/// What an Island is to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Class {
    /// It belongs to the same account.
    Own,
    /// Operators trust it highly.
    Trusted,
    /// Any other.
    Open,
}

/// What a registration shows about the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationKind {
    /// The first registration of this Island.
    New,
    /// Another registration by the same run of the agent.
    Repeated,
    /// A registration by a new run of the agent.
    Restarted,
    /// A second agent has the same identity. Nothing was changed.
    Duplicate,
}

/// After this time the row of an Island is written again by its next registration, though nothing in it has changed but when it was seen.
const STORE_INTERVAL: Duration = Duration::from_mins(10);

#[derive(Debug)]
struct Island {
    enrolled: Enrolled,
    /// When this coordinator stored a registration, and the version of the agent in it.
    stored: Option<(Instant, String)>,
    instances: Instances,
    /// Whether this coordinator received a registration.
    has_registered: bool,
    last_message: Option<Instant>,
    heartbeat: Option<Arc<Heartbeat>>,
    /// The time of its last heartbeat by its own clock, and when it arrived.
    clock: Option<(Timestamp, Instant)>,
    /// Memory of the attempts that were assigned to it.
    claims: BTreeMap<AttemptKey, Need>,
    /// Attempts that have ended but are in the last heartbeat.
    ended: BTreeMap<AttemptKey, Need>,
    health: Health,
    paces: Paces,
    /// Whether its last heartbeat reports a free slot, once it refused a job for lack of capacity.
    refused_full: Option<bool>,
    /// Its versions and those of this coordinator, while they have none in common.
    mismatch: Option<Mismatch>,
}

/// Free capacity of an Island.
#[derive(Debug, Default)]
struct Capacity {
    is_open: bool,
    slots: i64,
    ram_mb: i64,
    vram: Vram,
}

impl Capacity {
    /// Whether a job may fit that did not fit into `former`.
    fn exceeds(&self, former: &Self) -> bool {
        let of = |capacity: &Self, gpu| capacity.vram.get(gpu).copied().unwrap_or(0);
        self.is_open
            && (!former.is_open
                || self.slots > former.slots.max(0)
                || self.ram_mb > former.ram_mb
                || self.vram.keys().any(|gpu| of(self, gpu) > of(former, gpu)))
    }
}

/// Restricts the Islands that a job may be placed on, by its earlier attempts.
#[derive(Debug, Clone, Default)]
pub struct PlacementHistory {
    /// The only allowed Island, for an Island's check of itself.
    pub only: Option<HostId>,
    /// Failed attempts on each Island.
    pub failures: HashMap<HostId, u32>,
    /// Islands that refused the job, and until when they are not offered it again.
    pub refused: BTreeMap<HostId, Instant>,
    /// How its request restricts and orders Islands.
    pub selection: Arc<Selection>,
}

impl PlacementHistory {
    /// No earlier attempts. `only` restricts the job to one Island.
    pub fn new(only: Option<HostId>, selection: Selection) -> Self {
        Self { only, selection: Arc::new(selection), ..Self::default() }
    }

    fn allows(&self, host: HostId) -> bool {
        self.only.is_none_or(|only| only == host) && !self.refused.contains_key(&host)
    }
}

/// The Islands.
#[derive(Debug)]
pub struct Fleet {
    islands: Mutex<HashMap<HostId, Island>>,
    /// Locked after `islands`.
    usual_times: Mutex<UsualTimes>,
    file_reports: Mutex<FileReports>,
    latest: Latest,
    offline_after: Duration,
    started: Instant,
    /// Islands that may have capacity that they had not before. Locked after `islands`.
    gained: Mutex<HashSet<HostId>>,
    changed: Notify,
    /// Islands that placement has looked at, with repetitions.
    considered: AtomicU64,
}

impl Fleet {
    /// An empty fleet. An Island is offline when no message has arrived from it for `offline_after`.
    pub fn new(offline_after: Duration) -> Self {
        Self {
            islands: Mutex::default(),
            usual_times: Mutex::default(),
            file_reports: Mutex::default(),
            latest: Latest::default(),
            offline_after,
            started: Instant::now(),
            gained: Mutex::default(),
            changed: Notify::new(),
            considered: AtomicU64::default(),
        }
    }

    /// Number of Islands that placement has looked at, with repetitions.
    pub fn considered(&self) -> u64 {
        self.considered.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, Island>> {
        self.islands.lock()
    }

    /// Whether the first heartbeat of an enrolled Island may arrive soon: it registered moments ago, or this coordinator started
    /// moments ago and has received nothing from it yet.
    pub fn is_settling(&self, now: Instant) -> bool {
        let since =
            |island: &Island| now.saturating_duration_since(island.last_message.unwrap_or(self.started));
        let islands = self.lock();
        islands.values().any(|island| island.heartbeat.is_none() && since(island) < self.offline_after)
    }

    /// Waits until an Island may have capacity that it had not before.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the Islands that may have capacity that they had not before: no other can take a job that no Island could take.
    pub fn take_gained(&self) -> HashSet<HostId> {
        std::mem::take(&mut *self.gained.lock())
    }

    fn announce(&self, host: HostId) {
        self.gained.lock().insert(host);
        self.changed.notify_one();
    }

    /// Adds an Island, or updates its name and account.
    pub fn enroll(&self, enrolled: Enrolled) {
        self.latest.clear();
        let mut islands = self.lock();
        if let Some(island) = islands.get_mut(&enrolled.id) {
            island.enrolled.name = enrolled.name;
            island.enrolled.account = enrolled.account;
        } else {
            islands.insert(enrolled.id, Island::new(enrolled));
        }
    }

    /// Removes an Island that left. Its attempts are lost when their leases expire.
    pub fn remove(&self, host: HostId) {
        self.lock().remove(&host);
        self.latest.clear();
    }

    /// Applies an Island's row of SQL.
    pub fn refresh(&self, enrolled: Enrolled) {
        if enrolled.has_left {
            return self.remove(enrolled.id);
        }
        let mut islands = self.lock();
        if let Some(island) = islands.get_mut(&enrolled.id) {
            // The row may have been read before the last registration was stored, which every coordinator receives.
            if !island.has_registered {
                island.enrolled.name = enrolled.name;
            }
            island.enrolled.account = enrolled.account;
            island.enrolled.karma_ms = island.enrolled.karma_ms.max(enrolled.karma_ms);
            island.enrolled.tokens_per_second = enrolled.tokens_per_second;
            if island.enrolled.suspended != enrolled.suspended || island.enrolled.trust != enrolled.trust {
                island.enrolled.suspended = enrolled.suspended;
                island.enrolled.trust = enrolled.trust;
                drop(islands);
                self.latest.clear();
                self.announce(enrolled.id);
            }
        } else {
            islands.insert(enrolled.id, Island::new(enrolled));
            drop(islands);
            self.latest.clear();
        }
    }

    /// Account and public key of an Island.
    pub fn account_and_key(&self, host: HostId) -> Option<(AccountId, String)> {
        let islands = self.lock();
        let enrolled = &islands.get(&host)?.enrolled;
        Some((enrolled.account, enrolled.public_key.clone()))
    }

    /// The class of an Island for an account, and its region; `None` if it is unknown.
    pub fn class(&self, host: HostId, account: AccountId) -> Option<(Class, Option<String>)> {
        let islands = self.lock();
        let Enrolled { account: owner, trust, region, .. } = &islands.get(&host)?.enrolled;
        let class = match trust {
            _ if *owner == account => Class::Own,
            Trust::High => Class::Trusted,
            Trust::Normal | Trust::Low => Class::Open,
        };
        Some((class, region.clone()))
    }

    /// The Islands of an account, in the order of their ids.
    pub fn of_account(&self, account: AccountId, now: Instant) -> Vec<OwnedIsland> {
        let islands = self.lock();
        let own = islands.iter().filter(|(_, island)| island.enrolled.account == account);
        let owned = |(id, island): (&HostId, &Island)| OwnedIsland {
            id: *id,
            name: island.enrolled.name.clone(),
            status: island.status(self.offline_after, now),
            heartbeat: island.heartbeat.clone().filter(|_| island.online(self.offline_after, now)),
        };
        let mut owned: Vec<OwnedIsland> = own.map(owned).collect();
        owned.sort_unstable_by_key(|island| island.id);
        owned
    }

    /// Applies a registration. Unknown Islands are ignored.
    pub fn register(&self, message: &Register, now: Instant, at: Timestamp) -> RegistrationKind {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&message.host_id) else { return RegistrationKind::Repeated };
        let kind = island.instances.register(message.instance, island.online(self.offline_after, now));
        if kind == RegistrationKind::Duplicate {
            return kind;
        }
        let before = island.status(self.offline_after, now);
        let enrolled = &mut island.enrolled;
        let is_same = enrolled.name == message.name
            && enrolled.region == message.region
            && enrolled.capabilities.as_deref() == Some(&message.capabilities);
        if !is_same {
            enrolled.name.clone_from(&message.name);
            enrolled.region.clone_from(&message.region);
            enrolled.capabilities = Some(Arc::new(message.capabilities.clone()));
            island.stored = None;
        }
        enrolled.last_seen = Some(at);
        let is_repeated =
            island.mismatch.take().is_none() && std::mem::replace(&mut island.has_registered, true);
        island.last_message = Some(now);
        if kind == RegistrationKind::Restarted {
            island.heartbeat = None;
        }
        let is_news = !is_same
            || !is_repeated
            || kind != RegistrationKind::Repeated
            || island.status(self.offline_after, now) != before;
        drop(islands);
        if is_news {
            self.latest.clear();
            self.announce(message.host_id);
        }
        kind
    }

    /// Whether the row of an Island lacks what its registration has, or was last seen too long ago.
    pub fn is_to_be_stored(&self, message: &Register, now: Instant) -> bool {
        let islands = self.lock();
        let Some(island) = islands.get(&message.host_id) else { return false };
        island.stored.as_ref().is_none_or(|(at, version)| {
            *version != message.agent_version || now.saturating_duration_since(*at) >= STORE_INTERVAL
        })
    }

    /// Records that a registration was stored, unless another one has changed the Island meanwhile.
    pub fn stored(&self, message: &Register, now: Instant) {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&message.host_id) else { return };
        let enrolled = &island.enrolled;
        if enrolled.name == message.name
            && enrolled.region == message.region
            && enrolled.capabilities.as_deref() == Some(&message.capabilities)
        {
            island.stored = Some((now, message.agent_version.clone()));
        }
    }

    /// Gives an Island no jobs, because it speaks none of this coordinator's versions. Returns whether that is new.
    pub fn refuse(&self, host: HostId, mismatch: Mismatch) -> bool {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&host) else { return false };
        let is_new = island.mismatch.replace(mismatch) != Some(mismatch);
        (island.last_message, island.heartbeat, island.clock) = (None, None, None);
        drop(islands);
        if is_new {
            self.latest.clear();
        }
        is_new
    }

    /// The version of the messages that an Island sends, from its last heartbeat, and its versions if it is refused because of them.
    pub fn versions(&self, host: HostId) -> (Option<u32>, Option<Mismatch>) {
        let islands = self.lock();
        let Some(island) = islands.get(&host) else { return (None, None) };
        (island.heartbeat.as_ref().map(|heartbeat| heartbeat.v), island.mismatch)
    }

    /// Applies a heartbeat. Unknown Islands are ignored.
    pub fn heartbeat(&self, heartbeat: Heartbeat, now: Instant, at: Timestamp) {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&heartbeat.host_id) else { return };
        if !island.instances.beat(heartbeat.instance) {
            return;
        }
        let host = heartbeat.host_id;
        let before = island.status(self.offline_after, now);
        let is_first = island.heartbeat.is_none();
        let had = island.capacity(host, self.offline_after, now);
        island.last_message = Some(now);
        island.enrolled.last_seen = Some(at);
        island.ended.clear();
        island.refused_full = island.refused_full.map(|_| heartbeat.headroom.job_slots > 0);
        island.clock = Some((heartbeat.timestamp, now));
        let former = island.heartbeat.replace(Arc::new(heartbeat));
        let is_news = is_first || island.status(self.offline_after, now) != before;
        let has = island.capacity(host, self.offline_after, now);
        let has_models = former.map(|former| {
            former.models == island.heartbeat.as_ref().map_or(&[][..], |latest| &latest.models)
        });
        drop(islands);
        if is_news {
            self.latest.clear();
        }
        if is_news || has_models == Some(false) || has.exceeds(&had) {
            self.announce(host);
        }
    }

    /// What the clock of an Island shows, by its last heartbeat; `None` before that.
    pub fn time_of(&self, host: HostId, now: Instant) -> Option<Timestamp> {
        let (shown, arrived) = self.lock().get(&host)?.clock?;
        let passed = now.saturating_duration_since(arrived).as_millis();
        Some(shown.plus_ms(i64::try_from(passed).unwrap_or(i64::MAX)))
    }

    /// By how many milliseconds the clock of each online Island is ahead of `at`.
    pub fn clock_differences(&self, at: Timestamp, now: Instant) -> Vec<i64> {
        let islands = self.lock();
        let online = islands.values().filter(|island| island.online(self.offline_after, now));
        let difference = |(shown, arrived): (Timestamp, Instant)| {
            let passed =
                i64::try_from(now.saturating_duration_since(arrived).as_millis()).unwrap_or(i64::MAX);
            shown.plus_ms(passed).unix_ms().saturating_sub(at.unix_ms())
        };
        online.filter_map(|island| island.clock.map(difference)).collect()
    }

    /// Returns the best Island for a job and claims it for `key`, or the reasons why no Island can take the job.
    pub fn place(
        &self,
        cargo: &CargoSpec,
        key: AttemptKey,
        history: &PlacementHistory,
        now: Instant,
    ) -> Result<HostId, Reasons> {
        self.place_in(None, cargo, key, history, now)
    }

    /// As [`Fleet::place`], on one of these Islands.
    pub fn place_among<'h>(
        &self,
        hosts: impl Iterator<Item = &'h HostId>,
        cargo: &CargoSpec,
        key: AttemptKey,
        history: &PlacementHistory,
        now: Instant,
    ) -> Result<HostId, Reasons> {
        self.place_in(Some(&mut { hosts }), cargo, key, history, now)
    }

    fn place_in(
        &self,
        among: Option<&mut dyn Iterator<Item = &HostId>>,
        cargo: &CargoSpec,
        key: AttemptKey,
        history: &PlacementHistory,
        now: Instant,
    ) -> Result<HostId, Reasons> {
        let mut islands = self.lock();
        let considered: Box<dyn Iterator<Item = (&HostId, &Island)>> = match among {
            None => Box::new(islands.iter()),
            Some(hosts) => Box::new(hosts.filter_map(|id| islands.get_key_value(id))),
        };
        let count = Cell::new(0_u64);
        let considered = considered.inspect(|_| count.set(count.get() + 1));
        let candidates = considered.filter(|(id, _)| history.allows(**id)).filter_map(|(id, island)| {
            let failures = history.failures.get(id).copied().unwrap_or(0);
            let candidate = island.candidate(*id, self.offline_after, failures, now)?;
            // An Island's check of itself shows its owner why it fails.
            let last_resort = history.only.is_none() && island.is_last_resort(Some(&cargo.slug), now);
            Some(Candidate { last_resort, ..candidate })
        });
        let best = placement::best(cargo, key.job_id, &history.selection, candidates);
        self.considered.fetch_add(count.get(), Ordering::Relaxed);
        let best = best?;
        if let Some(island) = islands.get_mut(&best) {
            island.claim(best, key, cargo, now);
        }
        Ok(best)
    }

    /// Claims an Island for an attempt that runs there already, after a restart of this coordinator.
    pub fn claim(&self, host: HostId, key: AttemptKey, cargo: &CargoSpec) {
        if let Some(island) = self.lock().get_mut(&host) {
            island.claim(host, key, cargo, Instant::now());
        }
    }

    /// Releases the claim of an attempt that has ended.
    pub fn release(&self, host: HostId, key: AttemptKey) {
        let mut islands = self.lock();
        let Some(island) = islands.get_mut(&host) else { return };
        let Some(claim) = island.claims.remove(&key) else { return };
        if island.lists(&key) {
            island.ended.insert(key, claim);
        }
        drop(islands);
        self.announce(host);
    }

    /// Calls `visit` with one Island as placement sees it now. Returns `None` if the Island is unknown or has not
    /// registered.
    pub fn consider<T>(
        &self,
        host: HostId,
        now: Instant,
        visit: impl FnOnce(&Candidate<'_>) -> T,
    ) -> Option<T> {
        let islands = self.lock();
        Some(visit(&islands.get(&host)?.candidate(host, self.offline_after, 0, now)?))
    }

    /// Calls `visit` with an Island's hardware and models regardless of its load, or with `None` if it has not
    /// registered. Returns `None` if the Island is unknown.
    pub fn inspect<T>(&self, host: HostId, visit: impl FnOnce(Option<&Candidate<'_>>) -> T) -> Option<T> {
        let islands = self.lock();
        Some(visit(islands.get(&host)?.profile(host).as_ref()))
    }

    /// All Islands as they were a moment ago.
    pub fn snapshot(&self, now: Instant) -> Arc<Snapshot> {
        if let Some(latest) = self.latest.get(now) {
            return latest;
        }
        let begun = Instant::now();
        let changes = self.latest.changes();
        let islands = self.lock();
        let seen: Vec<IslandSummary> =
            islands.values().map(|island| IslandSummary::new(island, self.offline_after, now)).collect();
        drop(islands);
        let snapshot = Arc::new(Snapshot::new(seen, now, begun.elapsed()));
        self.latest.set(snapshot.clone(), changes);
        snapshot
    }

    /// What an Island does now; `None` if it is not known here.
    pub fn status_of(&self, host: HostId, now: Instant) -> Option<&'static str> {
        self.lock().get(&host).map(|island| island.status(self.offline_after, now))
    }

    /// One Island, as consumers see it.
    pub fn view(&self, host: HostId, now: Instant) -> Option<HostView> {
        let seen = self.lock().get(&host).map(|island| IslandSummary::new(island, self.offline_after, now));
        seen.map(|seen| seen.view())
    }

    /// The run of an Island's agent that gets assignments, if it is known.
    pub fn instance(&self, host: HostId) -> Option<InstanceId> {
        self.lock().get(&host)?.instances.current()
    }

    /// Sets the measured speed of an Island.
    pub fn set_speed(&self, host: HostId, tokens_per_second: f64) {
        if let Some(island) = self.lock().get_mut(&host) {
            island.enrolled.tokens_per_second = Some(tokens_per_second);
        }
    }

    /// Records that a file of a Cargo had another hash on an Island than its entry states. Returns `true` if Islands of enough owners have
    /// reported that: then the entry or the address is wrong, and no Island can run the Cargo.
    pub fn report_file(&self, host: HostId, cargo: &Slug, now: Instant) -> bool {
        let owner = self.lock().get(&host).map(|island| island.enrolled.account);
        owner.is_some_and(|owner| self.file_reports.lock().add(cargo, owner, now))
    }

    /// Counts how an Island treated an attempt of a Cargo.
    pub fn observe(&self, host: HostId, cargo: &Slug, conduct: Conduct, now: Instant) {
        if conduct == Conduct::Completed {
            self.file_reports.lock().clear(cargo);
        }
        if let Some(island) = self.lock().get_mut(&host) {
            island.observe(cargo, conduct, now);
        }
    }

    /// Compares the time that a job took on an Island with what its Cargo usually takes.
    pub fn compare(&self, host: HostId, cargo: &CargoSpec, run: Run) {
        if let Some(island) = self.lock().get_mut(&host) {
            let expected = placement::checked_speed(island.enrolled.tokens_per_second).log2();
            self.usual_times.lock().observe(&mut island.paces, cargo, run, expected);
        }
    }

    /// Applies karma from SQL, which may lack what this coordinator credited last.
    pub fn refresh_karma(&self, karma: Vec<(HostId, i64)>) {
        let mut islands = self.lock();
        for (host, ms) in karma {
            if let Some(island) = islands.get_mut(&host) {
                island.enrolled.karma_ms = island.enrolled.karma_ms.max(ms);
            }
        }
    }

    /// Adds to an Island's karma.
    pub fn credit_karma(&self, host: HostId, ms: i64) {
        if let Some(island) = self.lock().get_mut(&host) {
            island.enrolled.karma_ms = island.enrolled.karma_ms.saturating_add(ms);
        }
    }
}

impl Island {
    /// Whether it gets work only if no other Island can take it.
    fn is_last_resort(&self, cargo: Option<&Slug>, now: Instant) -> bool {
        self.enrolled.trust == Trust::Low || self.health.is_failing(cargo, now)
    }

    fn new(enrolled: Enrolled) -> Self {
        Self {
            enrolled,
            stored: None,
            instances: Instances::default(),
            has_registered: false,
            last_message: None,
            clock: None,
            heartbeat: None,
            claims: BTreeMap::new(),
            ended: BTreeMap::new(),
            health: Health::default(),
            paces: Paces::default(),
            refused_full: None,
            mismatch: None,
        }
    }

    fn observe(&mut self, cargo: &Slug, conduct: Conduct, now: Instant) {
        // It may have become full since its heartbeat; if the next one reports a free slot again, it is to blame.
        let conduct = match conduct {
            Conduct::Full if self.refused_full == Some(true) => Conduct::Refused,
            conduct => conduct,
        };
        match conduct {
            Conduct::Full | Conduct::Refused => self.refused_full = self.refused_full.or(Some(false)),
            Conduct::Completed => self.refused_full = None,
            Conduct::Silent | Conduct::Failed => {}
        }
        self.health.observe(cargo, conduct, now);
    }

    fn online(&self, offline_after: Duration, now: Instant) -> bool {
        self.last_message
            .is_some_and(|last_message| now.saturating_duration_since(last_message) < offline_after)
    }

    /// Claims the memory that an attempt takes here.
    fn claim(&mut self, id: HostId, key: AttemptKey, cargo: &CargoSpec, now: Instant) {
        let candidate = self.candidate(id, Duration::ZERO, 0, now);
        let need = candidate.map(|candidate| placement::need(cargo, &candidate));
        self.claims.insert(key, need.unwrap_or_default());
    }

    fn capacity(&self, id: HostId, offline_after: Duration, now: Instant) -> Capacity {
        let Some(candidate) = self.candidate(id, offline_after, 0, now) else { return Capacity::default() };
        Capacity {
            is_open: candidate.online && !candidate.draining,
            slots: candidate.free_slots,
            ram_mb: candidate.free_ram_mb,
            vram: candidate.free_vram.into_owned(),
        }
    }

    fn lists(&self, key: &AttemptKey) -> bool {
        self.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.jobs.iter().any(|job| job.key == *key))
    }

    fn candidate(
        &self,
        id: HostId,
        offline_after: Duration,
        failures: u32,
        now: Instant,
    ) -> Option<Candidate<'_>> {
        let capabilities = self.enrolled.capabilities.as_ref()?;
        let heartbeat = self.heartbeat.as_ref()?;
        let new: Vec<&Need> =
            self.claims.iter().filter(|(key, _)| !self.lists(key)).map(|(_, claim)| claim).collect();
        let free = |headroom: u64, of: &dyn Fn(&Need) -> u64| {
            let taken: u64 = new.iter().map(|claim| of(claim)).sum();
            let back: u64 = self.ended.values().map(of).sum();
            headroom as i64 - taken as i64 + back as i64
        };
        let headroom = &heartbeat.headroom;
        // Older Islands report only their GPU with the most free memory.
        let older = || Vram::from([(0, headroom.vram_mb)]);
        let gpus = headroom.gpus.as_ref().map_or_else(|| Cow::Owned(older()), Cow::Borrowed);
        let is_changed = new.iter().copied().chain(self.ended.values()).any(|claim| !claim.vram.is_empty());
        let free_vram = if is_changed {
            let left = |(gpu, mb): (&u32, &u64)| {
                let of_gpu = |claim: &Need| claim.vram.get(gpu).copied().unwrap_or(0);
                (*gpu, free(*mb, &of_gpu).max(0) as u64)
            };
            Cow::Owned(gpus.iter().map(left).collect())
        } else {
            gpus
        };
        Some(Candidate {
            id,
            account: self.enrolled.account,
            region: self.enrolled.region.as_deref(),
            trust: self.enrolled.trust,
            capabilities,
            models: &heartbeat.models,
            online: self.online(offline_after, now),
            draining: self.enrolled.suspended || matches!(heartbeat.status.as_str(), "draining" | "paused"),
            free_slots: i64::from(headroom.job_slots) - new.len() as i64 + self.ended.len() as i64,
            free_ram_mb: free(headroom.ram_mb, &|claim| claim.ram_mb),
            free_vram,
            karma_ms: self.enrolled.karma_ms,
            tokens_per_second: self.enrolled.tokens_per_second,
            paces: Cow::Borrowed(&self.paces),
            running: (heartbeat.jobs.len() + new.len()).saturating_sub(self.ended.len()) as u32,
            failures,
            last_resort: self.is_last_resort(None, now),
            unreliability: self.health.unreliability(now),
        })
    }

    /// The Island as a candidate regardless of its load.
    fn profile(&self, id: HostId) -> Option<Candidate<'_>> {
        Some(Candidate {
            id,
            account: self.enrolled.account,
            region: self.enrolled.region.as_deref(),
            trust: self.enrolled.trust,
            capabilities: self.enrolled.capabilities.as_ref()?,
            models: self.heartbeat.as_ref().map_or(&[], |heartbeat| &heartbeat.models),
            online: false,
            draining: false,
            free_slots: 0,
            free_ram_mb: 0,
            free_vram: Cow::default(),
            karma_ms: self.enrolled.karma_ms,
            tokens_per_second: self.enrolled.tokens_per_second,
            paces: Cow::Borrowed(&self.paces),
            running: 0,
            last_resort: false,
            unreliability: 0,
            failures: 0,
        })
    }

    fn status(&self, offline_after: Duration, now: Instant) -> &'static str {
        match &self.heartbeat {
            _ if !self.online(offline_after, now) => "offline",
            _ if self.enrolled.suspended => "suspended",
            Some(heartbeat) if heartbeat.status == "draining" => "draining",
            Some(heartbeat) if heartbeat.status == "paused" => "paused",
            _ => "online",
        }
    }
}

#[cfg(test)]
mod tests;
