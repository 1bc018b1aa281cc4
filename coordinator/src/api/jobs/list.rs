//! `GET /jobs`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::api::{JobSummary, Page, PageMeta};

use crate::{
    api::{Api, ApiError, auth::Caller, query::Query},
    storage::job,
};

/// The caller's jobs, newest first.
pub(in crate::api) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Json<Page<JobSummary>>, ApiError> {
    let asked = query.page()?;
    let standings = api.owner.standings(caller.account);
    let page =
        job::page(api.owner.context().store.reader(), caller.account, asked.limit, asked.offset).await?;
    let mut data = page.jobs;
    for job in &mut data {
        if let Some(standing) = standings.get(&job.id) {
            standing.overlay(job);
        }
    }
    Ok(Json(Page { data, meta: PageMeta { total: page.total, ..asked } }))
}
