//! `POST /island/enroll`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{
    api::{Data, Enroll, HostCredentials},
    problem::Code,
};

use super::{check_newcomer, credentials_for};
use crate::{
    api::{Api, ApiError, auth::Caller, body},
    fleet::Enrolled,
    storage::{self, host},
};

/// Ties an Island to the caller's account and hands out its first credentials. The same key may come again.
pub(in crate::api) async fn enroll(
    State(api): State<Arc<Api>>,
    caller: Caller,
    body::Json(fields): body::Json,
) -> Result<Json<Data<HostCredentials>>, ApiError> {
    let wish: Enroll = fields.into_type()?;
    check_newcomer(&api, &wish)?;
    let enrolled = Enrolled::newcomer(wish.host_id, caller.account, wish.public_key.clone(), wish.name);
    let context = api.owner.context();
    let mut tx = context.store.begin().await?;
    if !host::enrol(&mut tx, &enrolled, context.clock.now()).await? {
        return Err(ApiError::new(Code::HostConflict, "this Island id belongs to another key or account"));
    }
    storage::commit(tx).await?;
    let credentials = credentials_for(&api, wish.host_id, &wish.public_key)?;
    // With what it earned before it left, if it was here before.
    let stored = host::get(context.store.reader(), enrolled.id).await?;
    context.fleet.enrol(stored.unwrap_or(enrolled));
    Ok(Json(Data { data: credentials }))
}
