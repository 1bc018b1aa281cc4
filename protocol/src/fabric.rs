//! The messages on NATS, in JSON, because people read them with `island sail subscribe`.
//!
//! Signed messages carry the signature in the header [`SIGNATURE_HEADER`] over [`signed_bytes`], so that the payload
//! stays plain. `sent_at` limits replays.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    artifact::Artifact,
    cargo::CargoSpec,
    credits::MicroCredits,
    event::{AttemptEvent, JobEvent, Numbered},
    host::{Capabilities, ControlState, GpuLoad, Headroom, HostModel, Order, RunningJob, SystemLoad},
    ids::{AttemptKey, HostId, InstanceId, JobId, Slug},
    job::FailureCode,
    time::Timestamp,
    version::Versions,
};

/// Header with the base64 Ed25519 signature of [`signed_bytes`].
pub const SIGNATURE_HEADER: &str = "Island-Signature";

/// Maximum difference between `sent_at` and now; beyond it, a signed message is rejected as a replay.
pub const SIGNATURE_WINDOW_MS: i64 = 120_000;

/// Returns the bytes that a signature covers; they include the subject, so that a message cannot be replayed on another one.
pub fn signed_bytes(subject: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(subject.len() + 1 + payload.len());
    bytes.extend_from_slice(subject.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(payload);
    bytes
}

/// What the form of [`Register`] keeps in every version: it is read first, so that versions are agreed on before anything else of the
/// message has to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Message version.
    pub v: u32,
    /// The Island.
    pub host_id: HostId,
    /// Instance of the agent.
    pub instance: InstanceId,
    /// Versions that the agent speaks; `v` alone if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Whether the agent reads [`Registered::refused`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_refusals: bool,
    /// Time of signing.
    pub sent_at: Timestamp,
}

/// `coordinator.hosts.register`, a signed request: an Island registers, or registers again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// Message version.
    pub v: u32,
    /// The Island.
    pub host_id: HostId,
    /// Instance of the agent: one run of the program.
    pub instance: InstanceId,
    /// Name its owner gave it.
    pub name: String,
    /// Region that the Island reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Version of the agent.
    pub agent_version: String,
    /// Hardware and engines of the Island.
    pub capabilities: Capabilities,
    /// Attempts that the Island still holds, so that a restarted coordinator can continue them.
    #[serde(default)]
    pub holding: Vec<AttemptKey>,
    /// Versions of the messages that the agent speaks; `v` alone if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Whether the agent reads [`Registered::refused`]. An older one would take such an answer as a registration, and gets none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads_refusals: bool,
    /// Time of signing.
    pub sent_at: Timestamp,
}

/// Answer to [`Register`]. Its form is the same in every version. An Island that has no version in common with the coordinator gets it as well,
/// and is not registered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// Message version.
    pub v: u32,
    /// Versions of the messages that the coordinator speaks; `v` alone if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Milliseconds between heartbeats.
    pub heartbeat_ms: u64,
    /// Duration of a lease in milliseconds, counted from the time at which the renewing request was sent.
    pub lease_ms: u64,
    /// Attempts of [`Register::holding`] that no coordinator waits for: stop them and discard their events.
    #[serde(default)]
    pub drop: Vec<AttemptKey>,
    /// Whether another agent with the same identity has registered since, so that this one gets no jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// Why this registration has no effect, for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why the last heartbeat could not be read, so that this Island gets no jobs; for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_heartbeat: Option<String>,
}

/// `host.<id>.heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Message version.
    pub v: u32,
    /// The Island.
    pub host_id: HostId,
    /// Instance of the agent.
    pub instance: InstanceId,
    /// Sequence number within the instance, from 1.
    pub seq: u64,
    /// `online`, or `draining` when no new work is accepted.
    pub status: String,
    /// Version of the agent.
    pub agent_version: String,
    /// Load of the machine.
    pub system: SystemLoad,
    /// Load of each GPU.
    #[serde(default)]
    pub gpus: Vec<GpuLoad>,
    /// Jobs on the Island.
    #[serde(default)]
    pub jobs: Vec<RunningJob>,
    /// Models on the Island, loaded or on disk.
    #[serde(default)]
    pub models: Vec<HostModel>,
    /// Remaining capacity.
    pub headroom: Headroom,
    /// Whether the owner's account may give it orders, and the order that applies; older agents do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlState>,
    /// Jobs that the Island refused since its agent started, by reason; older agents do not report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusalCount>,
    /// Time of sending.
    pub timestamp: Timestamp,
}

/// How often an Island refused a job for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalCount {
    /// The reason.
    pub reason: RefusalReason,
    /// Number of refusals since the agent started.
    pub times: u64,
    /// The latest message, at most [`Self::MAX_LATEST`] characters.
    pub latest: String,
}

impl RefusalCount {
    /// Maximum length of a message, characters.
    pub const MAX_LATEST: usize = 200;
}

/// `host.<id>.jobs`, a signed request: run this attempt. Answered at once with [`AssignmentReply`]. A sender may have the input in encoded form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment<I = Value> {
    /// Message version.
    pub v: u32,
    /// The attempt, with its fencing number.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// The run of the agent that is meant. Others, whose machine has a copy of the Island's identity, ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// Number of the attempt's first event in the job's sequence.
    pub first_event: u64,
    /// The Cargo and its files.
    pub cargo: CargoSpec,
    /// Input, already validated against the Cargo's schema.
    pub input: I,
    /// Text that earlier attempts delivered: the reply continues after it and does not repeat it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// Reasoning that earlier attempts delivered before that text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues_reasoning: Option<String>,
    /// Opaque name under which jobs of one account may share state such as prompt prefixes.
    pub scope: String,
    /// Whether the worker must exit afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// When the job times out.
    pub deadline: Timestamp,
    /// Time of signing.
    pub sent_at: Timestamp,
}

/// Answer to [`Assignment`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentReply {
    /// Message version.
    pub v: u32,
    /// Whether the Island runs the attempt.
    pub accepted: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

/// Why an Island rejects an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Code for a program.
    pub reason: RefusalReason,
    /// Message for a person.
    pub message: String,
}

/// Reason of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// All job slots are in use.
    NoSlot,
    /// Not enough main memory.
    NoRam,
    /// Not enough GPU memory.
    NoVram,
    /// Not enough disk for the files.
    NoDisk,
    /// The engine is not available here.
    NoRuntime,
    /// No new work is accepted.
    Draining,
    /// The sandbox is too weak for jobs of other people.
    WeakSandbox,
    /// The owner's settings exclude this Cargo.
    NotAllowed,
    /// The message is malformed, unsigned, stale or of an older epoch.
    Invalid,
    /// A reason newer than this build.
    #[serde(other)]
    Other,
}

/// `host.<id>.status`: progress of an attempt, for people and dashboards; contains no input and no output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Message version.
    pub v: u32,
    /// The attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// `preparing`, `started`, `completed`, `failed`.
    pub state: String,
    /// Code of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// Time of the change.
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
    /// The attempt.
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
    /// The end is in SQL, or the attempt is no longer relevant: its events may be discarded.
    pub committed: bool,
    /// Events from this number on are missing: send them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_from: Option<u64>,
    /// Credits for the Island's owner; absent if the end was already committed before this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earned: Option<MicroCredits>,
}

/// `coordinator.hosts.lease`, a signed request: these attempts are still running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRenewal {
    /// Message version.
    pub v: u32,
    /// The Island.
    pub host_id: HostId,
    /// Instance of the agent.
    pub instance: InstanceId,
    /// The attempts.
    pub jobs: Vec<LeasedJob>,
    /// Time of signing.
    pub sent_at: Timestamp,
}

/// One attempt in a [`LeaseRenewal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedJob {
    /// The attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// Current phase: `fetch`, `load`, `prompt`, `run`, `ended`. Stalls are detected per phase.
    pub phase: String,
    /// Work counter of that phase; if it stops growing, the attempt is stalled.
    pub work: u64,
    /// Number of the last event emitted; the coordinator requests what it has not received.
    pub last_event: u64,
}

/// Answer to [`LeaseRenewal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReply {
    /// Message version.
    pub v: u32,
    /// One answer for each attempt that this coordinator executes. Each of several coordinators answers for its own.
    pub leases: Vec<Lease>,
}

/// Whether one attempt continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// If false: stop, publish nothing more and discard the attempt.
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
    /// The attempt.
    #[serde(flatten)]
    pub key: AttemptKey,
    /// Reason of the cancellation.
    pub code: FailureCode,
}

/// `host.<id>.preload`, signed: download these files when there is space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// Message version.
    pub v: u32,
    /// The Cargo.
    pub workload_slug: Slug,
    /// Its files.
    pub artifacts: Vec<Artifact>,
    /// Time of signing. Islands do not follow a hint without it, which could have been recorded at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
}

/// `host.<id>.control`, a signed request: an order of the owner's account. Answered with [`ControlReply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Message version.
    pub v: u32,
    /// The order.
    pub order: Order,
    /// Time of signing. An order that is older than the last one changes nothing.
    pub sent_at: Timestamp,
}

/// Answer to [`Control`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlReply {
    /// Message version.
    pub v: u32,
    /// Whether the order is stored on the Island.
    pub accepted: bool,
    /// What applies there now.
    pub control: ControlState,
    /// Why the order was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Answer to a request on `host.<id>.ping`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Message version.
    pub v: u32,
    /// The Island.
    pub host_id: HostId,
    /// Instance of the agent.
    pub instance: InstanceId,
}

/// `job.<id>.events`: events of the job's sequence, published only by the coordinator that executes the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvents {
    /// Message version.
    pub v: u32,
    /// The job.
    pub job_id: JobId,
    /// Consecutive events.
    pub events: Vec<Numbered<JobEvent>>,
}
