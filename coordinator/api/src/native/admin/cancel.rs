//! `POST /admin/jobs/:id/cancel`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::JobId;
use island_protocol_api::{CancelledJob, Data, problem::Code};

use super::reason;
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, segment::Segment},
    native::jobs,
};
use island_coordinator_domain::job::Canceller;

/// Cancels a job of any account, at the coordinator that executes it. The audit log is written with the end of the job, so that it
/// has what was done once, and nothing where the job ended otherwise. Repeating it is not an error.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Segment(id): Segment,
    body: body::Json,
) -> Result<Json<Data<CancelledJob>>, ApiError> {
    let reason = reason(body)?;
    let id: JobId = id.parse().map_err(|_| ApiError::new(Code::JobNotFound, "there is no such job"))?;
    let canceller = Canceller::Operator { account: operator.account, reason };
    jobs::cancel::answer_cancellation(id, api.execution.cancel(id, &canceller).await?)
}
