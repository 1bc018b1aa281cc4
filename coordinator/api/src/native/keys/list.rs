//! `GET /api-keys`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, key::KeyView};

use crate::{Api, ApiError, http::auth::Caller};
use island_coordinator_storage::key;

/// The account's keys that are not revoked, oldest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Json<Data<Vec<KeyView>>>, ApiError> {
    let data = key::list(api.store.reader(), caller.account, api.clock.now()).await?;
    Ok(Json(Data { data }))
}
