//! `GET /account/quotas`, and the quotas of a key.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::ApiKeyId;
use island_protocol_api::{
    Data,
    problem::Code,
    quota::{OwnQuotas, QuotaView, Quotas},
};

use crate::{
    Api, ApiError,
    http::{auth::Caller, body, segment::Segment},
};
use island_coordinator_domain::quota;
use island_coordinator_storage::{
    commit, key,
    quota::{self as stored, Holder},
};

type Answer = Result<Json<Data<Vec<QuotaView>>>, ApiError>;

/// The quotas of the account and of the key of the request, and what is used of them.
pub(crate) async fn own(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Json<Data<OwnQuotas>>, ApiError> {
    let data = OwnQuotas {
        account: views(&api, Holder::Account(caller.account)).await?,
        key: views(&api, Holder::Key(caller.account, caller.key)).await?,
    };
    Ok(Json(Data { data }))
}

/// The quotas of a key of the account.
pub(crate) async fn of_key(State(api): State<Arc<Api>>, caller: Caller, key: Segment) -> Answer {
    let holder = key_of(&api, &caller, key).await?;
    Ok(Json(Data { data: views(&api, holder).await? }))
}

/// Replaces the quotas of a key of the account. A key that has quotas, or a cap, may not change any.
pub(crate) async fn replace_of_key(
    State(api): State<Arc<Api>>,
    caller: Caller,
    key: Segment,
    body::Json(fields): body::Json,
) -> Answer {
    let quotas: Quotas = fields.parse()?;
    let holder = key_of(&api, &caller, key).await?;
    if caller.spend_cap.is_some() || has_own(&api, &caller).await? {
        let message = "a key with quotas or a spend_cap cannot change the quotas of keys";
        return Err(ApiError::new(Code::Forbidden, message));
    }
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([caller.account]).await?;
    let replaced = stored::replace(&mut tx, holder, &quotas, now).await?;
    commit(tx).await?;
    Ok(Json(Data { data: quota::views(&replaced, now) }))
}

/// Whether the key of the request has quotas.
pub(crate) async fn has_own(api: &Api, caller: &Caller) -> Result<bool, ApiError> {
    if !caller.has_quotas {
        return Ok(false);
    }
    let reader = api.store.reader();
    Ok(!stored::list(reader, Holder::Key(caller.account, caller.key)).await?.is_empty())
}

async fn key_of(api: &Api, caller: &Caller, Segment(id): Segment) -> Result<Holder, ApiError> {
    let unknown = || ApiError::new(Code::ApiKeyNotFound, "there is no such API key");
    let id: ApiKeyId = id.parse().map_err(|_| unknown())?;
    let account = key::account_of(api.store.reader(), id).await?;
    if account == Some(caller.account) { Ok(Holder::Key(caller.account, id)) } else { Err(unknown()) }
}

/// The quotas of a holder as they are shown.
pub(crate) async fn views(api: &Api, holder: Holder) -> Result<Vec<QuotaView>, ApiError> {
    Ok(quota::views(&stored::list(api.store.reader(), holder).await?, api.clock.now()))
}
