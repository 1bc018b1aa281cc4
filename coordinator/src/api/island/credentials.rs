//! `POST /island/credentials`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::api::{Data, HostCredentials, RenewCredentials, credentials_claim};

use super::{credentials_for, signer};
use crate::api::{Api, ApiError, body};

/// New credentials for an enrolled Island, authenticated by its own key alone.
pub(in crate::api) async fn credentials(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostCredentials>>, ApiError> {
    let request: RenewCredentials = fields.parse()?;
    let claim = credentials_claim(request.host_id, request.sent_at);
    let (_, public_key) = signer(&api, request.host_id, &claim, request.sent_at, &request.signature).await?;
    Ok(Json(Data { data: credentials_for(&api, request.host_id, &public_key)? }))
}
