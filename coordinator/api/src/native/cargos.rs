//! `GET /cargos`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::cargo::{Category, RuntimeType};
use island_protocol_api::{CargoList, problem::Code};

use crate::{Api, ApiError, http::query::Query};

/// Lists the Cargos that are served.
pub(crate) async fn list(State(api): State<Arc<Api>>, query: Query) -> Result<Json<CargoList>, ApiError> {
    let runtime = query.get("runtime_type").map(runtime_type).transpose()?;
    let category = query.get("category").map(category).transpose()?;
    let cargos: Vec<_> = api
        .catalogue()
        .iter()
        .filter(|cargo| api.network.is_enabled(&cargo.entry.slug))
        .filter(|cargo| runtime.as_ref().is_none_or(|runtime| cargo.entry.runtime_type == *runtime))
        .filter(|cargo| category.is_none() || cargo.entry.category == category)
        .map(|cargo| cargo.entry.clone())
        .collect();
    Ok(Json(CargoList { count: cargos.len(), cargos }))
}

fn runtime_type(name: &str) -> Result<RuntimeType, ApiError> {
    match RuntimeType::from(name.to_owned()) {
        RuntimeType::Unknown(_) => {
            let message = "runtime_type must be one of container, wasm, onnx, llmcpp, diffusers, coreml";
            Err(ApiError::field(Code::ValidationError, "runtime_type", message))
        }
        known => Ok(known),
    }
}

fn category(name: &str) -> Result<Category, ApiError> {
    serde_json::from_value(name.into()).map_err(|_| {
        let message = "category must be one of llm, image, audio, vision, text, utility";
        ApiError::field(Code::ValidationError, "category", message)
    })
}
