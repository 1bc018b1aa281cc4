//! Forms as arguments of handlers. A form that cannot be read is answered with a page.

use axum::{
    extract::{FromRequest, Request},
    http::StatusCode,
    response::Response,
};

use super::refused;
use crate::{
    posted::{MAX_BYTES, MAX_SMALL_BYTES, Posted, Unreadable, read},
    texts::t,
};

impl<S: Send + Sync> FromRequest<S> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        read(request, MAX_BYTES).await.map_err(unreadable)
    }
}

/// A short form, of somebody who may not be signed in.
#[derive(Debug)]
pub(crate) struct Short(pub Posted);

impl<S: Send + Sync> FromRequest<S> for Short {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        read(request, MAX_SMALL_BYTES).await.map(Self).map_err(unreadable)
    }
}

fn unreadable(reason: Unreadable) -> Response {
    match reason {
        Unreadable::TooLarge => refused(StatusCode::PAYLOAD_TOO_LARGE, t("error.too_large")),
        Unreadable::Malformed => refused(StatusCode::BAD_REQUEST, t("error.form")),
    }
}
