//! `GET /admin/audit-log`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Page, PageMeta, admin::AuditEntry};

use super::account_of_query;
use crate::{
    Api, ApiError,
    http::{auth::Operator, query::Query},
};
use island_coordinator_storage::audit;

/// What operators did, newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Page<AuditEntry>>, ApiError> {
    let requested = query.page()?;
    let account = account_of_query(&query)?;
    let reader = api.store.reader();
    let (data, total) = audit::page(reader, account, requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}
