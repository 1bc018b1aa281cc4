//! `GET /admin/accounts`, `GET /admin/accounts/:id`, `POST /admin/accounts`, and the suspension of an account.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use island_protocol::{credits::MicroCredits, ids::AccountId};
use island_protocol_api::{
    Data, Page, PageMeta,
    admin::{AdminAccount, AdminAction, CreateAccount, CreatedAccount},
    problem::Code,
};
use uuid::Uuid;

use super::{AccountAnswer, answer, made_before, named, parse_made, read, reason};
use crate::{
    Api, ApiError,
    http::{
        auth::Operator,
        body,
        idempotency::{IdempotencyKey, Replayed},
        query::Query,
        segment::Segment,
    },
    native::statement,
};
use island_coordinator_domain::secret;
use island_coordinator_storage::{
    StoreError,
    account::{self, Account},
    audit::{self, Action, Subject},
    commit,
    idempotency::ADMIN_ACCOUNTS,
    key::{self, StoredKey},
    ledger,
};

/// All accounts, oldest first, or the one with the e-mail address of the query.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Page<AdminAccount>>, ApiError> {
    let requested = query.page()?;
    let reader = api.store.reader();
    let (data, total) =
        account::admin_page(reader, query.get("email"), requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}

/// One account.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    account: Segment,
) -> Result<AccountAnswer, ApiError> {
    Ok(Json(Data { data: named(&api, account).await? }))
}

/// Creates an account with its first key. Only the first answer contains the secret; a replay does not.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    headers: HeaderMap,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Replayed, Json<CreatedAccount>), ApiError> {
    let idempotency_key = IdempotencyKey::read(&headers, ADMIN_ACCOUNTS, &fields)?;
    let wanted: CreateAccount = fields.parse()?;
    let now = api.clock.now();
    let id = AccountId(Uuid::now_v7());
    let credits =
        wanted.credits.unwrap_or_else(|| MicroCredits::from_credits(api.rules.signup_credits.into()));
    let mut tx = api.store.begin_locked([operator.account]).await?;
    let (key, made) = (idempotency_key.as_ref(), id.to_string());
    if let Some(made) = made_before(&api, &mut tx, key, operator.account, &made, now).await? {
        // The account may be in the same commit group; it can be read after that is on disk.
        commit(tx).await?;
        let data = read(&api, parse_made(&made)?).await?;
        return Ok((StatusCode::CREATED, Replayed(true), Json(CreatedAccount { data, key: None })));
    }
    let account = Account { id, email: wanted.email, operator: wanted.operator, created_at: now };
    let inserted = account::insert_with_credits(&mut tx, &account, credits).await;
    inserted.map_err(|error| taken(error, &account.email))?;
    let new = secret::new_key();
    let first = StoredKey::unlimited(id, "first", &new, now);
    key::insert(&mut tx, &first).await?;
    let action = Action {
        subject: Subject::Key(first.id),
        amount: (credits > MicroCredits::ZERO).then_some(credits),
        ..Action::on_account(operator.account, AdminAction::CreateAccount, id, "")
    };
    audit::insert(&mut tx, &action, now).await?;
    commit(tx).await?;
    let data = read(&api, id).await?;
    Ok((StatusCode::CREATED, Replayed(false), Json(CreatedAccount { data, key: Some(new.secret) })))
}

fn taken(error: StoreError, email: &str) -> ApiError {
    if error.is_duplicate() {
        ApiError::field(Code::ValidationError, "email", format!("{email} has an account already"))
    } else {
        error.into()
    }
}

/// Refuses all keys of an account. Its open jobs go on, and cost what they cost.
pub(crate) async fn suspend(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    account: Segment,
    body: body::Json,
) -> Result<AccountAnswer, ApiError> {
    change(&api, operator.account, account, body, AdminAction::Suspend).await
}

/// Accepts the keys of a suspended account again.
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    account: Segment,
    body: body::Json,
) -> Result<AccountAnswer, ApiError> {
    change(&api, operator.account, account, body, AdminAction::Resume).await
}

/// Closes an account for good. It must have no credits, no open jobs of its own or on its Islands, no Islands and no payment that is
/// not confirmed.
pub(crate) async fn close(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    account: Segment,
    body: body::Json,
) -> Result<AccountAnswer, ApiError> {
    let reason = reason(body)?;
    let AdminAccount { id: account, closed_at, .. } = named(&api, account).await?;
    if account == operator.account {
        return Err(ApiError::new(Code::Forbidden, "operators cannot close their own account"));
    }
    if closed_at.is_some() {
        return answer(&api, account).await;
    }
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([account]).await?;
    ledger::count(&mut tx, account).await?;
    let closed = account::close(&mut tx, account, &reason, now).await?;
    closed.map_err(|in_use| ApiError::new(Code::AccountInUse, in_use.to_string()))?;
    let action = Action::on_account(operator.account, AdminAction::CloseAccount, account, &reason);
    audit::insert(&mut tx, &action, now).await?;
    commit(tx).await?;
    answer(&api, account).await
}

/// What an account spent and earned in a span of time.
pub(crate) async fn statement(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    account: Segment,
    query: Query,
) -> Result<Response, ApiError> {
    let account = named(&api, account).await?.id;
    statement::answer(&api, account, &query).await
}

/// Suspends or resumes an account. What changes nothing is not recorded.
async fn change(
    api: &Arc<Api>,
    operator: AccountId,
    account: Segment,
    body: body::Json,
    kind: AdminAction,
) -> Result<AccountAnswer, ApiError> {
    let reason = reason(body)?;
    let account = named(api, account).await?.id;
    let is_suspension = kind == AdminAction::Suspend;
    if is_suspension && account == operator {
        return Err(ApiError::new(Code::Forbidden, "operators cannot suspend their own account"));
    }
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([account]).await?;
    let is_changed = if is_suspension {
        account::suspend(&mut tx, account, &reason, now).await?
    } else {
        account::resume(&mut tx, account).await?
    };
    if is_changed {
        audit::insert(&mut tx, &Action::on_account(operator, kind, account, &reason), now).await?;
    }
    commit(tx).await?;
    answer(api, account).await
}
