//! `GET /api-keys`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, key::KeyView};

use crate::{Api, ApiError, auth::Caller};
use island_coordinator_storage::key;

/// The account's keys that are not revoked, oldest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Json<Data<Vec<KeyView>>>, ApiError> {
    let context = api.execution.context();
    let data = key::list(context.store.reader(), caller.account, context.clock.now()).await?;
    Ok(Json(Data { data }))
}
