//! What can go wrong between a client and the coordinator.

use island_protocol::problem::Problem;

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator's address cannot be used.
    #[error("'{0}' is not an http:// or https:// address")]
    BadUrl(String),
    /// The coordinator was not reached, or the connection broke.
    #[error("talk to the coordinator at {url}")]
    Transport {
        /// Its address.
        url: String,
        /// What broke.
        #[source]
        source: reqwest::Error,
    },
    /// The coordinator answered with an error.
    #[error("{} ({}, HTTP {status})", problem.message, problem.code)]
    Api {
        /// HTTP status.
        status: u16,
        /// The error body.
        problem: Box<Problem>,
    },
    /// The answer is not what this version understands.
    #[error("the coordinator's answer to {what} is not understood")]
    Decode {
        /// The request.
        what: &'static str,
        /// What did not parse.
        #[source]
        source: serde_json::Error,
    },
    /// An event stream broke off and could not be taken up again.
    #[error("the event stream broke off after event {last} and could not be resumed")]
    StreamLost {
        /// Last event received.
        last: u64,
        /// The last try's failure, where it has one.
        #[source]
        source: Option<Box<ClientError>>,
    },
    /// The message fabric was not reached, or refuses.
    #[error("use the message fabric at {url}")]
    Fabric {
        /// Its address.
        url: String,
        /// What broke.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClientError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { source, .. } => !source.is_builder(),
            Self::Api { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// Seconds the coordinator asked to wait.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Api { problem, .. } => problem.retry_after,
            _ => None,
        }
    }

    /// The stable code, when the coordinator answered.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Api { problem, .. } => Some(&problem.code),
            _ => None,
        }
    }
}
