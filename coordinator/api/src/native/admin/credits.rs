//! `POST /admin/accounts/:id/grants` and `/deductions`.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap};
use island_protocol::credits::MicroCredits;
use island_protocol_api::{
    admin::{AdminAction, ChangeCredits, GrantCredits},
    problem::Code,
};

use super::{AccountAnswer, answer, check_open, made_before, named};
use crate::{
    Api, ApiError,
    http::{
        auth::{Caller, Operator},
        body,
        idempotency::{IdempotencyKey, Replayed, reused},
        segment::Segment,
    },
};
use island_coordinator_domain::ledger::Posting;
use island_coordinator_storage::{
    audit::{self, Action},
    commit,
    idempotency::{DEDUCTIONS, GRANTS},
    ledger::{self, Details},
};

/// The maximum that an account may have: half of the maximum number in answers.
const MAX_BALANCE: MicroCredits = MicroCredits(1_000_000_000_000_000);

type Answer = Result<(Replayed, AccountAnswer), ApiError>;

/// Gives an account credits.
pub(crate) async fn grant(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    account: Segment,
    headers: HeaderMap,
    body: body::Json,
) -> Answer {
    change(&api, &operator, account, &headers, body, AdminAction::Grant).await
}

/// Takes credits from an account, at most what it may spend.
pub(crate) async fn deduct(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    account: Segment,
    headers: HeaderMap,
    body: body::Json,
) -> Answer {
    change(&api, &operator, account, &headers, body, AdminAction::Deduct).await
}

async fn change(
    api: &Arc<Api>,
    operator: &Caller,
    account: Segment,
    headers: &HeaderMap,
    body::Json(fields): body::Json,
    action: AdminAction,
) -> Answer {
    let is_grant = action == AdminAction::Grant;
    let key = IdempotencyKey::read(headers, if is_grant { GRANTS } else { DEDUCTIONS }, &fields)?;
    let GrantCredits { amount, reason, bought } = if is_grant {
        fields.parse()?
    } else {
        let ChangeCredits { amount, reason } = fields.parse()?;
        GrantCredits { amount, reason, bought: false }
    };
    let account = named(api, account).await?.id;
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([account, operator.account]).await?;
    let made = account.to_string();
    if let Some(earlier) = made_before(api, &mut tx, key.as_ref(), operator.account, &made, now).await? {
        // The same body, but about another account.
        if earlier != made {
            return Err(reused());
        }
        commit(tx).await?;
        return Ok((Replayed(true), answer(api, account).await?));
    }
    if is_grant {
        check_open(&mut tx, account).await?;
    }
    let posting = match (is_grant, bought) {
        (true, true) => Posting::purchase(account, amount),
        (true, false) => Posting::grant(account, amount),
        (false, _) => Posting::deduct(account, amount),
    };
    // What it has earned is part of what it may spend.
    ledger::count(&mut tx, account).await?;
    if is_grant && ledger::balance_in(&mut tx, account).await? + amount > MAX_BALANCE {
        let message = format!("an account may have at most {MAX_BALANCE} credits");
        return Err(ApiError::field(Code::ValidationError, "amount", message));
    }
    if !ledger::try_post(&mut tx, &posting, &Details::default(), now).await? {
        let available = ledger::balance_in(&mut tx, account).await?;
        let message = format!("the account has {available} credits, not {amount}");
        return Err(ApiError::credits(message, amount, available));
    }
    let entry =
        Action { amount: Some(amount), ..Action::on_account(operator.account, action, account, &reason) };
    audit::insert(&mut tx, &entry, now).await?;
    commit(tx).await?;
    api.metrics.books.moved(posting.kind.as_str(), amount);
    Ok((Replayed(false), answer(api, account).await?))
}
