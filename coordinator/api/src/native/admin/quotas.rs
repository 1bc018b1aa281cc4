//! `GET` and `POST /admin/accounts/:id/quotas`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{
    Data,
    admin::AdminAction,
    quota::{QuotaView, SetQuotas},
};

use super::named;
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, segment::Segment},
    native::quotas::views,
};
use island_coordinator_domain::quota;
use island_coordinator_storage::{
    audit::{self, Action},
    commit,
    quota::{self as stored, Holder},
};

type Answer = Result<Json<Data<Vec<QuotaView>>>, ApiError>;

/// The quotas of an account.
pub(crate) async fn get(State(api): State<Arc<Api>>, Operator(_): Operator, account: Segment) -> Answer {
    let account = named(&api, account).await?.id;
    Ok(Json(Data { data: views(&api, Holder::Account(account)).await? }))
}

/// Replaces the quotas of an account.
pub(crate) async fn replace(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    account: Segment,
    body::Json(fields): body::Json,
) -> Answer {
    let SetQuotas { quotas, reason } = fields.parse()?;
    let account = named(&api, account).await?.id;
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([account]).await?;
    let replaced = stored::replace(&mut tx, Holder::Account(account), &quotas, now).await?;
    let action = Action::on_account(operator.account, AdminAction::SetQuotas, account, &reason);
    audit::insert(&mut tx, &action, now).await?;
    commit(tx).await?;
    Ok(Json(Data { data: quota::views(&replaced, now) }))
}
