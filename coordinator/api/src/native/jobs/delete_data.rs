//! `DELETE /jobs/:id/data`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, DeletedJobData, problem::Code};

use super::{parse_id, unknown};
use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_storage::{commit, jobs, retention};

/// Deletes input, output and events of a job that has ended. Repeating it is not an error.
pub(crate) async fn delete_data(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<DeletedJobData>>, ApiError> {
    let id = parse_id(&id)?;
    jobs::has_ended(api.store.reader(), id, caller.account).await?.ok_or_else(unknown)?;
    let mut tx = api.store.begin().await?;
    let deleted_at = retention::delete(&mut tx, id, api.clock.now()).await?;
    let deleted_at = deleted_at
        .ok_or_else(|| ApiError::new(Code::JobNotFinal, "this job has not ended yet; cancel it first"))?;
    commit(tx).await?;
    Ok(Json(Data { data: DeletedJobData { id, deleted_at } }))
}
