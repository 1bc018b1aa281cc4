//! `GET /hosts` and `GET /hosts/:id`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{
    api::{Data, HostView},
    problem::Code,
};
use tokio::time::Instant;

use super::{Api, ApiError, auth::Caller, segment::Segment};

/// All Islands.
pub(super) async fn list(State(api): State<Arc<Api>>, _caller: Caller) -> Json<Data<Vec<HostView>>> {
    Json(Data { data: api.owner.context().fleet.views(Instant::now()) })
}

/// One Island.
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<HostView>>, ApiError> {
    let view = id.parse().ok().and_then(|id| api.owner.context().fleet.view(id, Instant::now()));
    let data = view.ok_or_else(|| ApiError::new(Code::HostNotFound, "there is no such Island"))?;
    Ok(Json(Data { data }))
}
