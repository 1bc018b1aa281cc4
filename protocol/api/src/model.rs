//! `/models`: the list of models in the format of OpenAI's API.

use island_protocol::ids::Slug;
use serde::{Deserialize, Serialize};

/// Answer to `GET /models`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ModelList {
    /// `list`.
    pub object: String,
    /// The models.
    pub data: Vec<Model>,
}

/// A Cargo that an endpoint of another API serves, such as one that chats or embeds texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Model {
    /// Slug of the Cargo.
    pub id: Slug,
    /// `model`.
    pub object: String,
    /// Unix seconds.
    pub created: i64,
    /// Name of the provider.
    pub owned_by: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Maximum number of tokens, prompt and reply together; 0 if the model has none.
    #[serde(default)]
    pub context_length: u64,
    /// Maximum number of tokens of a reply; 0 if the model writes no text.
    #[serde(default)]
    pub max_output_length: u64,
    /// What requests may contain: `text`, `image`, `audio`.
    #[serde(default)]
    pub input_modalities: Vec<String>,
    /// What it makes: `text`, `image`, `embeddings`, `rerank`, `speech`, `transcription`, `moderation`.
    #[serde(default)]
    pub output_modalities: Vec<String>,
    /// How its weights are stored, such as `q4_k_m`; absent if the file's name does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Prices.
    #[serde(default)]
    pub pricing: Pricing,
    /// Settings of requests that it follows.
    #[serde(default)]
    pub supported_sampling_parameters: Vec<String>,
    /// `tools`, `json_mode`, `structured_outputs`, `logprobs`, `reasoning`.
    #[serde(default)]
    pub supported_features: Vec<String>,
}

/// Prices of a model in credits, as decimal numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Pricing {
    /// For a token of the prompt.
    pub prompt: String,
    /// For a token of the reply.
    pub completion: String,
    /// For a request.
    pub request: String,
}
