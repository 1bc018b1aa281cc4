//! `POST /embeddings`: runs a job of a Cargo that embeds texts and waits for it.

use std::sync::Arc;

use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    chat::{Embedding, Embeddings, EmbeddingsRequest, Vector},
    event::JobEvent,
    job::Usage,
    problem::Code,
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::{
    Api, ApiError,
    auth::Caller,
    availability, body,
    chat::reply::problem,
    jobs::{
        follow::{CancelOnDrop, Follower, follow},
        submit::{OnDisconnect, accept},
    },
};
use crate::catalogue::Cargo;

/// The task of a Cargo that embeds.
const TASK: &str = "feature-extraction";

/// Embeds texts.
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    request: Result<body::Keyed, ApiError>,
) -> Result<Json<Embeddings>, ApiError> {
    let answered = async {
        let body::Keyed { caller, fields } = request?;
        answer(&api, caller, fields.parse()?).await.map(Json)
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(api: &Arc<Api>, caller: Caller, request: EmbeddingsRequest) -> Result<Embeddings, ApiError> {
    let is_base64 = request.encoding_format.as_deref() == Some("base64");
    let catalogue = api.execution.context().catalogue();
    let embeds = |cargo: &&Arc<Cargo>| cargo.spec.onnx_task_type.as_deref() == Some(TASK);
    let cargo = catalogue.named(&request.model).filter(embeds).ok_or_else(|| {
        let known: Vec<&str> =
            catalogue.iter().filter(embeds).map(|cargo| cargo.entry.slug.as_str()).collect();
        let message = format!("no Cargo {:?} embeds texts; available: {}", request.model, known.join(", "));
        ApiError::field(Code::WorkloadNotFound, "model", message)
    })?;
    availability::check(api, &caller, cargo, None).await?;
    let accepted = accept(api, caller, cargo, input(&request), 0, None, OnDisconnect::Cancel).await?;
    let (guard, job, _) = follow(api, accepted).await?;
    let (output, usage) = end(api, guard, job.workload.as_str()).await?;
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

/// Waits for the end of a job.
async fn end(api: &Api, guard: CancelOnDrop, slug: &str) -> Result<(Value, Usage), ApiError> {
    let mut follower = Follower::new(guard);
    follower.begin(api.rules.chat_wait, slug).await?;
    loop {
        match &follower.next().await?.event.event {
            JobEvent::Done { usage, output, .. } => {
                return Ok((output.clone().unwrap_or_default(), usage.clone()));
            }
            JobEvent::Error { error, code } => return Err(problem(code, error)),
            _ => {}
        }
    }
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
