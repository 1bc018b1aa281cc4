//! `GET /jobs`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use island_protocol::{
    api::{JobSummary, Page, PageMeta},
    problem::Code,
};
use serde::Deserialize;

use crate::{
    api::{Api, ApiError, auth::Caller},
    storage::job,
};

/// Which page.
#[derive(Debug, Deserialize)]
pub(in crate::api) struct Which {
    limit: Option<i64>,
    offset: Option<i64>,
}

/// The caller's jobs, newest first.
pub(in crate::api) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Page<JobSummary>>, ApiError> {
    let Query(which) =
        which.map_err(|_| ApiError::new(Code::InvalidRequest, "limit and offset must be integers"))?;
    let limit = which.limit.unwrap_or(20);
    if !(1..=100).contains(&limit) {
        return Err(ApiError::field(Code::ValidationError, "limit", "limit must be from 1 to 100"));
    }
    let offset = u64::try_from(which.offset.unwrap_or(0))
        .map_err(|_| ApiError::field(Code::InvalidRequest, "offset", "offset must not be negative"))?;
    let limit = limit as u64;
    let page = job::page(api.owner.context().store.reader(), caller.account, limit, offset).await?;
    let mut data = page.jobs;
    for job in data.iter_mut().filter(|job| !job.status.is_final()) {
        if let Some(live) = api.owner.find(job.id) {
            job.status = live.state().status;
        }
    }
    Ok(Json(Page { data, meta: PageMeta { total: page.total, limit, offset } }))
}
