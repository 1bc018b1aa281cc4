//! `GET /account/ledger`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Page, PageMeta, ledger::LedgerEntry};

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query},
};
use island_coordinator_storage::ledger;

/// Every movement of the account's credits, newest first.
pub(crate) async fn entries(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Json<Page<LedgerEntry>>, ApiError> {
    let requested = query.page()?;
    let after = query.parsed("after", "the id of an entry")?;
    let reader = api.store.reader();
    let (data, total) =
        ledger::page(reader, caller.account, after, requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}
