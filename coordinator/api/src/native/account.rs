//! `GET /account`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{AccountView, Data, problem::Code};

use crate::{Api, ApiError, http::auth::Caller};
use island_coordinator_storage::{account, ledger};

/// The caller's account. `credits` is what may be spent: the balance less what open jobs hold.
pub(crate) async fn account(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Json<Data<AccountView>>, ApiError> {
    let reader = api.store.reader();
    let account = account::get(reader, caller.account).await?;
    let account = account
        .ok_or_else(|| ApiError::new(Code::InvalidApiKey, "the account of this key no longer exists"))?;
    let credits = ledger::balance(reader, account.id).await?;
    let data = AccountView { id: account.id, email: account.email, credits, created_at: account.created_at };
    Ok(Json(Data { data }))
}
