//! `/admin`: accounts, credits, keys and Islands of the whole network, for its operators. Every action writes the audit log in its transaction.

pub(crate) mod accounts;
pub(crate) mod audit_log;
pub(crate) mod cancel;
pub(crate) mod cargos;
pub(crate) mod credits;
pub(crate) mod hosts;
pub(crate) mod invitations;
pub(crate) mod keys;
pub(crate) mod maintenance;
pub(crate) mod notices;
pub(crate) mod payouts;
pub(crate) mod publications;
pub(crate) mod queue;
pub(crate) mod quotas;
pub(crate) mod refund;

use std::{str::FromStr, sync::Arc};

use axum::Json;
use island_protocol::{credits::MicroCredits, ids::AccountId, time::Timestamp};
use island_protocol_api::{
    Data,
    admin::{AdminAccount, AdminAction, Reason},
    problem::Code,
};

use crate::{
    Api, ApiError,
    http::{
        body,
        idempotency::{IdempotencyKey, reused},
        query::Query,
        segment::Segment,
    },
};
use island_coordinator_storage::{
    Connection, StoreError, account,
    audit::{self, Action, Subject},
    idempotency::{self, Claimed},
};

type AccountAnswer = Json<Data<AdminAccount>>;

fn unknown_account() -> ApiError {
    ApiError::new(Code::AccountNotFound, "there is no such account")
}

/// The account that a path names.
async fn named(api: &Arc<Api>, Segment(id): Segment) -> Result<AdminAccount, ApiError> {
    let id: AccountId = id.parse().map_err(|_| unknown_account())?;
    read(api, id).await
}

async fn read(api: &Arc<Api>, id: AccountId) -> Result<AdminAccount, ApiError> {
    let found = account::admin_get(api.store.reader(), id).await?;
    found.ok_or_else(unknown_account)
}

/// The account that a query names, if it does.
fn account_of_query(query: &Query) -> Result<Option<AccountId>, ApiError> {
    query.parsed("account", "the id of an account")
}

/// The account as it is after an action.
async fn answer(api: &Arc<Api>, id: AccountId) -> Result<AccountAnswer, ApiError> {
    Ok(Json(Data { data: read(api, id).await? }))
}

/// Refuses to give credits to an account that is closed for good, which could not spend them. The account must be locked.
async fn check_open(conn: &mut Connection, account: AccountId) -> Result<(), ApiError> {
    if account::is_closed(conn, account).await? {
        return Err(ApiError::new(Code::Forbidden, "this account is closed: nobody could spend its credits"));
    }
    Ok(())
}

fn reason(body::Json(fields): body::Json) -> Result<String, ApiError> {
    fields.parse::<Reason>().map(|body| body.reason)
}

/// Records an action about the whole network, or about the Cargo, invitation, notice or payout of this name.
async fn record(
    conn: &mut Connection,
    operator: AccountId,
    kind: AdminAction,
    name: &str,
    amount: Option<MicroCredits>,
    reason: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let subject = Subject::Network(name);
    let action = Action { actor: Some(operator), kind, account: operator, subject, amount, reason };
    audit::insert(conn, &action, now).await
}

/// Claims the idempotency key of a request that creates `made`. Returns what it created if it was made before.
pub(crate) async fn made_before(
    api: &Api,
    conn: &mut Connection,
    key: Option<&IdempotencyKey>,
    account: AccountId,
    made: &str,
    now: Timestamp,
) -> Result<Option<String>, ApiError> {
    let Some(key) = key else { return Ok(None) };
    let claim = key.claim(account, api.rules.idempotency_ms);
    match idempotency::claim(conn, &claim, made, now).await? {
        Claimed::New => Ok(None),
        Claimed::Existing(earlier) => Ok(Some(earlier)),
        Claimed::Reused => Err(reused()),
    }
}

/// The id in a record of an idempotency key.
pub(crate) fn parse_made<T: FromStr>(made: &str) -> Result<T, ApiError> {
    made.parse().map_err(|_| StoreError::Corrupt { what: "made" }.into())
}
