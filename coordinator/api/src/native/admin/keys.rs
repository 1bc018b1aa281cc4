//! `GET /admin/accounts/:id/api-keys` and `POST /admin/api-keys/:id/revoke`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::ApiKeyId;
use island_protocol_api::{
    Data,
    admin::AdminAction,
    key::{KeyView, RevokedKey},
    problem::Code,
};

use super::{named, reason};
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, segment::Segment},
};
use island_coordinator_storage::{
    audit::{self, Action, Subject},
    commit,
    key::{self, Revoked},
};

/// The keys of an account that are not revoked, oldest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    account: Segment,
) -> Result<Json<Data<Vec<KeyView>>>, ApiError> {
    let account = named(&api, account).await?.id;
    let data = key::list(api.store.reader(), account, api.clock.now()).await?;
    Ok(Json(Data { data }))
}

/// Revokes a key of any account.
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Segment(id): Segment,
    body: body::Json,
) -> Result<Json<Data<RevokedKey>>, ApiError> {
    let reason = reason(body)?;
    let unknown = || ApiError::new(Code::ApiKeyNotFound, "there is no such API key");
    let id: ApiKeyId = id.parse().map_err(|_| unknown())?;
    let account = key::account_of(api.store.reader(), id).await?.ok_or_else(unknown)?;
    let revoked_at = api.clock.now();
    let mut tx = api.store.begin_locked([account]).await?;
    // Every key may revoke itself.
    if key::revoke(&mut tx, account, id, id, revoked_at).await? != Revoked::Yes {
        return Err(unknown());
    }
    let action = Action {
        subject: Subject::Key(id),
        ..Action::on_account(operator.account, AdminAction::RevokeKey, account, &reason)
    };
    audit::insert(&mut tx, &action, revoked_at).await?;
    commit(tx).await?;
    Ok(Json(Data { data: RevokedKey { id, revoked_at } }))
}
