//! `POST /island/leave`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::api::{Data, RenewCredentials, credentials_claim};

use super::signer;
use crate::{
    api::{Api, ApiError, body},
    storage::{self, host},
};

/// Takes an Island out of the network, proven by its own key. Its jobs go elsewhere, and its key may come back to any account.
pub(in crate::api) async fn leave(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<()>>, ApiError> {
    let wish: RenewCredentials = fields.into_type()?;
    let claim = credentials_claim(wish.host_id, wish.sent_at);
    signer(&api, wish.host_id, &claim, wish.sent_at, &wish.signature).await?;
    let context = api.owner.context();
    let mut tx = context.store.begin().await?;
    host::leave(&mut tx, wish.host_id, context.clock.now()).await?;
    storage::commit(tx).await?;
    context.fleet.forget(wish.host_id);
    Ok(Json(Data { data: () }))
}
