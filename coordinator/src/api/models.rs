//! `GET /models`: the models of `POST /chat/completions`, in OpenAI's form.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use island_protocol::{
    api::model::{Model, ModelList},
    problem::Code,
};

use super::{Api, ApiError, auth::Caller};
use crate::catalogue::Cargo;

/// Unix seconds for every model: clients expect a number, and the catalogue has no dates.
const CREATED: i64 = 0;

fn model(cargo: &Cargo) -> Model {
    Model {
        id: cargo.entry.slug.clone(),
        object: "model".to_owned(),
        created: CREATED,
        owned_by: cargo.entry.published.map_or("island".to_owned(), |by| by.publisher.to_string()),
    }
}

/// The chat models of the catalogue, by slug.
pub(super) async fn list(State(api): State<Arc<Api>>, _caller: Caller) -> Json<ModelList> {
    let catalogue = api.execution.context().catalogue();
    let mut data: Vec<Model> = catalogue
        .iter()
        .filter(|cargo| cargo.is_chat() && api.network.is_enabled(&cargo.entry.slug))
        .map(|cargo| model(cargo))
        .collect();
    data.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    Json(ModelList { object: "list".to_owned(), data })
}

/// One model, by slug or alias.
pub(super) async fn get(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<Model>, ApiError> {
    let catalogue = api.execution.context().catalogue();
    let cargo = catalogue
        .named(&name)
        .filter(|cargo| cargo.is_chat())
        .ok_or_else(|| ApiError::new(Code::WorkloadNotFound, "there is no such model").in_openai_form())?;
    Ok(Json(model(cargo)))
}
