//! `DELETE /jobs/:id`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{ids::JobId, job::JobStatus};
use island_protocol_api::{CancelledJob, Data, problem::Code};

use super::{own, unknown};
use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_domain::job::Canceller;
use island_coordinator_execution::Cancelled;

/// Cancels a job. Repeating it is not an error; cancelling a job that ended otherwise is.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<CancelledJob>>, ApiError> {
    let job = own(&api, &caller, &id).await?;
    answer_cancellation(job.id, api.execution.cancel(job.id, &Canceller::Consumer).await?)
}

/// The answer to a cancellation.
pub(crate) fn answer_cancellation(
    id: JobId,
    cancelled: Cancelled,
) -> Result<Json<Data<CancelledJob>>, ApiError> {
    match cancelled {
        Cancelled::Yes => Ok(Json(Data { data: CancelledJob { id, status: JobStatus::Cancelled } })),
        Cancelled::AlreadyFinal(status) => {
            Err(ApiError::new(Code::JobAlreadyFinal, format!("this job is {status} already")))
        }
        Cancelled::Moving => {
            Err(ApiError::new(Code::ServiceUnavailable, "this job is being moved between coordinators"))
        }
        Cancelled::Unknown => Err(unknown()),
    }
}
