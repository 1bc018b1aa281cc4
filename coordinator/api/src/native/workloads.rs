//! `GET /workloads` and `GET /workloads/:slug`: the catalogue with schemas and examples.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, WorkloadView, problem::Code};

use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_domain::catalogue::Cargo;

/// All Cargos.
pub(crate) async fn list(State(api): State<Arc<Api>>, _caller: Caller) -> Json<Data<Vec<WorkloadView>>> {
    let view = |cargo: &Cargo| cargo.view(api.network.is_enabled(&cargo.entry.slug));
    let catalogue = api.catalogue();
    Json(Data { data: catalogue.iter().map(|cargo| view(cargo)).collect() })
}

/// One Cargo.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Segment(slug): Segment,
) -> Result<Json<Data<WorkloadView>>, ApiError> {
    let cargo = api.catalogue().get(&slug).cloned();
    let cargo = cargo.ok_or_else(|| ApiError::new(Code::WorkloadNotFound, "there is no such Cargo"))?;
    Ok(Json(Data { data: cargo.view(api.network.is_enabled(&cargo.entry.slug)) }))
}
