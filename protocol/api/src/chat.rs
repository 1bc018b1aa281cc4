//! Bodies of `POST /chat/completions`. Unknown fields are ignored, as OpenAI-compatible servers do.

use std::collections::BTreeMap;

use island_protocol::{
    job::{FinishReason, Usage},
    reply::TokenLogprob,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::preferences::Preferences;

/// A chat request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChatRequest {
    /// A well-known name, a slug, an alias or any other name; unknown names select the default model.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    pub model: String,
    /// The conversation so far.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1)))]
    pub messages: Vec<ChatMessage>,
    /// Maximum number of tokens to generate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64)))]
    pub max_tokens: Option<u64>,
    /// Newer name of `max_tokens`, which it overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64)))]
    pub max_completion_tokens: Option<u64>,
    /// 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 2)))]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub top_p: Option<f64>,
    /// Tokens less likely than this share of the most likely one are left out. Not in OpenAI's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub min_p: Option<f64>,
    /// Number of most likely tokens to sample from; 0 for all. Not in OpenAI's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 2_147_483_647)))]
    pub top_k: Option<i64>,
    /// Factor against repetition, 1 for none. Not in OpenAI's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0.1, max = 10.0)))]
    pub repetition_penalty: Option<f64>,
    /// Seed of the sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = -9_223_372_036_854_775_808_i64, max = 9_223_372_036_854_775_807_i64)))]
    pub seed: Option<i64>,
    /// A string or a list of up to 4 strings that end the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string", "minLength": 1},
        {"type": "array", "maxItems": 4, "items": {"type": "string", "minLength": 1}},
        {"type": "null"},
    ])))]
    pub stop: Option<Value>,
    /// -2 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = -2, max = 2)))]
    pub presence_penalty: Option<f64>,
    /// -2 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = -2, max = 2)))]
    pub frequency_penalty: Option<f64>,
    /// Whether to answer with Server-Sent Events.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub stream: bool,
    /// Options of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Number of replies. Each is a job of its own, with its price; with a seed, each has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 8)))]
    pub n: Option<u32>,
    /// Whether the answer contains the probability of each token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// Number of most likely tokens at each position whose probabilities are returned as well. Needs `logprobs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 20)))]
    pub top_logprobs: Option<u32>,
    /// Numbers from -100 to 100 that are added to the logits of tokens, by the number of the token in the model's own vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxProperties" = 1024)))]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Whether the reply may call several functions. True by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Names of models to use, in order, if no Island can serve `model` now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 8)))]
    pub models: Option<Vec<String>>,
    /// Which Islands and models may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
    /// `{"type": "text" | "json_object"}`, or `{"type": "json_schema", "json_schema": {"name", "schema"}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object"]}}},
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {"type": "object", "required": ["schema"], "properties": {"schema": {"type": "object"}}},
            },
        },
        {"type": "null"},
    ])))]
    pub response_format: Option<Value>,
    /// Functions that the reply may call: `{"type": "function", "function": {"name", "description", "parameters"}}`. Tools of other types
    /// are accepted, and not offered to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxItems" = 128, "items" = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}},
        "if": {"properties": {"type": {"const": "function"}}},
        "then": {"required": ["function"], "properties": {
            "function": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}},
            },
        }},
    })))]
    pub tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, one function, or `{"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// How much the model reasons before it answers; `none` for not at all. Models that do not reason ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["none", "minimal", "low", "medium", "high", "xhigh", "max", null])))]
    pub reasoning_effort: Option<String>,
    /// Maximum number of tokens of the reasoning; 0 for none. Not in OpenAI's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 9_223_372_036_854_775_807_u64)))]
    pub max_reasoning_tokens: Option<u64>,
    /// `{"effort", "max_tokens", "enabled", "exclude"}`, as OpenRouter's clients send: `effort` and `max_tokens` are `reasoning_effort` and
    /// `max_reasoning_tokens`, and `exclude` leaves the reasoning out of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningOptions>,
    /// Variables of chat templates, as vLLM's and llama.cpp's clients send; only `enable_thinking` and `thinking` are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template_kwargs: Option<TemplateOptions>,
}

/// How a model reasons before it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ReasoningOptions {
    /// As [`ChatRequest::reasoning_effort`], which overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["none", "minimal", "low", "medium", "high", "xhigh", "max", null])))]
    pub effort: Option<String>,
    /// As [`ChatRequest::max_reasoning_tokens`], which overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 9_223_372_036_854_775_807_u64)))]
    pub max_tokens: Option<u64>,
    /// Whether the model reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether the reasoning is left out of the answer.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub exclude: bool,
}

/// Variables of a chat template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TemplateOptions {
    /// Whether the model reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// The name of the same variable in other templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
}

/// Reads null as the default value, as clients send it for options that are not set.
pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Options of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct StreamOptions {
    /// Whether a last chunk contains the usage.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub include_usage: bool,
}

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool"])))]
    pub role: String,
    /// A string, or a list of parts of the types `text`, `refusal` and, for models that take them, `image_url` and `input_audio` (or
    /// `audio_url`); null next to tool calls.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": ["string", "null"]},
        {"type": "array", "items": {
            "type": "object",
            "anyOf": [
                {
                    "required": ["type", "text"],
                    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                },
                {
                    "required": ["type", "refusal"],
                    "properties": {"type": {"const": "refusal"}, "refusal": {"type": "string"}},
                },
                {
                    "required": ["type", "image_url"],
                    "properties": {
                        "type": {"const": "image_url"},
                        "image_url": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
                    },
                },
                {
                    "required": ["type", "input_audio"],
                    "properties": {
                        "type": {"const": "input_audio"},
                        "input_audio": {
                            "type": "object",
                            "required": ["data"],
                            "properties": {"data": {"type": "string"}, "format": {"enum": ["wav", "mp3", "flac", "ogg", "m4a"]}},
                        },
                    },
                },
                {
                    "required": ["type", "audio_url"],
                    "properties": {
                        "type": {"const": "audio_url"},
                        "audio_url": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
                    },
                },
            ],
        }},
    ])))]
    pub content: Value,
    /// Reasoning of the assistant before the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tool calls of the assistant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Id of the tool call that a message with the role `tool` answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the participant or of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ToolCall {
    /// Id of the call, repeated in the message that answers it.
    pub id: String,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Function and arguments.
    pub function: FunctionCall,
}

/// Function and arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// Arguments, as the JSON text that the model generated.
    pub arguments: String,
}

/// A part of a [`ToolCall`] in a stream. The first one of a call has its id and function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ToolCallDelta {
    /// Index of the call in the reply.
    pub index: u32,
    /// Id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Function and the next part of the arguments.
    pub function: FunctionCallDelta,
}

/// A part of a [`FunctionCall`] in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FunctionCallDelta {
    /// Name of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The next part of the arguments.
    pub arguments: String,
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChatCompletion {
    /// `chatcmpl-` and the job id.
    pub id: String,
    /// `chat.completion`.
    pub object: String,
    /// Unix seconds.
    pub created: i64,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// A choice for each requested reply.
    pub choices: Vec<Choice>,
    /// Token counts.
    pub usage: Usage,
}

/// The reply inside a [`ChatCompletion`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Choice {
    /// Index of the reply, from 0.
    pub index: u32,
    /// The reply.
    pub message: ChatMessage,
    /// Probabilities of the tokens of the content, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Logprobs>,
    /// Why the reply ended.
    pub finish_reason: FinishReason,
}

/// A chunk of a streamed reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChatChunk {
    /// `chatcmpl-` and the job id.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: String,
    /// Unix seconds.
    pub created: i64,
    /// Slug of the Cargo that runs.
    pub model: String,
    /// One choice; empty in the chunk that contains only usage.
    pub choices: Vec<ChunkChoice>,
    /// Token counts, in the last chunk if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The delta inside a [`ChatChunk`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChunkChoice {
    /// Index of the reply, from 0.
    pub index: u32,
    /// What is new in this chunk.
    pub delta: Delta,
    /// Probabilities of the tokens of this chunk's content, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Logprobs>,
    /// Null until the end.
    pub finish_reason: Option<FinishReason>,
}

/// Probabilities of tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Logprobs {
    /// One for each token of the content.
    pub content: Vec<TokenLogprob>,
}

/// What is new in a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Delta {
    /// `assistant`, in the first chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Reasoning before the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCallDelta>>,
}

/// A request for embeddings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EmbeddingsRequest {
    /// Slug or alias of an embedding Cargo.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// A string, or a list of strings.
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"type": "string", "minLength": 1}},
    ])))]
    pub input: Value,
    /// Encoding of vectors: `float`, a list of numbers, or `base64`, 32-bit little-endian floats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["float", "base64", null])))]
    pub encoding_format: Option<String>,
    /// Length of the vectors, for models whose vectors may be truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 1_048_576)))]
    pub dimensions: Option<u32>,
    /// Name of one of the model's prompts, such as `query`, to prepend to every text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Which Islands may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// Answer to a request for embeddings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Embeddings {
    /// `list`.
    pub object: String,
    /// One embedding for each text, in order.
    pub data: Vec<Embedding>,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// Token counts.
    pub usage: Usage,
}

/// One embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Embedding {
    /// `embedding`.
    pub object: String,
    /// Index of the text.
    pub index: u32,
    /// The vector.
    pub embedding: Vector,
}

/// An embedding in the requested encoding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Vector {
    /// List of numbers.
    Float(Vec<f32>),
    /// Base64 of 32-bit little-endian floats.
    Base64(String),
}
