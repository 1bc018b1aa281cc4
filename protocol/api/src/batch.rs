//! `/batches`: many requests in one file, in the form of OpenAI's API.

use std::collections::BTreeMap;

use island_protocol::credits::MicroCredits;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Begins the ids of batches; a UUID follows.
pub const PREFIX: &str = "batch_";

/// The endpoint of the requests of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
pub enum BatchEndpoint {
    /// Chats.
    #[serde(rename = "/v1/chat/completions")]
    #[strum(serialize = "/v1/chat/completions")]
    Chat,
    /// Continued texts.
    #[serde(rename = "/v1/completions")]
    #[strum(serialize = "/v1/completions")]
    Completions,
    /// Embeddings of texts.
    #[serde(rename = "/v1/embeddings")]
    #[strum(serialize = "/v1/embeddings")]
    Embeddings,
    /// Responses.
    #[serde(rename = "/v1/responses")]
    #[strum(serialize = "/v1/responses")]
    Responses,
    /// Messages in the form of Anthropic's API.
    #[serde(rename = "/v1/messages")]
    #[strum(serialize = "/v1/messages")]
    Messages,
}

impl BatchEndpoint {
    /// Every endpoint.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// State of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum BatchStatus {
    /// The input file is being read.
    Validating,
    /// The input file is invalid, or the key of the batch is no longer accepted.
    Failed,
    /// Requests run.
    InProgress,
    /// Every request has ended, and the files are being written.
    Finalizing,
    /// Every request has ended.
    Completed,
    /// The window ended before every request had begun.
    Expired,
    /// Requests that have begun are ending; no others begin.
    Cancelling,
    /// The account cancelled it.
    Cancelled,
}

impl BatchStatus {
    /// Every state.
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether a batch stays in this state.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Completed | Self::Expired | Self::Cancelled)
    }
}

/// `POST /batches`. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CreateBatch {
    /// A file with the purpose `batch`.
    pub input_file_id: String,
    /// Endpoint of every request.
    pub endpoint: BatchEndpoint,
    /// Time within which requests may begin, such as `24h` or `7d`: from an hour to seven days.
    pub completion_window: String,
    /// Up to 16 texts of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxProperties" = 16)))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Maximum number of credits that all requests may cost together. A request that would exceed it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub max_credits: Option<MicroCredits>,
}

/// Numbers of requests of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RequestCounts {
    /// Requests in the input file; 0 until it is validated.
    pub total: u64,
    /// Requests that were answered with success.
    pub completed: u64,
    /// Requests that were answered with an error.
    pub failed: u64,
}

/// A problem of an input file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct BatchError {
    /// Code for a program.
    pub code: String,
    /// Message for a person.
    pub message: String,
    /// The invalid field.
    #[serde(default)]
    pub param: Option<String>,
    /// Line in the file, from 1.
    #[serde(default)]
    pub line: Option<u64>,
}

/// Problems of an input file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct BatchErrors {
    /// `list`.
    pub object: String,
    /// The first ones.
    pub data: Vec<BatchError>,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Batch {
    /// `batch_` and a UUID.
    pub id: String,
    /// `batch`.
    pub object: String,
    /// Endpoint of every request.
    pub endpoint: BatchEndpoint,
    /// Why it failed; `null` unless it did.
    pub errors: Option<BatchErrors>,
    /// The input file.
    pub input_file_id: String,
    /// The window as requested.
    pub completion_window: String,
    /// State.
    pub status: BatchStatus,
    /// File of the successful answers, once the batch has ended with any.
    pub output_file_id: Option<String>,
    /// File of the errors, once the batch has ended with any.
    pub error_file_id: Option<String>,
    /// Unix seconds, as all times here.
    pub created_at: i64,
    /// Begin of the requests.
    pub in_progress_at: Option<i64>,
    /// End of the window.
    pub expires_at: Option<i64>,
    /// When every request had ended.
    pub finalizing_at: Option<i64>,
    /// When it completed.
    pub completed_at: Option<i64>,
    /// When it failed.
    pub failed_at: Option<i64>,
    /// When it expired.
    pub expired_at: Option<i64>,
    /// When its cancellation was requested.
    pub cancelling_at: Option<i64>,
    /// When it was cancelled.
    pub cancelled_at: Option<i64>,
    /// Numbers of requests.
    pub request_counts: RequestCounts,
    /// Texts of the client.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Maximum number of credits, if one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_credits: Option<MicroCredits>,
    /// Credits that its requests have cost, and that are held for those that run.
    #[serde(default)]
    pub credits: MicroCredits,
}

/// A page of an account's batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct BatchList {
    /// `list`.
    pub object: String,
    /// The batches, newest first.
    pub data: Vec<Batch>,
    /// Id of the first one.
    pub first_id: Option<String>,
    /// Id of the last one, for `after`.
    pub last_id: Option<String>,
    /// Whether others follow.
    pub has_more: bool,
}
