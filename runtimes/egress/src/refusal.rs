//! Why a program is not connected, in the words of HTTP and for the job's debug log.

use std::io;

use hyper::StatusCode;
use island_protocol::egress::{Place, PlaceError};

use crate::address::Forbidden;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Neither `CONNECT host:port` nor a whole `http://` address.
    #[error("this is a proxy: ask it for CONNECT host:port, or for a whole http:// address")]
    NoProxyRequest,
    /// It names no host.
    #[error("{0}")]
    NoPlace(PlaceError),
    /// Not in the Cargo's entry.
    #[error("the Cargo does not declare {0}")]
    Undeclared(Place),
    /// The name leads to where nobody may go.
    #[error("{0} leads to no address of the public internet")]
    NotPublic(Place, #[source] Forbidden),
    /// The name leads nowhere.
    #[error("{0} cannot be resolved")]
    Unresolved(Place, #[source] io::Error),
    /// Nobody answers there.
    #[error("{0} cannot be connected to")]
    Unreachable(Place, #[source] io::Error),
    /// Nobody answers there for too long.
    #[error("{0} does not answer in time")]
    TooSlow(Place),
    /// What came back is no HTTP.
    #[error("{0} does not speak HTTP")]
    NoHttp(Place, #[source] hyper::Error),
    /// All bytes are used up.
    #[error("the job has carried as many bytes as it may")]
    UsedUp,
}

impl Refusal {
    /// What a proxy answers.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoProxyRequest | Self::NoPlace(_) => StatusCode::BAD_REQUEST,
            Self::Undeclared(_) | Self::NotPublic(..) => StatusCode::FORBIDDEN,
            Self::Unresolved(..) | Self::Unreachable(..) | Self::NoHttp(..) => StatusCode::BAD_GATEWAY,
            Self::TooSlow(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::UsedUp => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// For the owner, with the cause, which the program is not told: it may speak of the owner's network.
    pub fn in_full(&self) -> String {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}"));
        format!("{self}{}", cause.unwrap_or_default())
    }
}
