//! `DELETE /api-keys/:id`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::ApiKeyId;
use island_protocol_api::{Data, key::RevokedKey, problem::Code};

use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_storage::{
    commit,
    key::{self, Revoked},
};

/// Revokes a key of the account, also the one in use; a capped key revokes only itself and keys below it. It is refused everywhere as soon as this is answered.
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<RevokedKey>>, ApiError> {
    let unknown = || ApiError::new(Code::ApiKeyNotFound, "there is no such API key");
    let id: ApiKeyId = id.parse().map_err(|_| unknown())?;
    let revoked_at = api.clock.now();
    let mut tx = api.store.begin_locked([caller.account]).await?;
    match key::revoke(&mut tx, caller.account, caller.key, id, revoked_at).await? {
        Revoked::Yes => {}
        Revoked::Unknown => return Err(unknown()),
        Revoked::NotAllowed => {
            let message = "a key with a spend_cap may revoke itself and keys that it created";
            return Err(ApiError::new(Code::Forbidden, message));
        }
    }
    commit(tx).await?;
    Ok(Json(Data { data: RevokedKey { id, revoked_at } }))
}
