//! `POST /embeddings`: runs a job of a Cargo that embeds texts and waits for it.

use std::sync::Arc;

use axum::{Json, extract::State};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    chat::{Embedding, Embeddings, Vector},
    event::JobEvent,
    job::Usage,
    problem::Code,
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::{
    Api, ApiError,
    auth::Caller,
    availability,
    body::{self, Fields},
    chat::reply::problem,
    jobs::{
        follow::{CancelOnDrop, Follower, follow},
        submit::{OnDisconnect, accept},
    },
};
use crate::catalogue::Cargo;

/// The task of a Cargo that embeds.
const TASK: &str = "feature-extraction";

/// A checked request.
#[derive(Debug)]
struct Asked {
    model: String,
    input: Map<String, Value>,
    is_base64: bool,
}

/// Embeds texts.
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    caller: Result<Caller, ApiError>,
    body: Result<body::Json, ApiError>,
) -> Result<Json<Embeddings>, ApiError> {
    let answered = async {
        let caller = caller?;
        let body::Json(fields) = body?;
        answer(&api, caller, Asked::parse(fields)?).await.map(Json)
    };
    answered.await.map_err(ApiError::in_openai_form)
}

async fn answer(api: &Arc<Api>, caller: Caller, asked: Asked) -> Result<Embeddings, ApiError> {
    let catalogue = &api.execution.context().catalogue;
    let embeds = |cargo: &&Cargo| cargo.spec.onnx_task_type.as_deref() == Some(TASK);
    let cargo = catalogue.named(&asked.model).filter(embeds).ok_or_else(|| {
        let known: Vec<&str> =
            catalogue.iter().filter(embeds).map(|cargo| cargo.entry.slug.as_str()).collect();
        let message =
            format!("no Cargo called {:?} embeds texts; those there are: {}", asked.model, known.join(", "));
        ApiError::field(Code::WorkloadNotFound, "model", message)
    })?;
    availability::check(api, &caller, cargo, None).await?;
    let accepted = accept(api, caller, cargo, asked.input, 0, None, OnDisconnect::Cancel).await?;
    let (guard, job, _) = follow(api, accepted).await?;
    let (output, usage) = end(api, guard, job.workload.as_str()).await?;
    let vectors = output.get("embeddings").map(Vec::<Vec<f32>>::deserialize);
    let Some(Ok(vectors)) = vectors else {
        return Err(ApiError::new(Code::JobFailed, "the Cargo gave no embeddings"));
    };
    let data = (0..).zip(vectors).map(|(index, vector)| Embedding {
        object: "embedding".to_owned(),
        index,
        embedding: if asked.is_base64 { Vector::Base64(packed(&vector)) } else { Vector::Float(vector) },
    });
    Ok(Embeddings { object: "list".to_owned(), data: data.collect(), model: job.workload.to_string(), usage })
}

/// Waits for the end of a job.
async fn end(api: &Api, guard: CancelOnDrop, slug: &str) -> Result<(Value, Usage), ApiError> {
    let mut follower = Follower::new(guard);
    follower.begin(api.rules.chat_wait, slug).await?;
    loop {
        match &follower.next().await?.event.event {
            JobEvent::Done { usage, output, .. } => return Ok((output.clone().unwrap_or_default(), *usage)),
            JobEvent::Error { error, code } => return Err(problem(code, error)),
            _ => {}
        }
    }
}

impl Asked {
    fn parse(mut fields: Fields) -> Result<Self, ApiError> {
        let invalid = |param: &str, message: &str| ApiError::field(Code::ValidationError, param, message);
        let texts = fields.required("input")?;
        match &texts {
            Value::String(_) => {}
            Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_string) => {}
            Value::Array(list) if list.iter().any(|item| item.is_number() || item.is_array()) => {
                return Err(invalid("input", "token ids mean something else to every model: send texts"));
            }
            _ => return Err(invalid("input", "input must be a text or a list of texts")),
        }
        let is_base64 = match fields.string("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(invalid("encoding_format", "encoding_format must be float or base64")),
        };
        let model = fields.string("model")?.filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| invalid("model", "model must name a Cargo that embeds texts"))?;
        let mut input = Map::from_iter([("input".to_owned(), texts)]);
        if let Some(dimensions) = fields.integer("dimensions", 1..=1 << 20)? {
            input.insert("dimensions".to_owned(), json!(dimensions));
        }
        if let Some(prompt) = fields.string("prompt")? {
            input.insert("prompt".to_owned(), prompt.into());
        }
        Ok(Self { model, input, is_base64 })
    }
}

fn packed(vector: &[f32]) -> String {
    STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
}
