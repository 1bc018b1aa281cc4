//! The messages on NATS. JSON, because people read them with `island sail subscribe`.
//!
//! Signed messages carry the signature in the header [`SIGNATURE_HEADER`] over [`signed_bytes`], so that the payload
//! stays plain. `sent_at` bounds replays.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    artifact::Artifact,
    cargo::CargoSpec,
    credits::MicroCredits,
    event::{AttemptEvent, JobEvent, Numbered},
    host::{Capabilities, GpuLoad, Headroom, HostModel, RunningJob, SystemLoad},
    ids::{AttemptKey, HostId, InstanceId, JobId, Slug},
    job::FailureCode,
    time::Timestamp,
};

/// Header with the base64 Ed25519 signature of [`signed_bytes`].
pub const SIGNATURE_HEADER: &str = "Island-Signature";

/// How old, or how far ahead, a signed message may be before it is taken for a replay.
pub const SIGNATURE_WINDOW_MS: i64 = 120_000;

/// What a signature covers: the subject too, so that a message cannot be replayed on another one.
pub fn signed_bytes(subject: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(subject.len() + 1 + payload.len());
    bytes.extend_from_slice(subject.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(payload);
    bytes
}

/// `coordinator.hosts.register`, a signed request: an Island is here, or here again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// Message version.
    pub v: u32,
    /// Who.
    pub host_id: HostId,
    /// This run of the agent.
    pub instance: InstanceId,
    /// Name its owner gave it.
    pub name: String,
    /// Where it says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Version of the agent.
    pub agent_version: String,
    /// What it has.
    pub capabilities: Capabilities,
    /// Attempts it still holds, so that a restarted coordinator can take them up again.
    #[serde(default)]
    pub holding: Vec<AttemptKey>,
    /// When it was signed.
    pub sent_at: Timestamp,
}

/// Answer to [`Register`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Message version.
    pub v: u32,
    /// Milliseconds between heartbeats.
    pub heartbeat_ms: u64,
    /// Milliseconds a lease lasts from the send time of the request that renewed it.
    pub lease_ms: u64,
    /// Attempts of [`Register::holding`] that nobody waits for any more: stop them and forget their events.
    #[serde(default)]
    pub drop: Vec<AttemptKey>,
}

/// `host.<id>.heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Message version.
    pub v: u32,
    /// Who.
    pub host_id: HostId,
    /// This run of the agent.
    pub instance: InstanceId,
    /// Counts up from 1 within a run.
    pub seq: u64,
    /// `online`, or `draining` when no new work is taken.
    pub status: String,
    /// Version of the agent.
    pub agent_version: String,
    /// Load of the machine.
    pub system: SystemLoad,
    /// Load per GPU.
    #[serde(default)]
    pub gpus: Vec<GpuLoad>,
    /// Jobs here.
    #[serde(default)]
    pub jobs: Vec<RunningJob>,
    /// Models here, warm and on disk.
    #[serde(default)]
    pub models: Vec<HostModel>,
    /// What may still be started.
    pub headroom: Headroom,
    /// When it was sent.
    pub timestamp: Timestamp,
}

/// `host.<id>.jobs`, a signed request: run this attempt. Answered by [`AssignmentReply`] at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Message version.
    pub v: u32,
    /// Which attempt, with its fencing number.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// Number of the attempt's first event in the job's sequence.
    pub first_event: u64,
    /// The Cargo and its files.
    pub cargo: CargoSpec,
    /// Input, already valid under the Cargo's schema.
    pub input: Value,
    /// Text that earlier attempts delivered: the reply goes on behind it and does not repeat it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// Opaque name under which work of one account may share state such as prompt prefixes.
    pub scope: String,
    /// Whether the worker must exit afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// When the job times out.
    pub deadline: Timestamp,
    /// When it was signed.
    pub sent_at: Timestamp,
}

/// Answer to [`Assignment`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentReply {
    /// Message version.
    pub v: u32,
    /// Whether the Island runs it.
    pub accepted: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

/// Why an Island does not take an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub reason: RefusalReason,
    /// For people.
    pub message: String,
}

/// Reason of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// All job slots are taken.
    NoSlot,
    /// Not enough main memory.
    NoRam,
    /// Not enough GPU memory.
    NoVram,
    /// Not enough disk for the files.
    NoDisk,
    /// The engine is not available here.
    NoRuntime,
    /// Taking no new work.
    Draining,
    /// The walls are too low for strangers' jobs.
    WeakSandbox,
    /// The owner allows no such Cargo.
    NotAllowed,
    /// The message is malformed, unsigned, stale or of an older epoch.
    Invalid,
    /// A reason newer than this build.
    #[serde(other)]
    Other,
}

/// `host.<id>.status`: where an attempt stands, for people and dashboards; carries no input and no output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Message version.
    pub v: u32,
    /// Which attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// `preparing`, `started`, `completed`, `failed`.
    pub state: String,
    /// Code of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// When.
    pub timestamp: Timestamp,
}

/// `host.<id>.output`: events of one attempt, in order.
///
/// The message whose last event is [`AttemptEvent::Ended`] is a request, repeated until an [`OutputReply`] confirms
/// that the end is committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Message version.
    pub v: u32,
    /// Which attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// Consecutive events.
    pub events: Vec<Numbered<AttemptEvent>>,
}

/// Answer to an [`Output`] that ends an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputReply {
    /// Message version.
    pub v: u32,
    /// The end is in SQL, or the attempt is of no interest any more: its events may be forgotten.
    pub committed: bool,
    /// Events from this number on are missing: send them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_from: Option<u64>,
    /// What the Island's owner was credited for the job; absent where the end was committed before this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earned: Option<MicroCredits>,
}

/// `coordinator.hosts.lease`, a signed request: these attempts still run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRenewal {
    /// Message version.
    pub v: u32,
    /// Who.
    pub host_id: HostId,
    /// This run of the agent.
    pub instance: InstanceId,
    /// The attempts.
    pub jobs: Vec<LeasedJob>,
    /// When it was signed.
    pub sent_at: Timestamp,
}

/// One attempt in a [`LeaseRenewal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedJob {
    /// Which attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// What it is doing: `fetch`, `load`, `prompt`, `run`, `ended`. Stalls are judged per phase.
    pub phase: String,
    /// Work done in that phase; a number that stands still is a stall.
    pub work: u64,
    /// Number of the last event emitted; the coordinator asks for what it has not seen.
    pub last_event: u64,
}

/// Answer to [`LeaseRenewal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReply {
    /// Message version.
    pub v: u32,
    /// One answer per attempt that the coordinator can speak for. With several coordinators, each answers for its own.
    pub leases: Vec<Lease>,
}

/// Whether one attempt goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// False: stop, publish nothing more, forget it.
    pub held: bool,
    /// Events from this number on are missing: send them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_from: Option<u64>,
}

/// `host.<id>.cancel`: stop this attempt within one step of its engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// Message version.
    pub v: u32,
    /// Which attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// Why.
    pub code: FailureCode,
}

/// `host.<id>.preload`: fetch these files when there is room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// Message version.
    pub v: u32,
    /// The Cargo.
    pub workload_slug: Slug,
    /// Its files.
    pub artifacts: Vec<Artifact>,
}

/// Answer to a request on `host.<id>.ping`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Message version.
    pub v: u32,
    /// Who.
    pub host_id: HostId,
    /// This run of the agent.
    pub instance: InstanceId,
}

/// `job.<id>.events`: one event of the job's one sequence, published by its owner coordinator alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvents {
    /// Message version.
    pub v: u32,
    /// The job.
    pub job_id: JobId,
    /// Consecutive events.
    pub events: Vec<Numbered<JobEvent>>,
}
