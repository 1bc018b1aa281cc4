//! Why a program is not connected, as HTTP status and for the job's debug log.

use std::io;

use hyper::StatusCode;
use island_protocol::egress::{Place, PlaceError};

use crate::address::Forbidden;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Neither `CONNECT host:port` nor an absolute `http://` address.
    #[error("this is a proxy: send CONNECT host:port, or an absolute http:// address")]
    NoProxyRequest,
    /// It names no host.
    #[error("{0}")]
    NoPlace(PlaceError),
    /// The Cargo does not declare it.
    #[error("the Cargo does not declare {0}")]
    Undeclared(Place),
    /// The name resolves to an address that may not be connected to.
    #[error("{0} has no address in the public internet")]
    NotPublic(Place, #[source] Forbidden),
    /// The name cannot be resolved.
    #[error("{0} cannot be resolved")]
    Unresolved(Place, #[source] io::Error),
    /// No server answers.
    #[error("{0} cannot be connected to")]
    Unreachable(Place, #[source] io::Error),
    /// No server answers in time.
    #[error("{0} does not answer in time")]
    TooSlow(Place),
    /// The answer is not HTTP.
    #[error("{0} does not speak HTTP")]
    NoHttp(Place, #[source] hyper::Error),
    /// The byte limit is reached.
    #[error("the job has transferred as many bytes as it may")]
    UsedUp,
}

impl Refusal {
    /// The HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoProxyRequest | Self::NoPlace(_) => StatusCode::BAD_REQUEST,
            Self::Undeclared(_) | Self::NotPublic(..) => StatusCode::FORBIDDEN,
            Self::Unresolved(..) | Self::Unreachable(..) | Self::NoHttp(..) => StatusCode::BAD_GATEWAY,
            Self::TooSlow(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::UsedUp => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// For the owner, with the cause, which the program does not receive: it may contain facts about the owner's network.
    pub fn in_full(&self) -> String {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}"));
        format!("{self}{}", cause.unwrap_or_default())
    }
}
