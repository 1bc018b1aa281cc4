//! `POST /island/credentials`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{
    Data, HostCredentials,
    claim::{ClaimVerb, IslandRequest},
};

use super::{credentials_for, signer};
use crate::{Api, ApiError, http::body};

/// New credentials for an enrolled Island, authenticated by its own key alone.
pub(crate) async fn credentials(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostCredentials>>, ApiError> {
    let request: IslandRequest = fields.parse()?;
    let (account, public_key) = signer(&api, &request, ClaimVerb::Credentials).await?;
    Ok(Json(Data { data: credentials_for(&api, request.host_id, account, &public_key)? }))
}
