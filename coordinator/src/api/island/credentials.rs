//! `POST /island/credentials`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::api::{Data, HostCredentials, RenewCredentials, credentials_claim};

use super::{credentials_for, signer};
use crate::api::{Api, ApiError, body};

/// Fresh credentials for an enrolled Island, proven by its own key alone.
pub(in crate::api) async fn credentials(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostCredentials>>, ApiError> {
    let wish: RenewCredentials = fields.into_type()?;
    let claim = credentials_claim(wish.host_id, wish.sent_at);
    let (_, public_key) = signer(&api, wish.host_id, &claim, wish.sent_at, &wish.signature).await?;
    Ok(Json(Data { data: credentials_for(&api, wish.host_id, &public_key)? }))
}
