//! `GET /jobs`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::api::{JobSummary, Page, PageMeta};

use crate::{
    api::{Api, ApiError, auth::Caller, query::Query},
    storage::jobs,
};

/// The caller's jobs, newest first.
pub(in crate::api) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Json<Page<JobSummary>>, ApiError> {
    let requested = query.page()?;
    let after = query.parsed("after", "the id of a job")?;
    let live_states = api.execution.live_states(caller.account);
    let reader = api.execution.context().store.reader();
    let page = jobs::page(reader, caller.account, after, requested.limit, requested.offset).await?;
    let mut data = page.jobs;
    for job in &mut data {
        if let Some(live_state) = live_states.get(&job.id) {
            live_state.overlay(job);
        }
    }
    Ok(Json(Page { data, meta: PageMeta { total: page.total, ..requested } }))
}
