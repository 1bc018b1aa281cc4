//! `GET /models`: the models of `POST /chat/completions`, in OpenAI's form.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use island_protocol::{
    api::model::{Model, ModelList, Pricing},
    cargo::CargoEntry,
    credits::MicroCredits,
    problem::Code,
};

use super::{Api, ApiError, auth::Caller};
use crate::catalogue::Cargo;

/// Unix seconds for every model: clients expect a number, and the catalogue has no dates.
const CREATED: i64 = 0;

/// Settings of requests that engines may follow, under the names of OpenRouter's list.
const SAMPLING: [&str; 11] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "seed",
    "max_tokens",
    "logit_bias",
];
/// Features under the names of OpenRouter's list, and the input of a Cargo that shows each.
const FEATURES: [(&str, &str); 5] = [
    ("tools", "tools"),
    ("json_mode", "response_format"),
    ("structured_outputs", "response_format"),
    ("logprobs", "logprobs"),
    ("reasoning", "reasoning_effort"),
];

fn model(cargo: &Cargo) -> Model {
    let CargoEntry { price_per_job, token_prices, .. } = &cargo.entry;
    let has = |name: &str, input: &str| cargo.takes(input) && (name != "reasoning" || cargo.reasons());
    let inputs = ["text"]
        .into_iter()
        .chain(cargo.sees().then_some("image"))
        .chain(cargo.takes_sounds().then_some("audio"));
    let limit = Some(cargo.spec.limits.max_tokens).filter(|limit| *limit > 0);
    Model {
        id: cargo.entry.slug.clone(),
        object: "model".to_owned(),
        created: CREATED,
        owned_by: cargo.entry.published.map_or("island".to_owned(), |by| by.publisher.to_string()),
        name: cargo.entry.name.clone(),
        description: cargo.entry.description.clone(),
        context_length: cargo.context_tokens(),
        max_output_length: limit.unwrap_or(u64::MAX).min(cargo.context_tokens()),
        input_modalities: inputs.map(str::to_owned).collect(),
        output_modalities: vec!["text".to_owned()],
        quantization: cargo.quantization(),
        pricing: Pricing {
            prompt: per_token(token_prices.price_per_1k_input),
            completion: per_token(token_prices.price_per_1k_output),
            request: price_per_job.to_string(),
        },
        supported_sampling_parameters: SAMPLING
            .iter()
            .filter(|name| cargo.takes(name))
            .map(|&name| name.to_owned())
            .collect(),
        supported_features: FEATURES
            .iter()
            .filter(|(name, input)| has(name, input))
            .map(|&(name, _)| name.to_owned())
            .collect(),
    }
}

/// The price of one token of 1,000, exactly.
fn per_token(MicroCredits(price): MicroCredits) -> String {
    let digits = format!("{:09}", price % 1_000_000_000);
    let digits = digits.trim_end_matches('0');
    let whole = price / 1_000_000_000;
    if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_of_one_token_are_exact() {
        let price = |micro| per_token(MicroCredits(micro));
        assert_eq!(price(0), "0");
        assert_eq!(price(1), "0.000000001");
        assert_eq!(price(1_500_000), "0.0015");
        assert_eq!(price(2_000_000_000), "2");
        assert_eq!(price(2_000_000_010), "2.00000001");
    }
}
