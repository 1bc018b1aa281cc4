//! Bodies of `POST /completions`: text that continues a text, or fills the gap before another one. Unknown fields are ignored.

use std::collections::BTreeMap;

use island_protocol::job::{FinishReason, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    chat::{StreamOptions, null_as_default},
    preferences::Preferences,
};

/// A request for a completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CompletionRequest {
    /// A well-known name, a slug, an alias or any other name; unknown names select the default model.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    pub model: String,
    /// The text before the completion: a string, or a list of one string. It is not put into a chat template.
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "string", "minLength": 1}},
    ])))]
    pub prompt: Value,
    /// The text after the completion, for models that fill gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// Maximum number of tokens to generate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64)))]
    pub max_tokens: Option<u64>,
    /// 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 2)))]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub top_p: Option<f64>,
    /// -2 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = -2, max = 2)))]
    pub presence_penalty: Option<f64>,
    /// -2 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = -2, max = 2)))]
    pub frequency_penalty: Option<f64>,
    /// Numbers from -100 to 100 that are added to the logits of tokens, by the number of the token in the model's own vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxProperties" = 1024)))]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Number of most likely tokens at each position whose probabilities are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 20)))]
    pub logprobs: Option<u32>,
    /// Seed of the sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = -9_223_372_036_854_775_808_i64, max = 9_223_372_036_854_775_807_i64)))]
    pub seed: Option<i64>,
    /// A string or a list of up to 4 strings that end the completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string", "minLength": 1},
        {"type": "array", "maxItems": 4, "items": {"type": "string", "minLength": 1}},
        {"type": "null"},
    ])))]
    pub stop: Option<Value>,
    /// Whether the answer begins with the prompt.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub echo: bool,
    /// Number of completions. Each is a job of its own, with its price; with a seed, each has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 8)))]
    pub n: Option<u32>,
    /// Whether to answer with Server-Sent Events.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub stream: bool,
    /// Options of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Names of models to use, in order, if no Island can serve `model` now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 8)))]
    pub models: Option<Vec<String>>,
    /// Which Islands and models may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// A completion, or a part of a streamed one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Completion {
    /// `cmpl-` and the job id.
    pub id: String,
    /// `text_completion`.
    pub object: String,
    /// Unix seconds.
    pub created: i64,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// A choice for each requested completion; in a stream, one, or none in the part that contains only usage.
    pub choices: Vec<CompletionChoice>,
    /// Token counts; in a stream, in the last part if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The text inside a [`Completion`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CompletionChoice {
    /// Index of the completion, from 0.
    pub index: u32,
    /// The text; in a stream, what is new of it.
    pub text: String,
    /// Probabilities of its tokens, if requested.
    pub logprobs: Option<CompletionLogprobs>,
    /// Why it ended; null until the end.
    pub finish_reason: Option<FinishReason>,
}

/// Probabilities of the tokens of a completion, in lists of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CompletionLogprobs {
    /// The tokens.
    pub tokens: Vec<String>,
    /// Logarithms of their probabilities.
    pub token_logprobs: Vec<f64>,
    /// The most likely tokens at each position.
    pub top_logprobs: Vec<BTreeMap<String, f64>>,
    /// Where each token begins in the text, in characters.
    pub text_offset: Vec<u64>,
}
