//! The error body, and the stable codes in it. Codes never change; messages may.

use serde::{Deserialize, Serialize};

use crate::credits::MicroCredits;

/// `{"error": {"message", "code"}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: Problem,
}

/// What went wrong: a stable code for programs, a message for people, without secrets, paths or SQL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Problem {
    /// For people.
    pub message: String,
    /// For programs: the name of a [`Code`].
    pub code: String,
    /// Which field, where one is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// Seconds to wait before trying again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Credits that were needed, when they were not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<MicroCredits>,
    /// Credits that were there instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<MicroCredits>,
    /// Names this failure in the coordinator's log; present on every 5xx.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Kind of error in the words of the chat API that other clients know.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = ($status:literal, $name:literal),)*) => {
        /// Every code an HTTP answer can carry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// HTTP status it goes with.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Its name in the body.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

codes! {
    /// Body that is not one JSON text.
    InvalidJson = (400, "invalid_json"),
    /// Bad query, header or path parameter.
    InvalidRequest = (400, "invalid_request"),
    /// Malformed idempotency key.
    InvalidIdempotencyKey = (400, "invalid_idempotency_key"),
    /// No `Authorization: Bearer`.
    MissingApiKey = (401, "missing_api_key"),
    /// Unknown or revoked key.
    InvalidApiKey = (401, "invalid_api_key"),
    /// The hold is more than what is left.
    InsufficientCredits = (402, "insufficient_credits"),
    /// A valid key that may not do this.
    Forbidden = (403, "forbidden"),
    /// Unknown route.
    NotFound = (404, "not_found"),
    /// Unknown job, or somebody else's.
    JobNotFound = (404, "job_not_found"),
    /// Unknown key, or somebody else's.
    ApiKeyNotFound = (404, "api_key_not_found"),
    /// Unknown Island.
    HostNotFound = (404, "host_not_found"),
    /// No Island shows this code now.
    PairingNotFound = (404, "pairing_not_found"),
    /// Unknown Cargo.
    WorkloadNotFound = (404, "workload_not_found"),
    /// The route exists, the method does not.
    MethodNotAllowed = (405, "method_not_allowed"),
    /// The twin of this request still runs.
    IdempotencyInProgress = (409, "idempotency_in_progress"),
    /// This Island id belongs to another key or account.
    HostConflict = (409, "host_conflict"),
    /// Body over the limit.
    PayloadTooLarge = (413, "payload_too_large"),
    /// Not `application/json`.
    UnsupportedMediaType = (415, "unsupported_media_type"),
    /// A field is missing, unknown, of the wrong type or out of bounds.
    ValidationError = (422, "validation_error"),
    /// Input that does not fit the Cargo's schema.
    InvalidInput = (422, "invalid_input"),
    /// Prompt longer than the model's context.
    ContextLengthExceeded = (422, "context_length_exceeded"),
    /// An image or a sound that cannot be read, or is too large.
    InvalidMedia = (422, "invalid_media"),
    /// The job has ended already.
    JobAlreadyFinal = (422, "job_already_final"),
    /// The same idempotency key came with another body.
    IdempotencyKeyReused = (422, "idempotency_key_reused"),
    /// Too many requests in a minute.
    RateLimited = (429, "rate_limited"),
    /// Too many jobs at once.
    ConcurrentJobsExceeded = (429, "concurrent_jobs_exceeded"),
    /// Too many streams at once.
    ConcurrentStreamsExceeded = (429, "concurrent_streams_exceeded"),
    /// A bug of ours.
    InternalError = (500, "internal_error"),
    /// The job behind a chat request failed.
    JobFailed = (500, "job_failed"),
    /// Starting, draining, or a store or the fabric is away.
    ServiceUnavailable = (503, "service_unavailable"),
    /// No Island can serve this now.
    NoIslandAvailable = (503, "no_island_available"),
    /// The job behind a chat request timed out.
    JobTimeout = (504, "job_timeout"),
}
