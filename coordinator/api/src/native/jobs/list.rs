//! `GET /jobs`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::job::JobStatus;
use island_protocol_api::{JobSummary, Page, PageMeta};

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query},
    native::statement::time,
};
use island_coordinator_storage::jobs::{self, JobFilter, Position};

/// The caller's jobs, newest first. What a job does now is in memory; a page of those in one state is one of stored states, which follow within
/// a second.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Json<Page<JobSummary>>, ApiError> {
    let requested = query.page()?;
    let after = query.parsed("after", "the id of a job")?;
    let filter = filter(&query)?;
    let live_states = api.execution.live_states(caller.account);
    let reader = api.store.reader();
    let position = Position { after, limit: requested.limit, offset: requested.offset };
    let page = jobs::page(reader, caller.account, &filter, position).await?;
    let mut data = page.jobs;
    for job in data.iter_mut().filter(|_| filter.status.is_none()) {
        if let Some(live_state) = live_states.get(&job.id) {
            live_state.overlay(job);
        }
    }
    Ok(Json(Page { data, meta: PageMeta { total: page.total, ..requested } }))
}

/// Reads the filter. A span that ends before it begins has no jobs.
fn filter(query: &Query) -> Result<JobFilter, ApiError> {
    Ok(JobFilter {
        status: query.parsed("status", &one_of_states())?,
        cargo: query.parsed("workload", "the slug of a Cargo")?,
        key: query.parsed("key", "the id of a key")?,
        from: time(query, "from")?,
        until: time(query, "until")?,
    })
}

fn one_of_states() -> String {
    let names: Vec<&str> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
    format!("one of {}", names.join(", "))
}
