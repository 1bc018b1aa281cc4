//! HTTP bodies of `/api/v1`, except chat.

pub mod books;
pub mod key;
pub mod market;
pub mod model;
pub mod network;
pub mod recommendation;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    cargo::CargoEntry,
    credits::MicroCredits,
    host::Capabilities,
    ids::{AccountId, HostId, JobId, Slug},
    job::{JobStatus, Usage},
    time::Timestamp,
};

/// Path prefix of everything over HTTP.
pub const PREFIX: &str = "/api/v1";

/// The wrapping of single resources and lists.
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
    /// Where the page lies.
    pub meta: PageMeta,
}

/// Where a page lies in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct PageMeta {
    /// All entries.
    pub total: u64,
    /// Entries asked for.
    pub limit: u64,
    /// Entries skipped.
    pub offset: u64,
}

/// `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Health {
    /// `ok`, or what is away.
    pub status: String,
    /// Version of the coordinator.
    pub version: String,
}

/// `GET /cargos`: the one list that is not wrapped in `data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CargoList {
    /// The entries.
    pub cargos: Vec<CargoEntry>,
    /// How many.
    pub count: usize,
}

/// `POST /jobs`. Unknown fields are refused, so that a misspelt one is not silently ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    /// Slug of a Cargo.
    pub workload: String,
    /// Input as the Cargo's schema says.
    pub input: Map<String, Value>,
    /// 0 to 100; higher is placed first.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<u8>", range(max = 100)))]
    pub priority: u8,
}

/// Answer to `POST /jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct SubmittedJob {
    /// The job.
    pub id: JobId,
    /// Number of the Cargo.
    pub workload_id: i64,
    /// Slug of the Cargo.
    pub workload_slug: Slug,
    /// `submitted`.
    pub status: JobStatus,
    /// The input as stored.
    pub input: Map<String, Value>,
    /// When.
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
    /// Where it stands.
    pub status: JobStatus,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds of execution, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// `GET /jobs/:id`. Absent means not there yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobView {
    /// The job.
    pub id: JobId,
    /// Slug of the Cargo.
    pub workload_slug: Slug,
    /// Where it stands.
    pub status: JobStatus,
    /// The input as stored.
    pub input: Map<String, Value>,
    /// Joined tokens for text Cargos, otherwise what the Cargo's output schema says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What it used and cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// Why it still waits: number of Islands per reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Map<String, Value>>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it began to execute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Milliseconds of execution, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// `GET /jobs/:id/output`: the output alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobOutput {
    /// The job.
    pub id: JobId,
    /// Joined tokens for text Cargos, otherwise what the Cargo's output schema says.
    pub output: Value,
}

/// Why a job did not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct JobError {
    /// Stable code, such as `runtime_crashed`.
    pub code: String,
    /// For people.
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
    /// Balance less what running jobs hold.
    pub credits: MicroCredits,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A Cargo in `GET /workloads` and `GET /workloads/:slug`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WorkloadView {
    /// Number of the Cargo.
    pub id: i64,
    /// The catalogue entry.
    #[serde(flatten)]
    pub entry: CargoEntry,
    /// Whether jobs for it are taken.
    pub is_enabled: bool,
    /// JSON Schema of `input`.
    #[serde(default)]
    pub input_schema: Value,
    /// JSON Schema of `output`.
    #[serde(default)]
    pub output_schema: Value,
    /// An input that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<Value>,
}

/// An Island in `GET /hosts` and `GET /hosts/:id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostView {
    /// The Island.
    pub id: HostId,
    /// Name its owner gave it.
    pub name: String,
    /// `online`, `draining` or `offline`.
    pub status: String,
    /// Where it says it is.
    pub region: Option<String>,
    /// Hours of successful compute.
    pub karma: f64,
    /// The same under the name older clients read.
    pub karma_score: f64,
    /// Tokens a second that the reply of its last check came with, as the coordinator saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// What it has.
    pub capabilities: Option<Capabilities>,
    /// When it was last heard of.
    pub last_heartbeat_at: Option<Timestamp>,
}

/// `POST /island/enroll`, with the owner's API key: ties an Island to an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Enroll {
    /// Id the Island made at its first start.
    pub host_id: HostId,
    /// Its public NKey, `U…`.
    pub public_key: String,
    /// Name its owner gave it.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 64)))]
    pub name: String,
    /// Moment of signing.
    pub sent_at: Timestamp,
    /// Base64 signature by the NKey over [`credentials_claim`]: proof that the key is the Island's own.
    pub signature: String,
}

/// Answer to `POST /island/pairings`: what an Island's owner types to make it theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Pairing {
    /// Six letters and digits without I, O, 0 and 1; good for once.
    pub code: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// `POST /hosts/pair`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The code that the Island shows; small letters and dashes are forgiven.
    #[cfg_attr(feature = "openapi", schemars(length(min = 6, max = 32)))]
    pub code: String,
}

/// `POST /island/credentials`, without an API key: an enrolled Island renews its fabric credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewCredentials {
    /// The Island.
    pub host_id: HostId,
    /// Moment of signing.
    pub sent_at: Timestamp,
    /// Base64 signature by its NKey over [`credentials_claim`].
    pub signature: String,
}

/// What an Island signs to ask for credentials.
pub fn credentials_claim(host: HostId, sent_at: Timestamp) -> String {
    format!("island-credentials:{host}:{sent_at}")
}

/// `POST /island/check`, without an API key: an enrolled Island asks for a job of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckIsland {
    /// The Island.
    pub host_id: HostId,
    /// Moment of signing.
    pub sent_at: Timestamp,
    /// Base64 signature by its NKey over [`check_claim`].
    pub signature: String,
}

/// What an Island signs to ask for a job of its own.
pub fn check_claim(host: HostId, sent_at: Timestamp) -> String {
    format!("island-check:{host}:{sent_at}")
}

/// Answer to `POST /island/check`: how far a real job came on this Island.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct IslandCheck {
    /// Whether the job completed.
    pub passed: bool,
    /// The Cargo it was a job of; none where this Island could run none.
    pub workload_slug: Option<Slug>,
    /// The job, unless none was made.
    pub job_id: Option<JobId>,
    /// What happened, in order.
    pub steps: Vec<CheckStep>,
    /// Tokens a second that its reply came with, between the first and the last; none for Cargos that write no text.
    pub tokens_per_second: Option<f64>,
    /// Why it did not complete.
    pub error: Option<JobError>,
}

/// Something that happened to a check's job for the first time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CheckStep {
    /// `queued`, `accepted`, a phase of getting ready, `running`, `output`, or how it ended.
    pub name: String,
    /// Milliseconds since the job was made.
    pub after_ms: u64,
}

/// Credentials for the fabric: a user JWT for a key whose seed never left its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostCredentials {
    /// Where the fabric is.
    pub nats_url: String,
    /// User JWT bound to the Island's public key.
    pub user_jwt: String,
    /// When it ends; renew well before.
    pub expires_at: Timestamp,
    /// Public NKey with which coordinators sign assignments.
    pub coordinator_key: String,
}

/// Answer to `POST /fabric/credentials`: short-lived read access to the fabric for an API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WatchCredentials {
    /// Where the fabric is.
    pub nats_url: String,
    /// User JWT.
    pub user_jwt: String,
    /// Seed of the key the JWT is bound to; made for this answer and not kept.
    pub seed: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Subjects it may subscribe to.
    pub subjects: Vec<String>,
    /// Inbox prefix for JetStream replays, when those are allowed.
    pub inbox_prefix: String,
}
