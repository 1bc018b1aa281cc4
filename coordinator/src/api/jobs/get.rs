//! `GET /jobs/:id` and `GET /jobs/:id/output`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use island_protocol::{
    api::{Data, JobView},
    problem::Code,
};
use serde_json::{Value, json};

use super::own;
use crate::api::{Api, ApiError, auth::Caller};

/// One job.
pub(in crate::api) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Data<JobView>>, ApiError> {
    let job = own(&api, &caller, &id).await?;
    let live = api.owner.find(job.id);
    let mut view = job.view();
    if let Some(live) = live {
        live.overlay(&mut view);
    }
    Ok(Json(Data { data: view }))
}

/// The output of a completed job alone.
pub(in crate::api) async fn output(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Data<Value>>, ApiError> {
    let job = own(&api, &caller, &id).await?;
    let output = job.end.and_then(|end| end.output);
    let output =
        output.ok_or_else(|| ApiError::new(Code::NotFound, format!("this job is {}", job.status)))?;
    Ok(Json(Data { data: json!({ "id": job.id, "output": output }) }))
}
