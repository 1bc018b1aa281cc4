//! `POST /embeddings`: answered clearly until the catalogue has a Cargo that makes embeddings.

use island_protocol::problem::Code;

use super::{ApiError, auth::Caller, body};

/// Says that no Cargo makes embeddings yet, after what every request is checked for.
pub(super) async fn create(
    caller: Result<Caller, ApiError>,
    body: Result<body::Json, ApiError>,
) -> Result<(), ApiError> {
    let refused = || {
        caller?;
        let body::Json(mut fields) = body?;
        fields.required("input")?;
        Err(ApiError::field(
            Code::WorkloadNotFound,
            "model",
            "the catalogue has no Cargo that makes embeddings yet",
        ))
    };
    refused().map_err(ApiError::in_chat)
}
