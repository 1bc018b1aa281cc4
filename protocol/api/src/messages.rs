//! Bodies of `POST /messages`, Anthropic's API. Unknown fields are ignored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{chat::null_as_default, preferences::Preferences};

/// A request for a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MessagesRequest {
    /// A slug, an alias or any other name; unknown names select the default model.
    pub model: String,
    /// Maximum number of tokens to generate.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64)))]
    pub max_tokens: u64,
    /// The conversation so far.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1)))]
    pub messages: Vec<InputMessage>,
    /// Instructions: a string, or a list of blocks of the type `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": ["string", "null"]},
        {"type": "array", "items": {
            "type": "object",
            "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        }},
    ])))]
    pub system: Option<Value>,
    /// Whether to answer with Server-Sent Events.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub stream: bool,
    /// Up to 16 strings that end the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxItems" = 16, "items" = {"type": "string", "minLength": 1})))]
    pub stop_sequences: Option<Vec<String>>,
    /// 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub top_p: Option<f64>,
    /// Number of most likely tokens to sample from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 2_147_483_647)))]
    pub top_k: Option<i64>,
    /// Functions that the reply may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 128)))]
    pub tools: Option<Vec<Tool>>,
    /// Whether the reply must call a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// How the model reasons before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingOptions>,
    /// Effort and form of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_config: Option<OutputConfig>,
    /// Which Islands and models may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// A request for the number of tokens of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CountTokensRequest {
    /// A slug, an alias or any other name; unknown names select the default model.
    pub model: String,
    /// The conversation so far.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1)))]
    pub messages: Vec<InputMessage>,
    /// Instructions: a string, or a list of blocks of the type `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Value>,
    /// Functions that the reply may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 128)))]
    pub tools: Option<Vec<Tool>>,
    /// Whether the reply must call a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// How the model reasons before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingOptions>,
    /// Effort and form of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_config: Option<OutputConfig>,
    /// Which Islands and models may serve the request. `provider` is another name of the field.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

impl From<CountTokensRequest> for MessagesRequest {
    fn from(request: CountTokensRequest) -> Self {
        let CountTokensRequest {
            model,
            messages,
            system,
            tools,
            tool_choice,
            thinking,
            output_config,
            preferences,
        } = request;
        Self {
            model,
            messages,
            system,
            tools,
            tool_choice,
            thinking,
            output_config,
            preferences,
            max_tokens: 1,
            ..Self::default()
        }
    }
}

/// A number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TokenCount {
    /// Tokens of the conversation as the model reads it.
    pub input_tokens: u64,
}

/// One message of the conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct InputMessage {
    /// `user`, `assistant` or `system`.
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["user", "assistant", "system"])))]
    pub role: String,
    /// A string, or a list of blocks of the types `text`, `image`, `document`, `search_result`, `tool_use`, `tool_result`, `thinking` and
    /// `redacted_thinking`. Those about tools of other servers, such as `server_tool_use`, are left out.
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string"},
        {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}},
    ])))]
    pub content: Value,
}

/// A function that a reply may call. Tools of other types are accepted, and not offered to the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Tool {
    /// `custom` or absent for a function.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the tool; a function needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(regex(pattern = "^[A-Za-z0-9_-]{1,128}$")))]
    pub name: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(extend("type" = "object")))]
    pub input_schema: Value,
}

/// Whether a reply must call a function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["auto", "any", "tool", "none"])))]
    pub kind: String,
    /// The function, for the type `tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether a reply may have at most one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_parallel_tool_use: Option<bool>,
}

/// How a model reasons before it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ThinkingOptions {
    /// `enabled`, `adaptive` or `disabled`.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["enabled", "adaptive", "disabled"])))]
    pub kind: String,
    /// Maximum number of tokens of the reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64)))]
    pub budget_tokens: Option<u64>,
}

/// Effort and form of a reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct OutputConfig {
    /// How much a model reasons if `thinking` is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["low", "medium", "high", "xhigh", "max", null])))]
    pub effort: Option<String>,
    /// `{"type": "json_schema", "schema"}`: the text is JSON of this schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "object", "required": ["type", "schema"], "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}}},
        {"type": "null"},
    ])))]
    pub format: Option<Value>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MessageReply {
    /// `msg_` and the job id.
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `assistant`.
    pub role: String,
    /// Slug of the Cargo that ran.
    pub model: String,
    /// Its blocks, in order.
    pub content: Vec<Block>,
    /// Why it ended: `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`; null in a stream's first event.
    pub stop_reason: Option<String>,
    /// The stop text that ended it.
    pub stop_sequence: Option<String>,
    /// Token counts.
    pub usage: MessageUsage,
}

/// A block of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning before the answer.
    Thinking {
        /// The reasoning.
        thinking: String,
        /// Always empty: reasoning is not signed.
        signature: String,
    },
    /// A call of a function.
    ToolUse {
        /// Id of the call, repeated in the block that answers it.
        id: String,
        /// Name of the function.
        name: String,
        /// Its arguments.
        input: Value,
    },
}

/// Token counts of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MessageUsage {
    /// Tokens in the prompt; 0 at the beginning of a stream, when they are not known yet.
    pub input_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
}

/// An event of a streamed reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    /// The first event.
    MessageStart {
        /// The reply without content.
        message: MessageReply,
    },
    /// A block begins.
    ContentBlockStart {
        /// Index of the block.
        index: u32,
        /// The empty block.
        content_block: Block,
    },
    /// What is new in a block.
    ContentBlockDelta {
        /// Index of the block.
        index: u32,
        /// The addition.
        delta: BlockDelta,
    },
    /// A block ends.
    ContentBlockStop {
        /// Index of the block.
        index: u32,
    },
    /// The reply ends.
    MessageDelta {
        /// Why it ended.
        delta: MessageEnd,
        /// Token counts.
        usage: MessageUsage,
    },
    /// The last event.
    MessageStop,
}

impl MessageEvent {
    /// Returns the SSE event name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
}

/// What is new in a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockDelta {
    /// Text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// Reasoning.
    ThinkingDelta {
        /// The reasoning.
        thinking: String,
    },
    /// Arguments of a call.
    InputJsonDelta {
        /// A part of the JSON text.
        partial_json: String,
    },
}

/// Why a streamed reply ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct MessageEnd {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: String,
    /// The stop text that ended it.
    pub stop_sequence: Option<String>,
}
