//! Bodies of `POST /chat/completions`. Fields that this build does not know are ignored, as other servers do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{FinishReason, Usage};

/// A chat request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChatRequest {
    /// A well-known name, a slug, an alias or anything else: never an error.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    pub model: String,
    /// The conversation so far.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1)))]
    pub messages: Vec<ChatMessage>,
    /// Most tokens to write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub max_tokens: Option<u64>,
    /// Newer name of `max_tokens`; wins when both are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub max_completion_tokens: Option<u64>,
    /// 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 2)))]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub top_p: Option<f64>,
    /// Seed of the random draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// One text or a list of texts that end the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub stream: bool,
    /// What a stream carries besides text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Replies wanted; 1 is all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 1)))]
    pub n: Option<u32>,
    /// `{"type": "text" | "json_object"}`, or `{"type": "json_schema", "json_schema": {"name", "schema"}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// Functions that the reply may call: `{"type": "function", "function": {"name", "description", "parameters"}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, or one function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
}

/// What a stream carries besides text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct StreamOptions {
    /// Whether a last chunk carries the usage.
    #[serde(default)]
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
    /// A text, or a list of parts of type `text`; null beside calls.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": ["string", "null"]},
        {"type": "array", "items": {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        }},
    ])))]
    pub content: Value,
    /// Functions that the assistant calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The call that a message of the role `tool` answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ToolCall {
    /// Names the call in the answer to it.
    pub id: String,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is called.
    pub function: FunctionCall,
}

/// What is called, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// Its arguments, a JSON text as the model wrote it.
    pub arguments: String,
}

/// A [`ToolCall`] in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ToolCallDelta {
    /// Which call of the reply.
    pub index: u32,
    /// The call.
    #[serde(flatten)]
    pub call: ToolCall,
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
    /// One choice.
    pub choices: Vec<Choice>,
    /// What it used.
    pub usage: Usage,
}

/// The reply inside a [`ChatCompletion`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Choice {
    /// 0.
    pub index: u32,
    /// The reply.
    pub message: ChatMessage,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

/// A piece of a streamed reply.
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
    /// One choice; none in the chunk that carries only usage.
    pub choices: Vec<ChunkChoice>,
    /// Usage, in the last chunk when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The piece inside a [`ChatChunk`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ChunkChoice {
    /// 0.
    pub index: u32,
    /// What is new.
    pub delta: Delta,
    /// Null until the end.
    pub finish_reason: Option<FinishReason>,
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
    /// Functions that are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCallDelta>>,
}

/// A request for embeddings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct EmbeddingsRequest {
    /// Slug or alias of a Cargo that embeds.
    #[cfg_attr(feature = "openapi", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// A text, or a list of texts.
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"type": "string", "minLength": 1}},
    ])))]
    pub input: Value,
    /// How vectors are written: `float`, a list of numbers, or `base64`, 32-bit floats with the lowest byte first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["float", "base64"])))]
    pub encoding_format: Option<String>,
    /// Length of the vectors, where a beginning of the model's own will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 1_048_576)))]
    pub dimensions: Option<u32>,
    /// Name of one of the model's prompts, such as `query`, to put before every text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// An answer to a request for embeddings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Embeddings {
    /// `list`.
    pub object: String,
    /// One for each text, in their order.
    pub data: Vec<Embedding>,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// What it used.
    pub usage: Usage,
}

/// One embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Embedding {
    /// `embedding`.
    pub object: String,
    /// Which text.
    pub index: u32,
    /// The vector.
    pub embedding: Vector,
}

/// An embedding as it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Vector {
    /// Its numbers.
    Float(Vec<f32>),
    /// The same as 32-bit floats, lowest byte first.
    Base64(String),
}
