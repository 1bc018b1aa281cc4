//! Bodies of HTTP requests and answers. No I/O, no clock, no randomness.
//!
//! The crate's root has what is in many answers, jobs, Islands and accounts; the modules have the rest:
//!
//! | module | content |
//! | --- | --- |
//! | [`problem`] | the error body and its stable codes |
//! | [`preferences`] | which Islands and models may serve a request |
//! | [`key`], [`quota`], [`signup`] | API keys, quotas, invitations and sign-in |
//! | [`usage`], [`ledger`], [`statement`], [`payout`] | what accounts used, earned and were paid |
//! | [`market`], [`network`], [`advice`], [`alert`], [`recommendation`] | prices, the network, and advice and alerts for owners |
//! | [`claim`] | what an Island signs of its requests |
//! | [`publication`] | Cargos that accounts publish |
//! | [`webhook`] | events that are sent to addresses of accounts |
//! | [`admin`] | what operators read and change |
//! | [`chat`], [`completions`], [`responses`], [`images`], [`audio`], [`speech`], [`moderations`], [`model`], [`mod@file`], [`batch`] | OpenAI's API |
//! | [`messages`] | Anthropic's API |
//! | [`rerank`] | Cohere's and Jina's API |
//!
//! Types that travel on the fabric as well, such as ids, job events and an Island's hardware, are in `island-protocol`. An agent reads a few of
//! these bodies; engines and workers read none, and are not rebuilt for them.
//!
//! With the feature `openapi`, the types implement `schemars::JsonSchema`.

pub mod admin;
pub mod advice;
pub mod alert;
pub mod audio;
pub mod batch;
pub mod chat;
pub mod claim;
pub mod completions;
pub mod file;
pub mod images;
pub mod key;
pub mod ledger;
pub mod market;
pub mod messages;
pub mod model;
pub mod moderations;
pub mod network;
pub mod payout;
pub mod preferences;
pub mod problem;
pub mod publication;
pub mod quota;
pub mod recommendation;
pub mod rerank;
pub mod responses;
pub mod signup;
pub mod speech;
pub mod statement;
pub mod usage;
pub mod webhook;

use island_protocol::{
    cargo::CargoEntry,
    credits::MicroCredits,
    host::{Capabilities, ControlState},
    ids::{AccountId, HostId, JobId, Nonce, Slug},
    job::{JobStatus, Usage, present},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::{
    claim::{Claim, ClaimVerb},
    preferences::Preferences,
};

/// Path prefix of all HTTP routes.
pub const PREFIX: &str = "/api/v1";

/// The envelope of single resources and lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema), schemars(inline))]
pub struct Data<T> {
    /// The resource, or the list.
    pub data: T,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema), schemars(inline))]
pub struct Page<T> {
    /// The entries.
    pub data: Vec<T>,
    /// Position of the page in the list.
    pub meta: PageMeta,
}

/// Position of a page in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PageMeta {
    /// Total number of entries.
    pub total: u64,
    /// Maximum number of entries in the page, as requested.
    pub limit: u64,
    /// Number of entries skipped.
    pub offset: u64,
}

/// `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Health {
    /// `ok`, or the name of the service that cannot be reached.
    pub status: String,
    /// Version of the coordinator.
    pub version: String,
}

/// `GET /cargos`: the only list without the `data` envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CargoList {
    /// The entries.
    pub cargos: Vec<CargoEntry>,
    /// Number of entries.
    pub count: usize,
}

/// `POST /jobs`. Unknown fields are rejected, so that a misspelled one is not silently ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    /// Slug of a Cargo.
    pub workload: String,
    /// Input that matches the Cargo's input schema.
    pub input: Map<String, Value>,
    /// 0 to 100; jobs with a higher priority are placed first.
    #[serde(default, deserialize_with = "crate::chat::null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<u8>", range(max = 100)))]
    pub priority: u8,
    /// Which Islands may run the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// Answer to `POST /jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SubmittedJob {
    /// The job.
    pub id: JobId,
    /// UUID of the Cargo.
    pub workload_id: i64,
    /// Slug of the Cargo.
    pub workload_slug: Slug,
    /// `submitted`.
    pub status: JobStatus,
    /// The input as stored.
    pub input: Map<String, Value>,
    /// Time of acceptance.
    pub created_at: Timestamp,
}

/// A job in `GET /jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobSummary {
    /// The job.
    pub id: JobId,
    /// Slug of the Cargo.
    pub workload_slug: Slug,
    /// Status of the job.
    pub status: JobStatus,
    /// Time of acceptance.
    pub created_at: Timestamp,
    /// Time of the end.
    pub completed_at: Option<Timestamp>,
    /// Duration of the execution in milliseconds, once the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// `GET /jobs/:id`. Fields whose value is not known yet are absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobView {
    /// The job.
    pub id: JobId,
    /// Slug of the Cargo.
    pub workload_slug: Slug,
    /// Status of the job.
    pub status: JobStatus,
    /// The input as stored.
    pub input: Map<String, Value>,
    /// The joined tokens for text Cargos, otherwise a value that matches the Cargo's output schema.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<Value>"))]
    pub output: Option<Value>,
    /// Resources used and credits charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why the job did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// Why the job is waiting: the number of Islands for each reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Map<String, Value>>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<String>,
    /// Time of acceptance.
    pub created_at: Timestamp,
    /// Time at which an Island first accepted the job. Absent if a coordinator stopped before it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_at: Option<Timestamp>,
    /// Time at which the execution began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time at which the first part of the output arrived. Absent if the output came whole, with the end, or a coordinator stopped before
    /// the time was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_output_at: Option<Timestamp>,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Duration of the execution in milliseconds, once the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Time at which a part of the job's data, its input, output or events, was first deleted. A deleted input is `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_deleted_at: Option<Timestamp>,
}

/// Answer to `DELETE /jobs/:id/data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeletedJobData {
    /// The job.
    pub id: JobId,
    /// Time at which a part of its data was first deleted.
    pub deleted_at: Timestamp,
}

/// `GET /jobs/:id/output`: only the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobOutput {
    /// The job.
    pub id: JobId,
    /// The joined tokens for text Cargos, otherwise a value that matches the Cargo's output schema.
    pub output: Value,
}

/// Why a job did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobError {
    /// Stable code, such as `runtime_crashed`.
    pub code: String,
    /// Message for a person.
    pub message: String,
}

/// Answer to `DELETE /jobs/:id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CancelledJob {
    /// The job.
    pub id: JobId,
    /// `cancelled`.
    pub status: JobStatus,
}

/// `GET /account`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AccountView {
    /// The account.
    pub id: AccountId,
    /// Its e-mail address.
    pub email: String,
    /// Balance minus what running jobs hold.
    pub credits: MicroCredits,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// A Cargo in `GET /workloads` and `GET /workloads/:slug`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WorkloadView {
    /// UUID of the Cargo.
    pub id: i64,
    /// The catalogue entry.
    #[serde(flatten)]
    pub entry: CargoEntry,
    /// Whether jobs for it are accepted.
    pub is_enabled: bool,
    /// JSON Schema of `input`.
    #[serde(default)]
    pub input_schema: Value,
    /// JSON Schema of `output`.
    #[serde(default)]
    pub output_schema: Value,
    /// A valid input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<Value>,
}

/// Answer to `GET /hosts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostList {
    /// The Islands, or a page of them, in the order of their ids.
    pub data: Vec<HostView>,
    /// Position in the list, if the request had a `limit` or an `offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<PageMeta>,
}

/// An Island in `GET /hosts` and `GET /hosts/:id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostView {
    /// The Island.
    pub id: HostId,
    /// Name its owner gave it.
    pub name: String,
    /// `online`, `draining`, `paused`, `suspended` or `offline`.
    pub status: String,
    /// Region that the Island reports.
    pub region: Option<String>,
    /// Hours of successful computation.
    pub karma: f64,
    /// The same value as `karma`, under the name that older clients read.
    pub karma_score: f64,
    /// Tokens per second of the reply in its last check, measured by the coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Hardware and engines of the Island.
    pub capabilities: Option<Capabilities>,
    /// Time of its last message.
    pub last_heartbeat_at: Option<Timestamp>,
}

/// `POST /island/enroll`, with the owner's API key: assigns an Island to an account. `POST /island/pairings`, without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Enroll {
    /// Id that the Island generated at its first start.
    pub host_id: HostId,
    /// Its public NKey, `U…`.
    pub public_key: String,
    /// Name its owner gave it, not only white space.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 64), regex(pattern = r"\S")))]
    pub name: String,
    /// Random; a coordinator accepts it once.
    pub nonce: Nonce,
    /// Time of signing.
    pub sent_at: Timestamp,
    /// Base64 signature by the NKey over `island-VERB:HOST:-:NONCE:TIME`, with the verb `enroll` or `pair`: proves possession of the key.
    pub signature: String,
}

impl Enroll {
    /// What the signature covers if the request is for this verb.
    pub fn claim(&self, verb: ClaimVerb) -> Claim {
        let Self { host_id, nonce, sent_at, .. } = *self;
        Claim { verb, host_id, account_id: None, nonce, sent_at }
    }
}

/// Answer to `POST /island/pairings`: the code that assigns an Island to the account which confirms it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Pairing {
    /// Six letters and digits without I, O, 0 and 1; valid once.
    pub code: String,
    /// Time at which the code expires.
    pub expires_at: Timestamp,
}

/// `POST /hosts/pair`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The code that the Island shows; lower case and dashes are accepted.
    #[cfg_attr(feature = "openapi", schemars(length(min = 6, max = 32)))]
    pub code: String,
}

/// Answer to `POST /hosts/:id/pause`, `/drain` and `/resume`: what applies to the Island now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostControl {
    /// The Island.
    pub host_id: HostId,
    /// The order that applies, and where it was given.
    #[serde(flatten)]
    pub control: ControlState,
}

/// Answer to `POST /island/check`: the progress of a real job on this Island.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct IslandCheck {
    /// Whether the job completed.
    pub passed: bool,
    /// The Cargo of the job; absent if this Island can run none.
    pub workload_slug: Option<Slug>,
    /// The job; absent if none was created.
    pub job_id: Option<JobId>,
    /// The steps, in order.
    pub steps: Vec<CheckStep>,
    /// Tokens per second of its reply, between the first and the last token; absent for Cargos that generate no text.
    pub tokens_per_second: Option<f64>,
    /// The device on which its model ran, as its API and name; absent if the engine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Why the job did not complete.
    pub error: Option<JobError>,
}

/// The first occurrence of a step in a check's job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CheckStep {
    /// `queued`, `accepted`, a phase of preparation, `running`, `output`, or the final status.
    pub name: String,
    /// Milliseconds since the job was created.
    pub after_ms: u64,
}

/// Credentials for the fabric: a user JWT for a key whose seed never leaves the Island.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostCredentials {
    /// Address of the fabric.
    pub nats_url: String,
    /// User JWT bound to the Island's public key.
    pub user_jwt: String,
    /// Time of expiry; renew well before.
    pub expires_at: Timestamp,
    /// Public NKey with which coordinators sign assignments.
    pub coordinator_key: String,
    /// The account that the Island belongs to, for the claims that it signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<AccountId>,
}

/// Answer to `POST /fabric/credentials`: short-lived read access to the fabric for an API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WatchCredentials {
    /// Address of the fabric.
    pub nats_url: String,
    /// User JWT.
    pub user_jwt: String,
    /// Seed of the key that the JWT is bound to; generated for this answer and not stored.
    pub seed: String,
    /// Time of expiry.
    pub expires_at: Timestamp,
    /// Subjects it may subscribe to.
    pub subjects: Vec<String>,
    /// Inbox prefix for JetStream replays, if those are allowed.
    pub inbox_prefix: String,
}
