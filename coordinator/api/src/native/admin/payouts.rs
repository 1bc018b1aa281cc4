//! `/admin/payouts`: earnings are exported, paid by a system of the operator, and then confirmed, or returned.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, PayoutId},
};
use island_protocol_api::{
    Data, Page, PageMeta,
    admin::AdminAction,
    payout::{CreatePayout, Payout, PayoutDetails, PayoutState},
    problem::Code,
};
use uuid::Uuid;

use super::{made_before, parse_made, reason, record};
use crate::{
    Api, ApiError,
    http::{
        auth::Operator,
        body, csv,
        idempotency::{IdempotencyKey, Replayed},
        query::Query,
        segment::Segment,
    },
};
use island_coordinator_domain::ledger::Kind;
use island_coordinator_storage::{commit, idempotency::PAYOUTS, payout};

fn unknown() -> ApiError {
    ApiError::new(Code::PayoutNotFound, "there is no such payout")
}

async fn details(api: &Api, id: PayoutId) -> Result<PayoutDetails, ApiError> {
    let reader = api.store.reader();
    let payout = payout::get(reader, id).await?.ok_or_else(unknown)?;
    Ok(PayoutDetails { payout, payments: payout::payments(reader, id).await? })
}

/// All payouts, newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Page<Payout>>, ApiError> {
    let requested = query.page()?;
    let reader = api.store.reader();
    let (data, total) = payout::page(reader, requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}

/// A payout with its payments, as JSON or CSV.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    Segment(id): Segment,
    query: Query,
) -> Result<Response, ApiError> {
    let data = details(&api, id.parse().map_err(|_| unknown())?).await?;
    if !csv::is_requested(&query)? {
        return Ok(Json(Data { data }).into_response());
    }
    let head = ["payout", "account", "email", "credits"].map(str::to_owned);
    let payments = data.payments.iter().map(|payment| {
        let account = payment.account.to_string();
        [data.payout.id.to_string(), account, csv::text(&payment.email), payment.amount.to_string()]
    });
    let lines = csv::lines([head].into_iter().chain(payments)).map_err(ApiError::internal)?;
    Ok((csv::headers(), lines).into_response())
}

/// Takes the earnings of all accounts out of their balances, for payment.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    headers: HeaderMap,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Replayed, Json<Data<PayoutDetails>>), ApiError> {
    let idempotency_key = IdempotencyKey::read(&headers, PAYOUTS, &fields)?;
    let CreatePayout { until, minimum, reason } = fields.parse()?;
    let now = api.clock.now();
    let new = Payout {
        id: PayoutId(Uuid::now_v7()),
        state: PayoutState::Exported,
        until: until.unwrap_or(now).min(now),
        accounts: 0,
        amount: MicroCredits::ZERO,
        reason,
        created_at: now,
        ended_at: None,
    };
    let accounts = payout::earners(api.store.reader(), new.until).await?;
    let locked: Vec<AccountId> = accounts.iter().copied().chain([operator.account]).collect();
    let mut tx = api.store.begin_locked(locked).await?;
    let name = new.id.to_string();
    let key = idempotency_key.as_ref();
    if let Some(made) = made_before(&api, &mut tx, key, operator.account, &name, now).await? {
        // The payout may be in the same commit group; it can be read after that is on disk.
        commit(tx).await?;
        let data = details(&api, parse_made(&made)?).await?;
        return Ok((StatusCode::CREATED, Replayed(true), Json(Data { data })));
    }
    let made = payout::export(&mut tx, new, &accounts, minimum).await?;
    let (kind, amount) = (AdminAction::CreatePayout, Some(made.amount));
    record(&mut tx, operator.account, kind, &name, amount, &made.reason, now).await?;
    commit(tx).await?;
    api.metrics.books.moved(Kind::Payout.as_str(), made.amount);
    Ok((StatusCode::CREATED, Replayed(false), Json(Data { data: details(&api, made.id).await? })))
}

/// Records that a payout was paid. Its credits leave the network.
pub(crate) async fn confirm(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    payout: Segment,
    body: body::Json,
) -> Result<Json<Data<Payout>>, ApiError> {
    finish(&api, operator.account, payout, body, PayoutState::Confirmed).await
}

/// Returns the credits of a payout that was not paid.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    payout: Segment,
    body: body::Json,
) -> Result<Json<Data<Payout>>, ApiError> {
    finish(&api, operator.account, payout, body, PayoutState::Cancelled).await
}

/// A request that is repeated is answered like the first one.
async fn finish(
    api: &Api,
    operator: AccountId,
    Segment(id): Segment,
    body: body::Json,
    state: PayoutState,
) -> Result<Json<Data<Payout>>, ApiError> {
    let reason = reason(body)?;
    let PayoutDetails { payout, payments } = details(api, id.parse().map_err(|_| unknown())?).await?;
    let now = api.clock.now();
    let accounts: Vec<AccountId> = payments.iter().map(|payment| payment.account).collect();
    let mut tx = api.store.begin_locked(accounts).await?;
    let kind = match state {
        PayoutState::Confirmed => AdminAction::ConfirmPayout,
        PayoutState::Cancelled | PayoutState::Exported => AdminAction::CancelPayout,
    };
    let finishes = payout::finish(&mut tx, &payout, &payments, state, now).await?;
    if finishes {
        let (name, amount) = (payout.id.to_string(), Some(payout.amount));
        record(&mut tx, operator, kind, &name, amount, &reason, now).await?;
    }
    commit(tx).await?;
    if finishes && state == PayoutState::Cancelled {
        api.metrics.books.moved(Kind::PayoutReturn.as_str(), payout.amount);
    }
    let data = payout::get(api.store.reader(), payout.id).await?.ok_or_else(unknown)?;
    if data.state != state {
        let message = format!("this payout is {} already", data.state.as_str());
        return Err(ApiError::new(Code::PayoutAlreadyFinal, message));
    }
    Ok(Json(Data { data }))
}
