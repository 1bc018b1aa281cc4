//! `POST /embeddings`: runs a job of a Cargo that embeds texts and waits for it.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol_api::{
    chat::{Embedding, Embeddings, EmbeddingsRequest, Vector},
    problem::Code,
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::{
    Api, ApiError,
    http::{auth::Caller, body, idempotency::IdempotencyKey},
    openai::one_job::{self, Ability, Answered},
};
use island_coordinator_storage::idempotency::EMBEDDINGS;

pub(crate) const EMBEDS: Ability =
    Ability { does: "embeds texts", is_of: |cargo| cargo.reads_texts("feature-extraction") };

/// Embeds texts.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Result<body::Keyed, ApiError>,
) -> Result<Json<Embeddings>, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        let fields = fields.preferring()?;
        let key = IdempotencyKey::read(&headers, EMBEDDINGS, &fields)?;
        answer(&api, caller, fields.parse()?, key).await.map(Json)
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(
    api: &Arc<Api>,
    caller: Caller,
    request: EmbeddingsRequest,
    key: Option<IdempotencyKey>,
) -> Result<Embeddings, ApiError> {
    let is_base64 = request.encoding_format.as_deref() == Some("base64");
    let cargo = EMBEDS.named(&api.catalogue(), &request.model)?;
    let input = input(&request);
    let preferences = request.preferences.unwrap_or_default();
    let Answered { job, output, usage } = one_job::run(api, caller, &cargo, input, key, preferences).await?;
    let vectors = output.get("embeddings").map(Vec::<Vec<f32>>::deserialize);
    let Some(Ok(vectors)) = vectors else {
        return Err(ApiError::new(Code::JobFailed, "the output has no embeddings"));
    };
    let data = (0..).zip(vectors).map(|(index, vector)| Embedding {
        object: "embedding".to_owned(),
        index,
        embedding: if is_base64 { Vector::Base64(packed(&vector)) } else { Vector::Float(vector) },
    });
    Ok(Embeddings { object: "list".to_owned(), data: data.collect(), model: job.workload.to_string(), usage })
}

/// The input of a job.
fn input(request: &EmbeddingsRequest) -> Map<String, Value> {
    let inputs = [
        ("input", request.input.clone()),
        ("dimensions", json!(request.dimensions)),
        ("prompt", json!(request.prompt)),
    ];
    inputs
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn packed(vector: &[f32]) -> String {
    STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
}
