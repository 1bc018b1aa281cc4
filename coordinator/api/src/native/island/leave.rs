//! `POST /island/leave`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{
    Data,
    claim::{ClaimVerb, IslandRequest},
};

use super::signer;
use crate::{Api, ApiError, http::body};
use island_coordinator_storage as storage;
use island_coordinator_storage::host;

/// Removes an Island from the network, authenticated by its own key. Its jobs continue elsewhere, and it may enroll
/// again with any account.
pub(crate) async fn leave(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<()>>, ApiError> {
    let request: IslandRequest = fields.parse()?;
    signer(&api, &request, ClaimVerb::Leave).await?;
    let mut tx = api.store.begin().await?;
    host::leave(&mut tx, request.host_id, api.clock.now()).await?;
    storage::commit(tx).await?;
    api.fleet.remove(request.host_id);
    Ok(Json(Data { data: () }))
}
