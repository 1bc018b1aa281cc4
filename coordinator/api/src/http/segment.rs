//! A variable segment of a path. Text that is not UTF-8 is treated as an unknown name.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

/// One segment, decoded.
#[derive(Debug)]
pub(crate) struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(path.map_or_else(|_| String::from(char::REPLACEMENT_CHARACTER), |Path(text)| text)))
    }
}
