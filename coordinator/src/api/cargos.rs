//! `GET /cargos`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use island_protocol::{
    api::CargoList,
    cargo::{Category, RuntimeType},
    problem::Code,
};
use serde::Deserialize;

use super::{Api, ApiError};

/// The filters.
#[derive(Debug, Deserialize)]
pub(super) struct Filter {
    runtime_type: Option<String>,
    category: Option<String>,
}

/// Lists the Cargos that are served.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Json<CargoList>, ApiError> {
    let Query(filter) = filter.map_err(|error| ApiError::new(Code::InvalidRequest, error.body_text()))?;
    let runtime = filter.runtime_type.map(runtime_type).transpose()?;
    let category = filter.category.map(category).transpose()?;
    let cargos: Vec<_> = api
        .owner
        .context()
        .catalogue
        .iter()
        .filter(|cargo| runtime.as_ref().is_none_or(|runtime| cargo.entry.runtime_type == *runtime))
        .filter(|cargo| category.is_none() || cargo.entry.category == category)
        .map(|cargo| cargo.entry.clone())
        .collect();
    Ok(Json(CargoList { count: cargos.len(), cargos }))
}

fn runtime_type(name: String) -> Result<RuntimeType, ApiError> {
    match RuntimeType::from(name) {
        RuntimeType::Unknown(_) => {
            let message = "runtime_type must be one of container, wasm, onnx, llmcpp, diffusers, coreml";
            Err(ApiError::field(Code::ValidationError, "runtime_type", message))
        }
        known => Ok(known),
    }
}

fn category(name: String) -> Result<Category, ApiError> {
    serde_json::from_value(name.into()).map_err(|_| {
        let message = "category must be one of llm, image, audio, vision, text, utility";
        ApiError::field(Code::ValidationError, "category", message)
    })
}
