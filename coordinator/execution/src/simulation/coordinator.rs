//! A coordinator: its memory, and a driver of machines that does what [`crate::runner`] does.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use island_protocol::ids::{AttemptKey, HostId, InstanceId, JobId};

use crate::{
    log::Log,
    machine::{Effect, Input, Machine},
};
use island_coordinator_domain::{
    fleet::{Fleet, PlacementHistory},
    peers::{self, Peers},
};

/// A job that a coordinator executes.
#[derive(Debug)]
pub(super) struct Running {
    pub machine: Machine,
    pub log: Arc<Log>,
    pub inputs: VecDeque<Input>,
    pub effects: VecDeque<Effect>,
    /// Whether the result of a write is awaited.
    pub is_writing: bool,
    /// A request for an Island.
    pub wanted: Option<(AttemptKey, PlacementHistory)>,
    /// Last event and sequence number of the stream, as far as this coordinator knows; `None` once another one writes it.
    pub published: Option<(u64, u64)>,
}

#[derive(Debug)]
pub(super) struct Coordinator {
    pub id: InstanceId,
    pub life: u32,
    pub is_alive: bool,
    pub frozen_until: u64,
    /// Until when the database cannot be reached from here.
    pub no_database_until: u64,
    /// Difference between its system clock and the true time, in milliseconds.
    pub skew_ms: i64,
    /// The same when it started: that of the clock that does not follow steps.
    pub steady_skew_ms: i64,
    pub jobs: BTreeMap<JobId, Running>,
    pub peers: Peers,
    /// What is left of a round with the other coordinators, or `None` between two rounds.
    pub round: Option<VecDeque<peers::Effect>>,
    /// The Islands as it knows them.
    pub fleet: Fleet,
    /// What it has claimed of them.
    pub claims: BTreeMap<AttemptKey, HostId>,
    /// When the lease of an attempt was last renewed.
    pub renewals: BTreeMap<AttemptKey, u64>,
    /// When this process could last receive messages after an outage on its side.
    pub connected_since: u64,
}
