//! `POST /island/credentials`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{
    api::{Data, HostCredentials, RenewCredentials, credentials_claim},
    problem::Code,
};

use super::{credentials_for, prove};
use crate::api::{Api, ApiError, body};

/// Fresh credentials for an enrolled Island, proven by its own key alone.
pub(in crate::api) async fn credentials(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostCredentials>>, ApiError> {
    let wish: RenewCredentials = fields.into_type()?;
    let known = api.owner.known(wish.host_id).await?;
    let (_, public_key) =
        known.ok_or_else(|| ApiError::new(Code::HostNotFound, "this Island is not enrolled"))?;
    prove(&api, &credentials_claim(wish.host_id, wish.sent_at), wish.sent_at, &wish.signature, &public_key)?;
    Ok(Json(Data { data: credentials_for(&api, wish.host_id, &public_key)? }))
}
