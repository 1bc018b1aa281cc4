//! `GET /hosts`, `GET /hosts/:id` and `GET /hosts/:id/karma`.

pub(super) mod control;
pub(super) mod pair;

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::{
    api::{Data, HostView, network::HostKarma},
    problem::Code,
};
use tokio::time::Instant;

use super::{Api, ApiError, auth::Caller, segment::Segment};
use crate::fleet::IslandSummary;

/// All Islands.
pub(super) async fn list(State(api): State<Arc<Api>>, _caller: Caller) -> Json<Data<Vec<HostView>>> {
    let snapshot = api.execution.context().fleet.snapshot(Instant::now());
    Json(Data { data: snapshot.islands.iter().map(IslandSummary::view).collect() })
}

/// One Island.
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<HostView>>, ApiError> {
    Ok(Json(Data { data: find(&api, &id)? }))
}

/// An Island's karma: hours of successful computation.
pub(super) async fn karma(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<HostKarma>>, ApiError> {
    let view = find(&api, &id)?;
    let data = HostKarma { host_id: view.id, karma: view.karma, karma_score: view.karma_score };
    Ok(Json(Data { data }))
}

fn find(api: &Api, id: &str) -> Result<HostView, ApiError> {
    let view = id.parse().ok().and_then(|id| api.execution.context().fleet.view(id, Instant::now()));
    view.ok_or_else(|| ApiError::new(Code::HostNotFound, "there is no such Island"))
}
