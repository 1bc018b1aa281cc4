//! `GET /jobs/:id` and `GET /jobs/:id/output`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, JobOutput, JobView, problem::Code};

use super::{own, parse_id};
use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_storage::retention;

/// One job.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<JobView>>, ApiError> {
    let live_state = api.execution.live_state(parse_id(&id)?);
    let job = own(&api, &caller, &id).await?;
    let mut data = job.view(live_state);
    if data.completed_at.is_some() {
        data.data_deleted_at = retention::deleted_at(api.store.reader(), data.id).await?;
    }
    Ok(Json(Data { data }))
}

/// The output of a completed job alone.
pub(crate) async fn output(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<JobOutput>>, ApiError> {
    let job = own(&api, &caller, &id).await?;
    let output = job.end.and_then(|end| end.output);
    let output =
        output.ok_or_else(|| ApiError::new(Code::NotFound, format!("this job is {}", job.status)))?;
    Ok(Json(Data { data: JobOutput { id: job.id, output } }))
}
