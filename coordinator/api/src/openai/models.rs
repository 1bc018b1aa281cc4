//! `GET /models`: the models that endpoints of other APIs serve, in OpenAI's form.
//!
//! As in OpenRouter's API, the list has the models that write texts, for clients that let people choose a model to chat with; others are listed
//! for a request that names what they make.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use island_protocol::{cargo::CargoEntry, credits::MicroCredits};
use island_protocol_api::{
    model::{Model, ModelList, Pricing},
    problem::Code,
};

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query},
    openai::{
        audio, embeddings, images, moderations, one_job::Ability, openai_form::OpenAiForm, rerank, speech,
    },
};
use island_coordinator_domain::catalogue::Cargo;

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

/// What models make, under the names of OpenRouter's list, which has no name for those that moderate.
const OUTPUTS: [(&str, Ability); 8] = [
    ("text", CHATS),
    ("image", images::MAKES_IMAGES),
    ("image", images::EDITS_IMAGES),
    ("embeddings", embeddings::EMBEDS),
    ("rerank", rerank::RANKS),
    ("speech", speech::SPEAKS),
    ("transcription", audio::TRANSCRIBES),
    ("moderation", moderations::MODERATES),
];
/// The value of the parameter for all of them.
const ALL: &str = "all";

const CHATS: Ability = Ability { does: "chats", is_of: Cargo::is_chat };

/// What a Cargo makes; empty if no endpoint serves it.
fn outputs(cargo: &Cargo) -> Vec<&'static str> {
    let mut outputs: Vec<&str> =
        OUTPUTS.iter().filter(|(_, ability)| (ability.is_of)(cargo)).map(|&(name, _)| name).collect();
    outputs.dedup();
    outputs
}

/// What a Cargo that is not for chats is given.
fn inputs(cargo: &Cargo) -> Vec<&'static str> {
    if cargo.transcribes() {
        return vec!["audio"];
    }
    let takes_image = (images::EDITS_IMAGES.is_of)(cargo).then_some("image");
    ["text"].into_iter().chain(takes_image).collect()
}

fn model(cargo: &Cargo) -> Model {
    let CargoEntry { price_per_job, token_prices, .. } = &cargo.entry;
    let has = |name: &str, input: &str| cargo.takes(input) && (name != "reasoning" || cargo.reasons());
    let inputs = if cargo.is_chat() {
        let others = [cargo.sees().then_some("image"), cargo.takes_sounds().then_some("audio")];
        ["text"].into_iter().chain(others.into_iter().flatten()).collect()
    } else {
        inputs(cargo)
    };
    let limit = Some(cargo.spec.limits.max_tokens).filter(|limit| *limit > 0);
    // Other models than those for chats have a number only if their Cargo states it, and write nothing.
    let (context_length, max_output_length) = if cargo.is_chat() {
        (cargo.context_tokens(), limit.unwrap_or(u64::MAX).min(cargo.context_tokens()))
    } else {
        (cargo.spec.limits.context_tokens, 0)
    };
    Model {
        id: cargo.entry.slug.clone(),
        object: "model".to_owned(),
        created: CREATED,
        owned_by: cargo.entry.published.map_or("island".to_owned(), |by| by.publisher.to_string()),
        name: cargo.entry.name.clone(),
        description: cargo.entry.description.clone(),
        context_length,
        max_output_length,
        input_modalities: inputs.into_iter().map(str::to_owned).collect(),
        output_modalities: outputs(cargo).into_iter().map(str::to_owned).collect(),
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

/// All names of what models make.
fn output_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = OUTPUTS.iter().map(|&(name, _)| name).collect();
    names.dedup();
    names
}

/// The regular expression of the parameter of [`list`].
pub(crate) fn output_pattern() -> String {
    let name = format!("({}|{ALL})", output_names().join("|"));
    format!("^ *{name}( *, *{name})* *$")
}

/// The names of what the models of a list make. Without the parameter they write texts.
fn wanted(query: &Query) -> Result<Vec<&str>, ApiError> {
    let names = query.get("output_modalities").unwrap_or("text");
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    let is_known = |name: &&str| *name == ALL || OUTPUTS.iter().any(|(known, _)| known == name);
    if names.iter().all(is_known) {
        return Ok(names);
    }
    let known = output_names();
    let message = format!("output_modalities must be {ALL}, or some of {} with commas", known.join(", "));
    Err(ApiError::field(Code::ValidationError, "output_modalities", message))
}

/// The models of the catalogue that make what is wanted, by slug.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    OpenAiForm(_): OpenAiForm<Caller>,
    OpenAiForm(query): OpenAiForm<Query>,
) -> Result<Json<ModelList>, ApiError> {
    let wanted = wanted(&query).map_err(ApiError::in_openai_form)?;
    let is_wanted = |cargo: &Cargo| {
        let outputs = outputs(cargo);
        let is_one = |name: &str| name == ALL || outputs.contains(&name);
        !outputs.is_empty() && wanted.iter().any(|name| is_one(name))
    };
    let catalogue = api.catalogue();
    let mut data: Vec<Model> = catalogue
        .iter()
        .filter(|cargo| is_wanted(cargo) && api.network.is_enabled(&cargo.entry.slug))
        .map(|cargo| model(cargo))
        .collect();
    data.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    Ok(Json(ModelList { object: "list".to_owned(), data }))
}

/// One model, by slug or alias.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    OpenAiForm(_): OpenAiForm<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Model>, ApiError> {
    let catalogue = api.catalogue();
    let cargo = catalogue
        .named(&name)
        .filter(|cargo| !outputs(cargo).is_empty() && api.network.is_enabled(&cargo.entry.slug))
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
