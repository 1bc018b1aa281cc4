//! The world: time, messages, faults, and the check at the end.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use island_protocol::{
    FABRIC_VERSION,
    credits::MicroCredits,
    event::{AttemptEvent, JobEvent, Numbered},
    fabric::{Assignment, Heartbeat, Lease, LeasedJob, Output, OutputReply, RefusalReason},
    ids::{AccountId, AttemptKey, HostId, InstanceId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    TERMS,
    client::Client,
    coordinator::{Coordinator, Running},
    database::{Database, Outcome},
    island::{self, Island},
};
use crate::{
    log::Log,
    machine::{AttemptWrite, Effect, Hosts, Input, Machine, Now, OfferAnswer, Write, Written},
    recover::joined,
};
use island_coordinator_domain::{
    catalogue::Catalogue,
    fleet::{Enrolled, Fleet, PlacementHistory},
    job::{
        CANCELLED_BY_OPERATOR, Canceller, Job,
        input::JobInput,
        state::{self, Trigger},
    },
    ledger::Book,
    peers::{self, PeerHeartbeat, Peers, Share},
};
use island_coordinator_fabric::{link::Connectivity, signature};

const COORDINATORS: usize = 2;
const ISLANDS: usize = 3;
const JOBS: usize = 5;
/// Faults strike until then.
const FAULTS_END_MS: u64 = 90_000;
/// Every job has ended by then: its deadline has passed, whatever happened.
const END_MS: u64 = 700_000;
const MAX_WAIT_MS: i64 = 200_000;
/// Three heartbeats.
const OFFLINE_AFTER: Duration = Duration::from_secs(15);
const TAKEOVER: Duration = Duration::from_secs(8);
/// A lost connection is noticed after this time.
const PING_MS: u64 = 15_000;
const WALL_MS: i64 = 1_700_000_000_000;
const OPERATOR: AccountId = AccountId(Uuid::from_u128(7));

/// A defect that is put back to see that the simulation finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    /// Open jobs without a runner are never looked for.
    NoReconciliation,
    /// A coordinator that may have been replaced continues to show events.
    NoFence,
    /// A log of which the end was lost is continued under the same numbers.
    ContinuedLog,
    /// An Island is stopped before the end of its attempt is committed.
    EarlyCancel,
    /// The stall of a run is judged from the time since the last message.
    StallBySilence,
    /// The age of a signed message is judged by the system clock alone.
    SteppedWindow,
    /// An attempt that was committed counts as offered when another coordinator finds it.
    NoSecondOffer,
}

impl Defect {
    /// Those that some hundred seeds find.
    pub(super) const COMMON: [Self; 5] = [
        Self::NoReconciliation,
        Self::ContinuedLog,
        Self::StallBySilence,
        Self::SteppedWindow,
        Self::NoSecondOffer,
    ];
    /// Those that take a rare coincidence.
    pub(super) const RARE: [Self; 2] = [Self::NoFence, Self::EarlyCancel];
}

/// Which faults a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    /// None: every job completes.
    Calm,
    /// Steps of the system clocks: every job completes.
    Clocks,
    /// Connections of coordinators that are lost for less time than a lease: every job completes.
    Links,
    /// All.
    Storm,
}

/// What happened in a world.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    completed: u32,
    failed: u32,
    cancelled: u32,
    cancelled_by_operator: u32,
    timeout: u32,
    kills: u32,
    freezes: u32,
    cuts: u32,
    lost_writes: u32,
    lost_replies: u32,
    adoptions: u32,
    continued: u32,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.cancelled_by_operator += other.cancelled_by_operator;
        self.timeout += other.timeout;
        self.kills += other.kills;
        self.freezes += other.freezes;
        self.cuts += other.cuts;
        self.lost_writes += other.lost_writes;
        self.lost_replies += other.lost_replies;
        self.adoptions += other.adoptions;
        self.continued += other.continued;
    }

    /// Whether every kind of end and of fault occurred.
    pub(super) fn is_varied(&self) -> bool {
        let ends = [self.completed, self.failed, self.cancelled, self.cancelled_by_operator];
        let faults = [
            self.kills,
            self.freezes,
            self.cuts,
            self.lost_writes,
            self.lost_replies,
            self.adoptions,
            self.continued,
        ];
        ends.iter().chain(&faults).all(|count| *count > 0)
    }
}

#[derive(Debug, Clone)]
enum Message {
    Offer {
        assignment: Box<Assignment<JobInput>>,
        from: usize,
    },
    OfferAnswer {
        host: HostId,
        key: AttemptKey,
        refusal: Option<RefusalReason>,
    },
    Cancel {
        key: AttemptKey,
    },
    Output {
        host: HostId,
        key: AttemptKey,
        events: Vec<Numbered<AttemptEvent>>,
        wants_reply: bool,
    },
    OutputReply {
        key: AttemptKey,
        reply: OutputReply,
    },
    Renewal {
        host: HostId,
        jobs: Vec<LeasedJob>,
        sent: u64,
    },
    Heartbeat(Box<Heartbeat>),
    LeaseReply {
        leases: Vec<Lease>,
        sent: u64,
    },
    /// The agent restarted and has these attempts.
    Register {
        host: HostId,
        holding: Vec<AttemptKey>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Coordinator(usize),
    Island(usize),
}

#[derive(Debug)]
enum Event {
    Message {
        to: Node,
        message: Message,
    },
    /// A write reaches the database.
    Apply {
        coordinator: usize,
        life: u32,
        job: JobId,
        write: Box<Write>,
    },
    /// Its result reaches the coordinator.
    Written {
        coordinator: usize,
        life: u32,
        job: JobId,
        written: Written,
    },
    /// What a process that does not run finds later, unless it is killed before.
    Found {
        node: Node,
        life: u32,
        event: Box<Event>,
    },
    OfferTimeout {
        coordinator: usize,
        life: u32,
        key: AttemptKey,
    },
    /// The start of an attempt reaches the database.
    RecordStart {
        coordinator: usize,
        life: u32,
        key: AttemptKey,
    },
    /// A task of this process, and of which of its runs.
    Tick(usize, u32),
    Heartbeat(usize, u32),
    /// The next step of a round with the other coordinators.
    Round(usize, u32),
    /// A takeover reaches the database.
    TakeOver {
        coordinator: usize,
        life: u32,
        silent: Vec<PeerHeartbeat>,
        share: Share,
    },
    Publish(usize, u32),
    Work(usize, u32),
    Restart(Node),
    Submit(usize),
    Cancel(JobId),
    HangUp(JobId),
    Fault,
}

/// The stream of a job's events.
#[derive(Debug, Default)]
struct Stream {
    sequence: u64,
    events: Vec<Numbered<JobEvent>>,
}

#[derive(Debug)]
struct Scheduled(u64, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// One network.
#[derive(Debug)]
pub(super) struct World {
    now: u64,
    start: Instant,
    rng: StdRng,
    profile: Profile,
    defect: Option<Defect>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    catalogue: Arc<Catalogue>,
    database: Database,
    coordinators: Vec<Coordinator>,
    islands: Vec<Island>,
    streams: BTreeMap<JobId, Stream>,
    clients: BTreeMap<JobId, (Client, Option<usize>)>,
    /// Attempts that a coordinator has offered.
    offered: BTreeSet<AttemptKey>,
    words: BTreeMap<JobId, u64>,
    /// Connections between a coordinator and everything else, and until when they are cut since when.
    cuts: [(u64, u64); COORDINATORS],
    consumer: AccountId,
    trace: String,
    broken: Option<String>,
    pub(super) totals: Totals,
}

impl World {
    pub(super) fn new(seed: u64, catalogue: Arc<Catalogue>, defect: Option<Defect>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let profile = match seed % 8 {
            0 => Profile::Calm,
            1 => Profile::Clocks,
            2 => Profile::Links,
            _ => Profile::Storm,
        };
        let mut uuid = || Uuid::from_u128(rng.random());
        let mut database = Database::default();
        let consumer = AccountId(uuid());
        let islands: Vec<_> = (0..ISLANDS).map(|_| Island::new(HostId(uuid()), InstanceId(uuid()))).collect();
        for island in &islands {
            database.owners.insert(island.host, AccountId(uuid()));
        }
        database.accounts = database.owners.clone();
        let start = Instant::now();
        let coordinators = (0..COORDINATORS)
            .map(|_| Coordinator::new(InstanceId(uuid()), 0, start, 0, &database.owners))
            .collect();
        database.grant(consumer, MicroCredits(1_000_000_000));
        let mut world = Self {
            now: 0,
            start,
            rng,
            profile,
            defect,
            queue: BinaryHeap::new(),
            scheduled: 0,
            catalogue,
            database,
            coordinators,
            islands,
            streams: BTreeMap::new(),
            clients: BTreeMap::new(),
            offered: BTreeSet::new(),
            words: BTreeMap::new(),
            cuts: [(0, 0); COORDINATORS],
            consumer,
            trace: String::new(),
            broken: None,
            totals: Totals::default(),
        };
        for index in 0..COORDINATORS {
            world.database.coordinators.insert(world.coordinators[index].id, 0);
            world.start_coordinator(index);
        }
        for index in 0..ISLANDS {
            let at = world.rng.random_range(0..1_000);
            world.at(at, Event::Work(index, 0));
        }
        for index in 0..JOBS {
            let at = world.rng.random_range(0..60_000);
            world.at(at, Event::Submit(index));
        }
        world.at(1_000, Event::Fault);
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled(time, self.scheduled, event)));
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.at(self.now + ms, event);
    }

    fn log(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.trace, "{:>7} {}", self.now, line.as_ref());
    }

    /// What happened, one line for each decision.
    pub(super) fn trace(&self) -> &str {
        &self.trace
    }

    /// A number that differs when anything happened differently.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.trace.hash(&mut hasher);
        hasher.finish()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn is_stormy(&self) -> bool {
        self.profile == Profile::Storm && self.now < FAULTS_END_MS
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn now_at(&self, coordinator: usize) -> Now {
        let wall = WALL_MS + self.now as i64 + self.coordinators[coordinator].skew_ms;
        Now { instant: self.instant(), wall: Timestamp::from_unix_ms(wall) }
    }

    /// Runs to the end.
    pub(super) fn run(&mut self) {
        while let Some(Reverse(Scheduled(time, _, event))) = self.queue.pop() {
            if time > END_MS || self.broken.is_some() || self.is_settled(time) {
                break;
            }
            self.now = time;
            self.happen(event);
        }
    }

    /// Whether nothing is left to happen: all jobs have ended and every process knows it.
    fn is_settled(&self, time: u64) -> bool {
        time > FAULTS_END_MS
            && self.database.rows.len() == JOBS
            && self.database.rows.values().all(|row| row.job.status.is_final())
            && self
                .coordinators
                .iter()
                .all(|one| one.is_alive && one.jobs.is_empty() && one.claims.is_empty())
            && self.islands.iter().all(|island| island.is_alive && island.attempts.is_empty())
    }

    /// The process that an event belongs to.
    fn process(&self, event: &Event) -> Option<Node> {
        match event {
            Event::Message { to, .. } => Some(*to),
            Event::Written { coordinator, .. }
            | Event::OfferTimeout { coordinator, .. }
            | Event::RecordStart { coordinator, .. }
            | Event::TakeOver { coordinator, .. }
            | Event::Tick(coordinator, _)
            | Event::Heartbeat(coordinator, _)
            | Event::Round(coordinator, _)
            | Event::Publish(coordinator, _) => Some(Node::Coordinator(*coordinator)),
            Event::Work(island, _) => Some(Node::Island(*island)),
            _ => None,
        }
    }

    fn happen(&mut self, event: Event) {
        let frozen_until = match self.process(&event) {
            // What reaches a dead process is lost.
            Some(Node::Coordinator(index)) if self.coordinators[index].is_alive => {
                self.coordinators[index].frozen_until
            }
            Some(Node::Island(index)) if self.islands[index].is_alive => self.islands[index].frozen_until,
            _ => 0,
        };
        if frozen_until > self.now {
            let Some(node) = self.process(&event) else { return };
            let found = Event::Found { node, life: self.life(node), event: Box::new(event) };
            return self.at(frozen_until, found);
        }
        match event {
            Event::Found { node, life, event } => {
                if self.life(node) == life {
                    self.happen(*event);
                }
            }
            Event::Message { to: Node::Coordinator(index), message } => {
                if self.coordinators[index].is_alive {
                    self.receive(index, message);
                }
            }
            Event::Message { to: Node::Island(index), message } => {
                if self.islands[index].is_alive {
                    self.island_receives(index, message);
                }
            }
            Event::Apply { coordinator, life, job, write } => self.apply(coordinator, life, job, write),
            Event::Written { coordinator, life, job, written } => {
                if self.has_life(coordinator, life) {
                    self.written(coordinator, job, written);
                }
            }
            Event::OfferTimeout { coordinator, life, key } => {
                if self.has_life(coordinator, life) {
                    let answer = OfferAnswer::Silent;
                    self.input(coordinator, key.job_id, Input::Answered { key, answer });
                }
            }
            Event::RecordStart { coordinator, life, key } => {
                if !self.has_life(coordinator, life) {
                    // Lost with the coordinator.
                } else if self.coordinators[coordinator].no_database_until > self.now {
                    self.after(1_000, Event::RecordStart { coordinator, life, key });
                } else {
                    self.database.record_start(key);
                }
            }
            Event::Tick(index, life) => {
                if self.has_life(index, life) {
                    self.after(500, Event::Tick(index, life));
                    self.tick(index);
                }
            }
            Event::Heartbeat(index, life) => {
                if self.has_life(index, life) {
                    self.after(1_000, Event::Heartbeat(index, life));
                    self.heartbeat(index);
                }
            }
            Event::Round(index, life) => {
                if self.has_life(index, life) {
                    self.round(index);
                }
            }
            Event::TakeOver { coordinator, life, silent, share } => {
                if self.has_life(coordinator, life) {
                    self.take_over(coordinator, silent, &share);
                }
            }
            Event::Publish(index, life) => {
                if self.has_life(index, life) {
                    self.after(250, Event::Publish(index, life));
                    self.publish(index);
                }
            }
            Event::Work(index, life) => {
                if self.islands[index].is_alive && self.islands[index].life == life {
                    self.after(400, Event::Work(index, life));
                    self.work(index);
                }
            }
            Event::Restart(node) => self.restart(node),
            Event::Submit(number) => self.submit(number),
            Event::Cancel(job) => self.cancel(job),
            Event::HangUp(job) => {
                if let Some((client, _)) = self.clients.get_mut(&job) {
                    client.is_connected = false;
                }
            }
            Event::Fault => self.fault(),
        }
    }

    fn life(&self, node: Node) -> u32 {
        match node {
            Node::Coordinator(index) => self.coordinators[index].life,
            Node::Island(index) => self.islands[index].life,
        }
    }

    fn has_life(&self, coordinator: usize, life: u32) -> bool {
        self.coordinators[coordinator].is_alive && self.coordinators[coordinator].life == life
    }

    // Faults

    fn fault(&mut self) {
        if self.now >= FAULTS_END_MS {
            // Clocks are set right sooner or later.
            self.coordinators.iter_mut().for_each(|coordinator| coordinator.skew_ms = 0);
            return;
        }
        let pause = self.rng.random_range(500..8_000);
        self.after(pause, Event::Fault);
        match self.profile {
            Profile::Calm => {}
            Profile::Clocks => self.step_clock(),
            Profile::Links => self.cut(1_000..12_000),
            Profile::Storm => match self.rng.random_range(0..10) {
                0 => self.kill_coordinator(),
                1 => self.kill_island(),
                2 => {
                    self.kill_coordinator();
                    self.kill_island();
                }
                3 => self.freeze(),
                4 => self.cut(1_000..40_000),
                5 => {
                    let index = self.rng.random_range(0..COORDINATORS);
                    let until = self.now + self.rng.random_range(1_000..25_000);
                    self.coordinators[index].no_database_until = until;
                    self.log(format!("coordinator {index} has no database until {until}"));
                }
                6 => {
                    self.streams.clear();
                    self.log("the stream is emptied");
                }
                7 => {
                    let index = self.rng.random_range(0..ISLANDS);
                    if self.chance(50) {
                        self.islands[index].fail();
                    } else {
                        self.islands[index].freeze_engines();
                    }
                    self.log(format!("the engines of Island {index} fail"));
                }
                8 => self.step_clock(),
                _ => {
                    let host = self.islands[self.rng.random_range(0..ISLANDS)].host;
                    self.database.owners.remove(&host);
                    self.log(format!("the owner of {host} is unknown"));
                }
            },
        }
    }

    fn step_clock(&mut self) {
        let index = self.rng.random_range(0..COORDINATORS);
        self.coordinators[index].skew_ms = self.rng.random_range(-3_600_000..3_600_000);
        self.log(format!("the clock of coordinator {index} steps"));
    }

    fn cut(&mut self, ms: std::ops::Range<u64>) {
        let index = self.rng.random_range(0..COORDINATORS);
        // Where nothing may be lost, a renewal gets through between two cuts.
        let is_soon = self.profile == Profile::Links && self.now < self.cuts[index].1 + 7_000;
        if self.is_cut(index) || is_soon {
            return;
        }
        let length = self.rng.random_range(ms);
        self.cuts[index] = (self.now, self.now + length);
        if length > PING_MS {
            self.coordinators[index].connected_since = self.now + length;
        }
        self.totals.cuts += 1;
        self.log(format!("coordinator {index} is cut off for {length} ms"));
    }

    fn is_cut(&self, coordinator: usize) -> bool {
        self.cuts[coordinator].1 > self.now
    }

    fn freeze(&mut self) {
        let until = self.now + self.rng.random_range(1_000..40_000);
        self.totals.freezes += 1;
        if self.chance(50) {
            let index = self.rng.random_range(0..COORDINATORS);
            self.coordinators[index].frozen_until = until;
            self.log(format!("coordinator {index} is frozen until {until}"));
        } else {
            let index = self.rng.random_range(0..ISLANDS);
            self.islands[index].frozen_until = until;
            self.log(format!("Island {index} is frozen until {until}"));
        }
    }

    fn kill_coordinator(&mut self) {
        let index = self.rng.random_range(0..COORDINATORS);
        if self.coordinators[index].is_alive {
            self.totals.kills += 1;
            self.stop_coordinator(index);
        }
    }

    fn stop_coordinator(&mut self, index: usize) {
        let coordinator = &mut self.coordinators[index];
        coordinator.is_alive = false;
        coordinator.life += 1;
        coordinator.frozen_until = 0;
        coordinator.jobs.clear();
        coordinator.claims.clear();
        for (_, at) in self.clients.values_mut() {
            at.take_if(|at| *at == index);
        }
        let pause = self.rng.random_range(500..20_000);
        self.log(format!("coordinator {index} is killed for {pause} ms"));
        self.after(pause, Event::Restart(Node::Coordinator(index)));
    }

    fn kill_island(&mut self) {
        let index = self.rng.random_range(0..ISLANDS);
        if !self.islands[index].is_alive {
            return;
        }
        self.totals.kills += 1;
        let keeps = self.chance(50);
        let island = &mut self.islands[index];
        (island.is_alive, island.frozen_until) = (false, 0);
        island.life += 1;
        if !keeps {
            island.attempts.clear();
        }
        island.ended.clear();
        let pause = self.rng.random_range(500..60_000);
        self.log(format!("Island {index} is killed for {pause} ms, keeps its attempts: {keeps}"));
        self.after(pause, Event::Restart(Node::Island(index)));
    }

    fn restart(&mut self, node: Node) {
        match node {
            Node::Coordinator(index) => {
                if self.coordinators[index].no_database_until > self.now {
                    return self.after(1_000, Event::Restart(node));
                }
                let (life, skew) = (self.coordinators[index].life, self.coordinators[index].skew_ms);
                let id = InstanceId(Uuid::from_u128(self.rng.random()));
                let now = self.instant();
                self.coordinators[index] = Coordinator::new(id, life, now, skew, &self.database.accounts);
                self.coordinators[index].connected_since = self.now;
                self.database.coordinators.insert(id, 0);
                // A restart of the only machine with a clean stop removes its row; a kill leaves it to the others.
                self.log(format!("coordinator {index} starts"));
                self.start_coordinator(index);
                self.reconcile(index, true);
            }
            Node::Island(index) => {
                let instance = InstanceId(Uuid::from_u128(self.rng.random()));
                let island = &mut self.islands[index];
                (island.is_alive, island.instance) = (true, instance);
                let (host, holding) = (island.host, island.attempts.keys().copied().collect::<Vec<_>>());
                for coordinator in 0..COORDINATORS {
                    let message = Message::Register { host, holding: holding.clone() };
                    self.send(Node::Island(index), Node::Coordinator(coordinator), message);
                }
                self.after(0, Event::Work(index, self.islands[index].life));
                self.log(format!("Island {index} starts"));
            }
        }
    }

    fn start_coordinator(&mut self, index: usize) {
        let life = self.coordinators[index].life;
        for event in [Event::Tick(index, life), Event::Heartbeat(index, life), Event::Publish(index, life)] {
            let offset = self.rng.random_range(0..500);
            self.after(offset, event);
        }
    }

    // Messages

    fn send(&mut self, from: Node, to: Node, message: Message) {
        let ((Node::Coordinator(coordinator), _) | (_, Node::Coordinator(coordinator))) = (from, to) else {
            return;
        };
        if self.is_cut(coordinator) {
            return;
        }
        let is_stormy = self.is_stormy();
        if is_stormy && self.chance(2) {
            return;
        }
        let copies = if is_stormy && self.chance(2) { 2 } else { 1 };
        for _ in 0..copies {
            let is_late = is_stormy && self.chance(3);
            let delay =
                if is_late { self.rng.random_range(100..4_000) } else { self.rng.random_range(1..20) };
            self.after(delay, Event::Message { to, message: message.clone() });
        }
    }

    fn send_to_host(&mut self, from: usize, host: HostId, message: Message) {
        if let Some(index) = self.islands.iter().position(|island| island.host == host) {
            self.send(Node::Coordinator(from), Node::Island(index), message);
        }
    }

    fn receive(&mut self, index: usize, message: Message) {
        match message {
            Message::OfferAnswer { host, key, refusal } => {
                let answer = match refusal {
                    None => OfferAnswer::Accepted,
                    reason => OfferAnswer::Refused { reason, message: host.to_string() },
                };
                self.input(index, key.job_id, Input::Answered { key, answer });
            }
            Message::Output { host, key, events, wants_reply } => {
                let is_ours = self.coordinators[index].jobs.contains_key(&key.job_id);
                if is_ours {
                    let output = Output { v: FABRIC_VERSION, key, events };
                    let reply = wants_reply.then(|| "reply".to_owned());
                    self.input(index, key.job_id, Input::Output { host, output, reply });
                } else if wants_reply && self.is_obsolete(index, key) {
                    let reply =
                        OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None };
                    self.send_to_host(index, host, Message::OutputReply { key, reply });
                }
            }
            Message::Heartbeat(heartbeat) => {
                let now = self.now_at(index);
                self.coordinators[index].fleet.heartbeat(*heartbeat, now.instant, now.wall);
            }
            Message::Renewal { sent, .. } if !self.is_timely(index, sent) => {}
            Message::Renewal { host, jobs, sent } => {
                let connected_since =
                    self.start + Duration::from_millis(self.coordinators[index].connected_since);
                let (now, mut leases) = (self.instant(), Vec::new());
                for job in jobs {
                    self.coordinators[index].renewals.insert(job.key, self.now);
                    if let Some(running) = self.coordinators[index].jobs.get_mut(&job.key.job_id) {
                        leases.push(running.machine.renew(host, &job, now, connected_since));
                    } else if self.is_obsolete(index, job.key) {
                        leases.push(Lease { key: job.key, held: false, replay_from: None });
                    }
                }
                self.send_to_host(index, host, Message::LeaseReply { leases, sent });
            }
            Message::Register { host, holding } => {
                let jobs = &self.coordinators[index].jobs;
                let attempts = jobs.values().filter_map(|running| running.machine.attempt());
                let lost: Vec<_> = attempts
                    .filter(|(island, key)| *island == host && !holding.contains(key))
                    .map(|(_, key)| key)
                    .collect();
                for key in lost {
                    self.input(index, key.job_id, Input::Lost { key });
                }
            }
            _ => {}
        }
    }

    /// Whether a coordinator accepts a message that an Island signed then. Islands sign with a clock that does not follow
    /// steps, and was right when they started.
    fn is_timely(&self, index: usize, sent: u64) -> bool {
        let at = |ms: u64, skew: i64| Timestamp::from_unix_ms(WALL_MS + ms as i64 + skew);
        let coordinator = &self.coordinators[index];
        let wall = at(self.now, coordinator.skew_ms);
        let steady = at(self.now, coordinator.steady_skew_ms);
        let clocks = if self.defect == Some(Defect::SteppedWindow) { [wall, wall] } else { [wall, steady] };
        signature::is_timely(at(sent, 0), &clocks)
    }

    /// Whether the database knows that an attempt is over.
    fn is_obsolete(&self, coordinator: usize, key: AttemptKey) -> bool {
        let has_database = self.coordinators[coordinator].no_database_until <= self.now;
        let row = self.database.rows.get(&key.job_id).filter(|_| has_database);
        row.is_some_and(|row| row.job.status.is_final() || row.job.epoch > key.epoch)
    }

    fn island_receives(&mut self, index: usize, message: Message) {
        let now = self.now;
        match message {
            Message::Offer { assignment, from } => {
                let (key, host) = (assignment.key, self.islands[index].host);
                let refusal = self.islands[index].offer(&assignment, now).err();
                if assignment.continues.is_some() && refusal.is_none() {
                    self.totals.continued += 1;
                }
                self.log(format!("Island {index} is offered {key}: {refusal:?}"));
                let answer = Message::OfferAnswer { host, key, refusal };
                self.send(Node::Island(index), Node::Coordinator(from), answer);
            }
            Message::Cancel { key } => self.islands[index].cancel(key),
            Message::OutputReply { key, reply } => self.islands[index].replied(key, &reply),
            Message::LeaseReply { leases, sent } => {
                leases.iter().for_each(|lease| self.islands[index].renewed(lease, sent));
            }
            _ => {}
        }
    }

    fn work(&mut self, index: usize) {
        let (now, host) = (self.now, self.islands[index].host);
        for (key, events, wants_reply) in self.islands[index].work(now) {
            for coordinator in 0..COORDINATORS {
                let message = Message::Output { host, key, events: events.clone(), wants_reply };
                self.send(Node::Island(index), Node::Coordinator(coordinator), message);
            }
        }
        if now.saturating_sub(self.islands[index].last_renewal) >= 5_000 {
            self.islands[index].last_renewal = now;
            let jobs = self.islands[index].renewals();
            let heartbeat = Box::new(self.islands[index].heartbeat());
            for coordinator in 0..COORDINATORS {
                let message = Message::Heartbeat(heartbeat.clone());
                self.send(Node::Island(index), Node::Coordinator(coordinator), message);
                let message = Message::Renewal { host, jobs: jobs.clone(), sent: now };
                self.send(Node::Island(index), Node::Coordinator(coordinator), message);
            }
        }
    }

    // Consumers

    fn submit(&mut self, number: usize) {
        let index = self.rng.random_range(0..COORDINATORS);
        let coordinator = &self.coordinators[index];
        let is_available = coordinator.is_alive
            && coordinator.frozen_until <= self.now
            && coordinator.no_database_until <= self.now;
        if !is_available {
            return self.after(1_000, Event::Submit(number));
        }
        let now = self.now_at(index);
        let id = JobId(Uuid::from_u128(self.rng.random()));
        // The longest takes longer than a lease.
        let words = self.rng.random_range(3..100);
        let slug = if self.chance(70) { "story" } else { "riddle" };
        let mut job = Job {
            id,
            account: self.consumer,
            workload_id: 1,
            workload: slug.parse().expect("slug"),
            status: JobStatus::Submitted,
            input: JobInput::new(json!({ "words": words }).as_object().expect("object")),
            priority: 0,
            price: MicroCredits(1_000_003),
            max_tokens: Some(100),
            attempt: 0,
            epoch: 0,
            host: None,
            only: None,
            head: vec![Numbered { n: 1, event: JobEvent::status("submitted") }],
            first_event: 2,
            deadline: now.wall.plus_ms(MAX_WAIT_MS + 120_000),
            created_at: now.wall,
            times: island_coordinator_domain::job::Times::default(),
            parts: Vec::new(),
            cancel_unread: self.profile == Profile::Storm && self.chance(20),
            agreement: island_coordinator_domain::job::Agreement::default(),
            conversation: None,
            holder: None,
            end: None,
        };
        let key = AttemptKey { job_id: id, attempt: 1, epoch: 1 };
        if let Some(host) = self.claim_best(index, slug, key, &PlacementHistory::default()) {
            let status = state::next(job.status, Trigger::Assign).expect("a new job can be assigned");
            job.head.push(Numbered { n: 2, event: JobEvent::status(status.as_str()) });
            (job.attempt, job.epoch, job.host, job.status, job.first_event) = (1, 1, Some(host), status, 3);
        }
        self.words.insert(id, words);
        self.clients.insert(id, (Client { received: Vec::new(), is_connected: true }, Some(index)));
        self.database.accept(job.clone(), self.coordinators[index].id);
        self.log(format!("{id} is accepted by coordinator {index}: {slug}, {words} words"));
        if self.chance(15) {
            let pause = self.rng.random_range(0..30_000);
            self.after(pause, Event::Cancel(id));
        }
        if self.chance(20) {
            let pause = self.rng.random_range(0..20_000);
            self.after(pause, Event::HangUp(id));
        }
        if self.is_stormy() && self.chance(15) {
            // The reply to the commit is lost: the job is stored and nothing runs it yet.
            self.totals.lost_replies += 1;
            self.log(format!("{id} has no runner"));
            self.release(index, key);
            return;
        }
        let log = Arc::new(Log::new(job.head.clone()));
        let cargo = self.catalogue.get(job.workload.as_str()).cloned();
        let machine = Machine::new(job, log.clone(), cargo, TERMS, now);
        self.spawn(index, id, machine, log, (0, 0));
    }

    fn cancel(&mut self, job: JobId) {
        if self.database.rows.get(&job).is_none_or(|row| row.job.status.is_final()) {
            return;
        }
        let executes = |one: &Coordinator| one.is_alive && one.jobs.contains_key(&job);
        match self.coordinators.iter().position(executes) {
            Some(index) => {
                // Every second one is an operator's, by its time: drawing another number would change what each seed does.
                let canceller = if self.now.is_multiple_of(2) {
                    Canceller::Operator { account: OPERATOR, reason: "abuse".to_owned() }
                } else {
                    Canceller::Consumer
                };
                self.input(index, job, Input::Cancel(canceller));
            }
            None => self.after(1_000, Event::Cancel(job)),
        }
    }

    fn client_reads(&mut self, index: usize, job: JobId, log: &Log) {
        let Some((client, at)) = self.clients.get_mut(&job).filter(|(client, _)| client.is_connected) else {
            return;
        };
        if *at.get_or_insert(index) == index {
            client.read(&log.events());
        }
    }

    // Coordinators

    fn spawn(&mut self, index: usize, id: JobId, machine: Machine, log: Arc<Log>, published: (u64, u64)) {
        let running = Running {
            machine,
            log,
            inputs: VecDeque::new(),
            effects: VecDeque::new(),
            is_writing: false,
            wanted: None,
            published: Some(published),
        };
        self.coordinators[index].jobs.insert(id, running);
        self.input(index, id, Input::Begin);
    }

    fn input(&mut self, index: usize, job: JobId, input: Input) {
        let is_fenced = self.is_fenced(index);
        let Some(running) = self.coordinators[index].jobs.get_mut(&job) else {
            if let Input::Placed { key, .. } = input {
                self.release(index, key);
            }
            return;
        };
        if matches!(input, Input::Output { .. }) && is_fenced {
            return;
        }
        running.inputs.push_back(input);
        self.pump(index, job);
    }

    fn is_fenced(&self, index: usize) -> bool {
        self.defect != Some(Defect::NoFence) && self.coordinators[index].peers.is_fenced(self.instant())
    }

    /// Gives a machine its inputs until it waits for a write.
    fn pump(&mut self, index: usize, job: JobId) {
        loop {
            let now = self.now_at(index);
            let Some(running) = self.coordinators[index].jobs.get_mut(&job) else { return };
            if running.is_writing {
                break;
            }
            if let Some(effect) = running.effects.pop_front() {
                let is_step = !running.effects.is_empty();
                self.perform(index, job, effect);
                if is_step && self.is_stormy() && self.rng.random_range(0..200) == 0 {
                    // Between two effects of one step.
                    self.totals.kills += 1;
                    return self.stop_coordinator(index);
                }
            } else if let Some(input) = running.inputs.pop_front() {
                let effects = running.machine.step(input, now);
                running.effects.extend(effects);
            } else {
                break;
            }
        }
        let Some(running) = self.coordinators[index].jobs.get(&job) else { return };
        let (log, is_over) = (running.log.clone(), running.machine.is_over() && !running.is_writing);
        self.client_reads(index, job, &log);
        if is_over {
            self.publish_job(index, job);
            self.coordinators[index].jobs.remove(&job);
            if let Some((_, at)) = self.clients.get_mut(&job) {
                at.take_if(|at| *at == index);
            }
        }
    }

    fn perform(&mut self, index: usize, job: JobId, effect: Effect) {
        let life = self.coordinators[index].life;
        match effect {
            Effect::Write(write) => {
                if let Some(running) = self.coordinators[index].jobs.get_mut(&job) {
                    running.is_writing = true;
                }
                if let (Some(Defect::EarlyCancel), Write::End(end)) = (self.defect, &write)
                    && let Some(host) = end.job.host
                {
                    self.send_to_host(index, host, Message::Cancel { key: end.job.key() });
                }
                let is_slow = self.is_stormy() && self.chance(5);
                let delay =
                    if is_slow { self.rng.random_range(100..12_000) } else { self.rng.random_range(1..20) };
                let mut write = Box::new(write);
                if let Write::End(end) = &mut *write {
                    self.database.find_earners(end);
                }
                self.after(delay, Event::Apply { coordinator: index, life, job, write });
            }
            Effect::Offer { host, assignment } => {
                let key = assignment.key;
                self.offered.insert(key);
                self.check_overlap(index, host, key);
                self.send_to_host(index, host, Message::Offer { assignment, from: index });
                self.after(2_000, Event::OfferTimeout { coordinator: index, life, key });
            }
            Effect::SendCancel { host, key, .. } => self.send_to_host(index, host, Message::Cancel { key }),
            Effect::Reply { host, reply, .. } => {
                let key = self
                    .islands
                    .iter()
                    .find(|island| island.host == host)
                    .and_then(|island| island.attempts.keys().find(|key| key.job_id == job).copied());
                if let Some(key) = key {
                    self.send_to_host(index, host, Message::OutputReply { key, reply });
                }
            }
            Effect::Place { key, history, .. } => {
                if let Some(running) = self.coordinators[index].jobs.get_mut(&job) {
                    running.wanted = Some((key, history));
                }
                self.place(index, job);
            }
            Effect::Release { key, .. } => self.release(index, key),
            Effect::Observe { host, conduct } => {
                let slug = &self.database.rows[&job].job.workload;
                self.coordinators[index].fleet.observe(host, slug, conduct, self.instant());
            }
            Effect::ShowEnd(end) => {
                if let Some(running) = self.coordinators[index].jobs.get(&job) {
                    running.log.append_end(end);
                }
            }
            Effect::CountLoss(_) => self.check_offered(index, job),
            Effect::RecordStart { key, .. } => {
                // Such writes wait for others.
                let delay = self.rng.random_range(0..500);
                self.after(delay, Event::RecordStart { coordinator: index, life, key });
            }
            Effect::Accepted
            | Effect::CreditKarma { .. }
            | Effect::Compare { .. }
            | Effect::ReportFile { .. } => {}
        }
    }

    /// Claims the best Island for an attempt.
    fn claim_best(
        &mut self,
        index: usize,
        slug: &str,
        key: AttemptKey,
        history: &PlacementHistory,
    ) -> Option<HostId> {
        let cargo = self.catalogue.get(slug).expect("a Cargo").spec.clone();
        let now = self.instant();
        let coordinator = &mut self.coordinators[index];
        let host = coordinator.fleet.place(&cargo, key, history, now).ok()?;
        coordinator.claims.insert(key, host);
        Some(host)
    }

    fn release(&mut self, index: usize, key: AttemptKey) {
        if let Some(host) = self.coordinators[index].claims.remove(&key) {
            self.coordinators[index].fleet.release(host, key);
        }
    }

    /// Verifies that no other Island executes an earlier attempt of a job that is offered, and may publish its output. A
    /// coordinator that does not know yet that it lost the job may confirm the earlier one: two faults at once.
    fn check_overlap(&mut self, index: usize, host: HostId, key: AttemptKey) {
        let is_confirmed = |(other, one): (usize, &Coordinator)| {
            other != index && one.is_alive && one.jobs.contains_key(&key.job_id)
        };
        if self.coordinators.iter().enumerate().any(is_confirmed) {
            return;
        }
        let executes = |island: &&Island| {
            island.host != host && island.executes_before(key.job_id, key.attempt, self.now)
        };
        if let Some(island) = self.islands.iter().find(executes) {
            self.broken.get_or_insert(format!("{} executes an earlier attempt than {key}", island.host));
        }
    }

    /// Verifies that an attempt that is taken away from its Island was offered to it.
    fn check_offered(&mut self, index: usize, job: JobId) {
        let Some(running) = self.coordinators[index].jobs.get(&job) else { return };
        let Some((host, key)) = running.machine.attempt() else { return };
        let is_untouched = running.log.next() == running.machine.job().first_event;
        if is_untouched && !self.offered.contains(&key) {
            self.broken.get_or_insert(format!("{host} lost {key}, which it was never offered"));
        }
    }

    fn place(&mut self, index: usize, job: JobId) {
        let now = self.instant();
        let Some(running) = self.coordinators[index].jobs.get(&job) else { return };
        let Some((key, mut history)) = running.wanted.clone() else { return };
        history.refused.retain(|_, until| *until > now);
        let slug = running.machine.job().workload.clone();
        let host = self.claim_best(index, slug.as_str(), key, &history);
        let Some(running) = self.coordinators[index].jobs.get_mut(&job) else { return };
        let input = match host {
            Some(host) => {
                running.wanted = None;
                Input::Placed { hosts: Hosts::one(host), key }
            }
            None => Input::NoIsland { reasons: BTreeMap::from([("no_slot".to_owned(), 1)]) },
        };
        if let Some(running) = self.coordinators[index].jobs.get_mut(&job) {
            running.inputs.push_back(input);
        }
    }

    /// A write reaches the database, even if its sender was killed meanwhile.
    fn apply(&mut self, coordinator: usize, life: u32, job: JobId, write: Box<Write>) {
        let is_away = self.coordinators[coordinator].no_database_until > self.now;
        let is_lost = is_away || (self.is_stormy() && self.chance(3));
        let is_same_life = self.coordinators[coordinator].life == life;
        if is_lost {
            self.totals.lost_writes += 1;
            if is_same_life && self.coordinators[coordinator].is_alive {
                let pause = self.rng.random_range(50..2_000);
                self.after(pause, Event::Apply { coordinator, life, job, write });
            }
            return;
        }
        if !is_same_life {
            // The connection ended with the process that sent it.
            return;
        }
        let outcome = self.database.write(&write, self.coordinators[coordinator].id);
        self.log(format!("coordinator {coordinator} writes {job}: {outcome:?}"));
        let is_attempt = matches!(*write, Write::Attempt(AttemptWrite { host: Some(_), .. }));
        if is_attempt && self.is_stormy() && self.chance(3) {
            // Between the commit of an attempt and its offer.
            self.totals.kills += 1;
            return self.stop_coordinator(coordinator);
        }
        if self.is_stormy() && self.chance(4) {
            self.totals.lost_replies += 1;
            let pause = self.rng.random_range(50..2_000);
            return self.after(pause, Event::Apply { coordinator, life, job, write });
        }
        let written = match outcome {
            Outcome::Committed(earned) => Written::Committed { earned },
            Outcome::Superseded => Written::Superseded,
        };
        let delay = self.rng.random_range(1..20);
        self.after(delay, Event::Written { coordinator, life, job, written });
    }

    fn written(&mut self, index: usize, job: JobId, written: Written) {
        let now = self.now_at(index);
        let Some(running) = self.coordinators[index].jobs.get_mut(&job) else { return };
        running.is_writing = false;
        let effects = running.machine.step(Input::Written(written), now);
        for effect in effects.into_iter().rev() {
            running.effects.push_front(effect);
        }
        self.pump(index, job);
    }

    fn connectivity(&self, index: usize) -> Connectivity {
        let (since, until) = self.cuts[index];
        let is_noticed = until > self.now && self.now - since >= PING_MS;
        let resumed = self.coordinators[index].connected_since.min(self.now);
        Connectivity { connected: !is_noticed, since: self.start + Duration::from_millis(resumed) }
    }

    fn tick(&mut self, index: usize) {
        let connectivity = self.connectivity(index);
        let jobs: Vec<_> = self.coordinators[index].jobs.keys().copied().collect();
        for job in jobs {
            if self.defect == Some(Defect::StallBySilence) {
                self.lose_silent(index, job);
            }
            let reads = |(client, at): &(Client, Option<usize>)| {
                client.is_connected && at.is_none_or(|at| at == index)
            };
            let has_readers = self.clients.get(&job).is_some_and(reads);
            self.place(index, job);
            let applied_until = self.instant();
            self.input(index, job, Input::Tick { connectivity, applied_until, has_readers });
        }
    }

    /// What a coordinator once did when it had no renewal for the time of two.
    fn lose_silent(&mut self, index: usize, job: JobId) {
        let Some((_, key)) = self.coordinators[index].jobs[&job].machine.attempt() else { return };
        let renewed = *self.coordinators[index].renewals.entry(key).or_insert(self.now);
        if self.now - renewed > 13_000 {
            self.input(index, job, Input::Lost { key });
        }
    }

    /// Begins a round with the other coordinators, unless the last one is not over.
    fn heartbeat(&mut self, index: usize) {
        self.reconcile(index, false);
        let now = self.instant();
        let coordinator = &mut self.coordinators[index];
        if coordinator.round.is_none() {
            coordinator.round = Some(coordinator.peers.step(peers::Input::Due, now).into());
            self.continue_round(index);
        }
    }

    /// A statement takes its time to reach the database.
    fn continue_round(&mut self, index: usize) {
        let is_slow = self.is_stormy() && self.chance(5);
        let delay = if is_slow { self.rng.random_range(100..12_000) } else { self.rng.random_range(1..20) };
        self.after(delay, Event::Round(index, self.coordinators[index].life));
    }

    /// Performs the next statement of a round. One that fails ends the round.
    fn round(&mut self, index: usize) {
        let is_away = self.coordinators[index].no_database_until > self.now;
        let is_lost = is_away || (self.is_stormy() && self.chance(3));
        let (now, id) = (self.instant(), self.coordinators[index].id);
        let effect = self.coordinators[index].round.as_mut().and_then(VecDeque::pop_front);
        // A takeover is handed to another task without a statement.
        let is_handed_over = matches!(effect, Some(peers::Effect::TakeOver { .. }));
        let Some(effect) = effect.filter(|_| !is_lost || is_handed_over) else {
            self.coordinators[index].round = None;
            return;
        };
        let result = match effect {
            peers::Effect::Beat => {
                let is_registered = self.database.beat(id);
                if self.is_stormy() && self.chance(3) {
                    // The counter is written and the reply is lost.
                    self.coordinators[index].round = None;
                    return;
                }
                Some(peers::Input::Beaten { is_registered })
            }
            peers::Effect::List => Some(peers::Input::Listed { rows: self.database.heartbeats() }),
            peers::Effect::TakeOver { silent, share } => {
                let is_slow = self.is_stormy() && self.chance(5);
                let delay =
                    if is_slow { self.rng.random_range(100..12_000) } else { self.rng.random_range(1..20) };
                let life = self.coordinators[index].life;
                self.after(delay, Event::TakeOver { coordinator: index, life, silent, share });
                None
            }
            peers::Effect::Stop => {
                self.log(format!("coordinator {index} was removed"));
                return self.stop_coordinator(index);
            }
        };
        let coordinator = &mut self.coordinators[index];
        let effects = result.map(|result| coordinator.peers.step(result, now)).unwrap_or_default();
        if let Some(round) = &mut coordinator.round {
            round.extend(effects);
            if round.is_empty() {
                coordinator.round = None;
            } else {
                self.continue_round(index);
            }
        }
    }

    /// A takeover reaches the database.
    fn take_over(&mut self, index: usize, silent: Vec<PeerHeartbeat>, share: &Share) {
        let is_away = self.coordinators[index].no_database_until > self.now;
        let is_lost = is_away || (self.is_stormy() && self.chance(3));
        let has_others = (!is_lost).then(|| {
            for silent in silent {
                self.log(format!("coordinator {index} removes {}", silent.id));
                self.database.remove(silent);
            }
            let (taken, has_others) = self.database.adopt(self.coordinators[index].id, share);
            if taken > 0 {
                self.log(format!("coordinator {index} takes {taken} jobs over"));
                self.totals.adoptions += taken;
                self.reconcile(index, true);
            }
            has_others
        });
        let now = self.instant();
        self.coordinators[index].peers.step(peers::Input::TakenOver { has_others }, now);
    }

    /// Resumes the open jobs of a coordinator that have no runner.
    fn reconcile(&mut self, index: usize, is_first: bool) {
        if self.defect == Some(Defect::NoReconciliation) && !is_first {
            return;
        }
        for job in self.database.open(self.coordinators[index].id) {
            if !self.coordinators[index].jobs.contains_key(&job) {
                self.resume(index, job);
            }
        }
    }

    fn resume(&mut self, index: usize, id: JobId) {
        let now = self.now_at(index);
        let mut job = self.database.rows[&id].job.clone();
        if job.host.is_some() && job.status != JobStatus::Running {
            job.status = JobStatus::Queued;
        }
        let stream = self.streams.entry(id).or_default();
        let last = stream.events.last().map_or(0, |event| event.n);
        let events = joined(job.head.clone(), stream.events.clone());
        let published = (last.min(events.len() as u64), stream.sequence);
        let log = Arc::new(Log::new(events));
        if let Some(host) = job.host {
            let cargo = self.catalogue.get(job.workload.as_str()).expect("a Cargo").spec.clone();
            self.coordinators[index].fleet.claim(host, job.key(), &cargo);
            self.coordinators[index].claims.insert(job.key(), host);
        }
        self.log(format!("coordinator {index} resumes {id} with {} events", log.next() - 1));
        let cargo = self.catalogue.get(job.workload.as_str()).cloned();
        let mut machine = Machine::resumed(job, log.clone(), cargo, TERMS, now);
        if self.defect == Some(Defect::ContinuedLog) {
            machine.assume_complete_log();
        }
        if self.defect == Some(Defect::NoSecondOffer) {
            machine.assume_accepted(now);
        }
        self.spawn(index, id, machine, log, published);
    }

    fn publish(&mut self, index: usize) {
        if self.is_cut(index) {
            return;
        }
        let jobs: Vec<_> = self.coordinators[index].jobs.keys().copied().collect();
        for job in jobs {
            self.publish_job(index, job);
        }
    }

    fn publish_job(&mut self, index: usize, job: JobId) {
        if self.is_fenced(index) || self.is_cut(index) {
            return;
        }
        let own = self.coordinators[index].id;
        let is_away = self.coordinators[index].no_database_until > self.now;
        let Some(running) = self.coordinators[index].jobs.get_mut(&job) else { return };
        let Some((last, sequence)) = running.published else { return };
        let chunk: Vec<_> = running.log.events().into_iter().filter(|event| event.n > last).collect();
        let Some(end) = chunk.last().map(|event| event.n) else { return };
        let stream = self.streams.entry(job).or_default();
        if stream.sequence == sequence {
            stream.events.extend(chunk);
            stream.sequence += 1;
            running.published = Some((end, stream.sequence));
        } else if stream.sequence == 0 {
            // The stream was emptied: all events follow.
            running.published = Some((0, 0));
        } else if !is_away {
            let is_ours = self.database.rows[&job].coordinator == own;
            let stored = stream.events.last().map_or(0, |event| event.n);
            running.published = is_ours.then_some((last.max(stored.min(end)), stream.sequence));
        }
    }

    // The end

    /// Verifies what the network promises, once everything has settled.
    pub(super) fn check(&mut self) -> Result<(), String> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let jobs: Vec<_> = self.words.keys().copied().collect();
        for job in jobs {
            self.check_job(job).map_err(|broken| format!("{job}: {broken}"))?;
        }
        let sum: MicroCredits = self.database.books.values().copied().sum();
        if sum != MicroCredits::ZERO {
            return Err(format!("the books add up to {sum}"));
        }
        for (book, amount) in &self.database.books {
            let is_wrong = match book {
                Book::Issue => false,
                Book::Holds(_) => *amount != MicroCredits::ZERO,
                Book::Balance(_) | Book::Payouts => *amount < MicroCredits::ZERO,
            };
            if is_wrong {
                return Err(format!("{book} has {amount}"));
            }
        }
        for island in self.islands.iter().filter(|island| island.is_alive) {
            if !island.attempts.is_empty() {
                return Err(format!("{} still executes {:?}", island.host, island.attempts.keys()));
            }
        }
        for coordinator in self.coordinators.iter().filter(|one| one.is_alive) {
            if !coordinator.jobs.is_empty() || !coordinator.claims.is_empty() {
                return Err(format!("{} still has jobs or claims: {:?}", coordinator.id, coordinator.claims));
            }
        }
        Ok(())
    }

    fn check_job(&mut self, id: JobId) -> Result<(), String> {
        let row = &self.database.rows[&id];
        let ends = self.database.ends.get(&id).copied().unwrap_or(0);
        if ends != 1 {
            return Err(format!("{ends} ends, status {}", row.job.status));
        }
        let whole = island::text(self.words[&id]);
        let text = Client::text(&row.events);
        if !whole.starts_with(&text) {
            return Err(format!("the text is {text:?}"));
        }
        let output = row.job.end.as_ref().and_then(|end| end.output.as_ref());
        match row.job.status {
            JobStatus::Completed => {
                if text != whole || output != Some(&Value::String(whole)) {
                    return Err(format!("completed with {text:?}"));
                }
                self.totals.completed += 1;
            }
            JobStatus::Failed => self.totals.failed += 1,
            JobStatus::Cancelled => self.totals.cancelled += 1,
            JobStatus::Timeout => self.totals.timeout += 1,
            status => return Err(format!("it is still {status}")),
        }
        let error = row.job.end.as_ref().and_then(|end| end.error.as_ref());
        let is_by_operator = error.is_some_and(|error| error.code == CANCELLED_BY_OPERATOR);
        let recorded = self.database.recorded.get(&id).copied().unwrap_or(0);
        if recorded != u32::from(is_by_operator) || (is_by_operator && row.job.status != JobStatus::Cancelled)
        {
            return Err(format!(
                "the audit log has {recorded} entries, and it ended as {}: {error:?}",
                row.job.status
            ));
        }
        self.totals.cancelled_by_operator += u32::from(is_by_operator);
        let used = row.job.end.as_ref().and_then(|end| end.usage.credits_used);
        let settled = self.database.settled.get(&id).copied().unwrap_or(MicroCredits::ZERO);
        if used != Some(settled) {
            return Err(format!("credits_used is {used:?}, and the books have {settled}"));
        }
        let is_smooth = self.profile != Profile::Storm;
        if is_smooth && !matches!(row.job.status, JobStatus::Completed | JobStatus::Cancelled) {
            return Err(format!("it ended as {} without a cause", row.job.status));
        }
        if is_smooth && row.job.attempt > 1 {
            return Err(format!("it has {} attempts without a cause", row.job.attempt));
        }
        let (end, others) = row.events.split_last().ok_or("no events")?;
        if !others.iter().map(|event| event.n).eq(1..=others.len() as u64) || !end.event.is_last() {
            return Err("events are not numbered without gaps, or have no end".to_owned());
        }
        let (client, _) = &self.clients[&id];
        let mut is_lost = false;
        for received in &client.received {
            match row.events.iter().find(|stored| stored.n == received.n) {
                Some(stored) if stored != received => {
                    return Err(format!("a client received {received:?}, and SQL has {stored:?}"));
                }
                Some(_) => {}
                None => is_lost = true,
            }
        }
        if is_lost && row.job.status == JobStatus::Completed {
            return Err("a client received events of a completed job that SQL has not".to_owned());
        }
        // A client that continues after the last event that it has gets the end.
        let last = client.received.last().filter(|last| !last.event.is_last());
        if last.is_some_and(|last| last.n >= end.n) {
            return Err("the end has a number that a client has seen".to_owned());
        }
        Ok(())
    }
}

impl Coordinator {
    fn new(
        id: InstanceId,
        life: u32,
        now: Instant,
        skew_ms: i64,
        owners: &BTreeMap<HostId, AccountId>,
    ) -> Self {
        let fleet = Fleet::new(OFFLINE_AFTER);
        for (host, account) in owners {
            let enrolled = Enrolled::new(*host, *account, String::new(), host.to_string());
            let capabilities = Some(Arc::new(island::capabilities()));
            fleet.enroll(Enrolled { capabilities, ..enrolled });
        }
        Self {
            id,
            life,
            is_alive: true,
            frozen_until: 0,
            no_database_until: 0,
            skew_ms,
            steady_skew_ms: skew_ms,
            fleet,
            jobs: BTreeMap::new(),
            peers: Peers::new(id, TAKEOVER, true, now),
            round: None,
            claims: BTreeMap::new(),
            renewals: BTreeMap::new(),
            connected_since: 0,
        }
    }
}
