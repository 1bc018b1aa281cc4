//! The error body, and the stable codes in it. Codes never change; messages may.

use island_protocol::credits::MicroCredits;
use serde::{Deserialize, Serialize};

/// `{"error": {"message", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: Problem,
}

/// A stable code for programs, and a message for people without secrets, paths or SQL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Message for a person.
    pub message: String,
    /// Code for a program: the name of a [`Code`].
    pub code: String,
    /// The invalid field, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// Seconds to wait before trying again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Credits that were needed, if the balance is too low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<MicroCredits>,
    /// Credits that were available instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<MicroCredits>,
    /// Id of this failure in the coordinator's log; present on every 5xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Every problem of a manifest, if that is invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// Kind of error in the terms of OpenAI's API.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// One problem of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Detail {
    /// Line in the manifest, from 1.
    pub line: u64,
    /// Message for a person.
    pub message: String,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = ($status:literal, $name:literal),)*) => {
        /// Every code that an HTTP error can contain.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the HTTP status of the code.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Returns the name in the body.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

codes! {
    /// The body is not valid JSON.
    InvalidJson = (400, "invalid_json"),
    /// Invalid query, header or path parameter.
    InvalidRequest = (400, "invalid_request"),
    /// Malformed idempotency key.
    InvalidIdempotencyKey = (400, "invalid_idempotency_key"),
    /// No `Authorization: Bearer`.
    MissingApiKey = (401, "missing_api_key"),
    /// Unknown, expired or revoked key.
    InvalidApiKey = (401, "invalid_api_key"),
    /// The required hold exceeds the balance.
    InsufficientCredits = (402, "insufficient_credits"),
    /// The price of a request exceeds what its batch may still cost.
    MaxCreditsExceeded = (402, "max_credits_exceeded"),
    /// The key is valid but lacks the permission.
    Forbidden = (403, "forbidden"),
    /// An operator has suspended the account of the key.
    AccountSuspended = (403, "account_suspended"),
    /// The owner does not allow remote orders on this Island.
    RemoteControlDisabled = (403, "remote_control_disabled"),
    /// An operator has disabled the Cargo.
    WorkloadDisabled = (403, "workload_disabled"),
    /// The sign-in provider did not confirm the person, or the person may not sign in.
    LoginFailed = (403, "login_failed"),
    /// Unknown, used up, expired or revoked invitation code.
    InvalidInvitation = (403, "invalid_invitation"),
    /// Unknown route.
    NotFound = (404, "not_found"),
    /// Unknown job, or a job of another account.
    JobNotFound = (404, "job_not_found"),
    /// Unknown key, or a key of another account.
    ApiKeyNotFound = (404, "api_key_not_found"),
    /// Unknown account.
    AccountNotFound = (404, "account_not_found"),
    /// Unknown invitation.
    InvitationNotFound = (404, "invitation_not_found"),
    /// Unknown notice.
    NoticeNotFound = (404, "notice_not_found"),
    /// Unknown payout.
    PayoutNotFound = (404, "payout_not_found"),
    /// Unknown publication, or one of another account.
    PublicationNotFound = (404, "publication_not_found"),
    /// Unknown file, or one of another account.
    FileNotFound = (404, "file_not_found"),
    /// Unknown batch, or one of another account.
    BatchNotFound = (404, "batch_not_found"),
    /// Unknown webhook, or one of another account.
    WebhookNotFound = (404, "webhook_not_found"),
    /// Unknown Island.
    HostNotFound = (404, "host_not_found"),
    /// No Island shows this pairing code now.
    PairingNotFound = (404, "pairing_not_found"),
    /// Unknown Cargo.
    WorkloadNotFound = (404, "workload_not_found"),
    /// A name that was meant for a certain language model and is not its name; the message has the nearest names.
    ModelNotFound = (404, "model_not_found"),
    /// The route exists, the method does not.
    MethodNotAllowed = (405, "method_not_allowed"),
    /// The body did not arrive in time.
    RequestTimeout = (408, "request_timeout"),
    /// A request with the same idempotency key is still running.
    IdempotencyInProgress = (409, "idempotency_in_progress"),
    /// The Island does not answer, so it cannot be given an order.
    HostUnreachable = (409, "host_unreachable"),
    /// A newer order, or a clock that is wrong, made the Island refuse an order.
    OrderRefused = (409, "order_refused"),
    /// This Island id belongs to another key or account.
    HostConflict = (409, "host_conflict"),
    /// The body exceeds the size limit.
    PayloadTooLarge = (413, "payload_too_large"),
    /// Not `application/json`.
    UnsupportedMediaType = (415, "unsupported_media_type"),
    /// A field is missing, unknown, of the wrong type or out of bounds.
    ValidationError = (422, "validation_error"),
    /// The input does not match the Cargo's schema.
    InvalidInput = (422, "invalid_input"),
    /// The prompt is longer than the model's context.
    ContextLengthExceeded = (422, "context_length_exceeded"),
    /// An image or audio file is unreadable or too large.
    InvalidMedia = (422, "invalid_media"),
    /// The job has ended already.
    JobAlreadyFinal = (422, "job_already_final"),
    /// The job has not ended yet.
    JobNotFinal = (422, "job_not_final"),
    /// The account has credits, open jobs, Islands or unconfirmed payments, and cannot be closed.
    AccountInUse = (422, "account_in_use"),
    /// The payout was confirmed or cancelled before.
    PayoutAlreadyFinal = (422, "payout_already_final"),
    /// The manifest of a Cargo has problems, which `details` lists.
    InvalidManifest = (422, "invalid_manifest"),
    /// The slug is that of another Cargo, or reserved.
    SlugTaken = (422, "slug_taken"),
    /// As many Cargos of the account as may do so wait for review.
    TooManyPublications = (422, "too_many_publications"),
    /// The publication was rejected, withdrawn or replaced before.
    PublicationAlreadyFinal = (422, "publication_already_final"),
    /// The account has as many files as it may have, or they have as many bytes as they may have.
    TooManyFiles = (422, "too_many_files"),
    /// The file is the input of a batch that has not ended.
    FileInUse = (422, "file_in_use"),
    /// As many batches of the account as may do so have not ended.
    TooManyBatches = (422, "too_many_batches"),
    /// The batch has ended already.
    BatchAlreadyFinal = (422, "batch_already_final"),
    /// The account has as many webhooks as it may have.
    TooManyWebhooks = (422, "too_many_webhooks"),
    /// The account has as many Islands as it may have.
    TooManyHosts = (422, "too_many_hosts"),
    /// The idempotency key was used with another body.
    IdempotencyKeyReused = (422, "idempotency_key_reused"),
    /// Too many requests per minute.
    RateLimited = (429, "rate_limited"),
    /// The account or the key has used up a quota of the day or the month.
    QuotaExceeded = (429, "quota_exceeded"),
    /// Too many concurrent jobs.
    ConcurrentJobsExceeded = (429, "concurrent_jobs_exceeded"),
    /// Too many concurrent streams.
    ConcurrentStreamsExceeded = (429, "concurrent_streams_exceeded"),
    /// An internal error.
    InternalError = (500, "internal_error"),
    /// The job behind a chat request failed.
    JobFailed = (500, "job_failed"),
    /// Starting or draining, or the database or the fabric cannot be reached.
    ServiceUnavailable = (503, "service_unavailable"),
    /// The network accepts no new jobs for some time.
    Maintenance = (503, "maintenance"),
    /// No Island can serve this now.
    NoIslandAvailable = (503, "no_island_available"),
    /// The job behind a chat request timed out.
    JobTimeout = (504, "job_timeout"),
}
