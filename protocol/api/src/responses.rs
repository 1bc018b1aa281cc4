//! Bodies of `/responses`, OpenAI's newer API. Unknown fields are ignored.

use std::collections::BTreeMap;

use island_protocol::reply::TokenLogprob;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    chat::{ReasoningOptions, null_as_default},
    preferences::Preferences,
};

/// Begins the ids of responses; a job id follows.
pub const PREFIX: &str = "resp_";

/// A request for a response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ResponseRequest {
    /// A well-known name, a slug, an alias or any other name; unknown names select the default model.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<String>"))]
    pub model: String,
    /// A text, or a list of items: messages, calls of functions and of tools that the client runs, their results, reasoning, and references
    /// to items of stored responses. Items about tools of other servers, such as `web_search_call`, are left out.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "object"}},
    ])))]
    pub input: Value,
    /// Instructions before the conversation. They are not inherited by later responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The stored response whose conversation this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_response_id: Option<String>,
    /// Whether the response can be read, and continued, later. True by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// Whether to answer at once and to run the job in the background.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub background: bool,
    /// Whether to answer with Server-Sent Events.
    #[serde(default, deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "openapi", schemars(with = "Option<bool>"))]
    pub stream: bool,
    /// Maximum number of tokens to generate, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 1, max = 9_223_372_036_854_775_807_u64)))]
    pub max_output_tokens: Option<u64>,
    /// 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 2)))]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 1)))]
    pub top_p: Option<f64>,
    /// Number of most likely tokens at each position whose probabilities are returned, if `include` has `message.output_text.logprobs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(range(min = 0, max = 20)))]
    pub top_logprobs: Option<u32>,
    /// What the response contains in addition: `message.output_text.logprobs`. Other values are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<Vec<String>>,
    /// Functions that the reply may call: `{"type": "function", "name", "description", "parameters"}`. Tools of other types are accepted,
    /// and not offered to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 128)))]
    pub tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, one function, or `{"type": "allowed_tools", "mode", "tools"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Whether the reply may call several functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Form of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextOptions>,
    /// How the model reasons before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningOptions>,
    /// `disabled` or `auto`. Prompts beyond the context are refused in both cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("enum" = ["auto", "disabled", null])))]
    pub truncation: Option<String>,
    /// Up to 16 texts of the client, kept with the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("maxProperties" = 16)))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Which Islands and models may serve the request.
    #[serde(default, alias = "provider", skip_serializing_if = "Option::is_none")]
    pub preferences: Option<Preferences>,
}

/// The number of tokens of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct InputTokens {
    /// `response.input_tokens`.
    pub object: String,
    /// Tokens of the conversation as the model reads it.
    pub input_tokens: u64,
}

/// Form of a text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct TextOptions {
    /// `{"type": "text" | "json_object"}`, or `{"type": "json_schema", "name", "schema"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("anyOf" = [
        {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object"]}}},
        {"type": "object", "required": ["type", "schema"], "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}}},
        {"type": "null"},
    ])))]
    pub format: Option<Value>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Response {
    /// `resp_` and the job id.
    pub id: String,
    /// `response`.
    pub object: String,
    /// Unix seconds.
    pub created_at: i64,
    /// State of the response.
    pub status: ResponseStatus,
    /// Whether it was requested to run in the background.
    pub background: bool,
    /// Why it failed.
    pub error: Option<ResponseError>,
    /// Why it is incomplete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// Instructions before the conversation.
    pub instructions: Option<String>,
    /// Maximum number of tokens to generate.
    pub max_output_tokens: Option<u64>,
    /// Slug of the Cargo that runs.
    pub model: String,
    /// What the model wrote.
    pub output: Vec<Item>,
    /// Whether the reply may call several functions.
    pub parallel_tool_calls: bool,
    /// The response whose conversation this one continues.
    pub previous_response_id: Option<String>,
    /// How the model reasons.
    pub reasoning: ReasoningOptions,
    /// Whether it can be read later.
    pub store: bool,
    /// As requested.
    pub temperature: Option<f64>,
    /// Form of the text.
    pub text: TextOptions,
    /// As requested.
    pub tool_choice: Value,
    /// As requested.
    pub tools: Vec<Value>,
    /// As requested.
    pub top_p: Option<f64>,
    /// `disabled`.
    pub truncation: String,
    /// Token counts; null until the end.
    pub usage: Option<ResponseUsage>,
    /// Texts of the client.
    pub metadata: BTreeMap<String, String>,
}

/// State of a response or an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// No Island runs it yet.
    Queued,
    /// It is being written.
    InProgress,
    /// It is whole.
    Completed,
    /// A limit ended it.
    Incomplete,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// Why a response failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ResponseError {
    /// `server_error`, `invalid_prompt` or another code of the API's errors.
    pub code: String,
    /// Message for a person.
    pub message: String,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct IncompleteDetails {
    /// `max_output_tokens`.
    pub reason: String,
}

/// Token counts of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ResponseUsage {
    /// Tokens in the prompt.
    pub input_tokens: u64,
    /// What they are.
    pub input_tokens_details: InputTokensDetails,
    /// Tokens generated.
    pub output_tokens: u64,
    /// What they are.
    pub output_tokens_details: OutputTokensDetails,
    /// The sum of both.
    pub total_tokens: u64,
}

/// What the tokens of a prompt are. Islands do not report how many they had in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct InputTokensDetails {
    /// 0.
    pub cached_tokens: u64,
    /// 0.
    pub cache_write_tokens: u64,
}

/// What generated tokens are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct OutputTokensDetails {
    /// Tokens of the reasoning before the answer.
    pub reasoning_tokens: u64,
}

/// A part of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Item {
    /// Reasoning before the answer.
    Reasoning {
        /// `rs_`, the index of the item and the job id.
        id: String,
        /// Empty: the whole reasoning is in `content`.
        summary: Vec<Value>,
        /// The reasoning.
        content: Vec<ContentPart>,
        /// State of the item.
        status: ResponseStatus,
    },
    /// A text of the model.
    Message {
        /// `msg_`, the index of the item and the job id.
        id: String,
        /// `assistant`.
        role: String,
        /// One text.
        content: Vec<ContentPart>,
        /// State of the item.
        status: ResponseStatus,
    },
    /// A call of a function.
    FunctionCall {
        /// `fc_`, the index of the item and the job id.
        id: String,
        /// Id that the item with the result repeats.
        call_id: String,
        /// Name of the function.
        name: String,
        /// JSON text of the arguments.
        arguments: String,
        /// State of the item.
        status: ResponseStatus,
    },
}

/// A part of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// A text of the answer.
    OutputText {
        /// The text.
        text: String,
        /// Empty.
        annotations: Vec<Value>,
        /// Probabilities of its tokens, if requested.
        logprobs: Vec<TokenLogprob>,
    },
    /// A text of the reasoning.
    ReasoningText {
        /// The text.
        text: String,
    },
}

/// An event of a streamed response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct ResponseEvent {
    /// What happened.
    #[serde(flatten)]
    pub change: ResponseChange,
    /// Number of the event, from 0.
    pub sequence_number: u64,
}

/// What happened to a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(tag = "type")]
pub enum ResponseChange {
    /// The response exists.
    #[serde(rename = "response.created")]
    #[strum(serialize = "response.created")]
    Created {
        /// The response.
        response: Box<Response>,
    },
    /// The model writes.
    #[serde(rename = "response.in_progress")]
    #[strum(serialize = "response.in_progress")]
    InProgress {
        /// The response.
        response: Box<Response>,
    },
    /// An item begins.
    #[serde(rename = "response.output_item.added")]
    #[strum(serialize = "response.output_item.added")]
    ItemAdded {
        /// Index of the item.
        output_index: u32,
        /// The item, without content.
        item: Item,
    },
    /// A part of an item begins.
    #[serde(rename = "response.content_part.added")]
    #[strum(serialize = "response.content_part.added")]
    PartAdded {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// 0.
        content_index: u32,
        /// The part, without text.
        part: ContentPart,
    },
    /// More text of the answer.
    #[serde(rename = "response.output_text.delta")]
    #[strum(serialize = "response.output_text.delta")]
    TextDelta {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// 0.
        content_index: u32,
        /// The text.
        delta: String,
        /// Probabilities of its tokens, if requested.
        logprobs: Vec<TokenLogprob>,
    },
    /// The text of the answer is whole.
    #[serde(rename = "response.output_text.done")]
    #[strum(serialize = "response.output_text.done")]
    TextDone {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// 0.
        content_index: u32,
        /// The text.
        text: String,
        /// Probabilities of its tokens, if requested.
        logprobs: Vec<TokenLogprob>,
    },
    /// More reasoning.
    #[serde(rename = "response.reasoning_text.delta")]
    #[strum(serialize = "response.reasoning_text.delta")]
    ReasoningDelta {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// 0.
        content_index: u32,
        /// The text.
        delta: String,
    },
    /// The reasoning is whole.
    #[serde(rename = "response.reasoning_text.done")]
    #[strum(serialize = "response.reasoning_text.done")]
    ReasoningDone {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// 0.
        content_index: u32,
        /// The text.
        text: String,
    },
    /// More arguments of a call.
    #[serde(rename = "response.function_call_arguments.delta")]
    #[strum(serialize = "response.function_call_arguments.delta")]
    ArgumentsDelta {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// The text.
        delta: String,
    },
    /// The arguments of a call are whole.
    #[serde(rename = "response.function_call_arguments.done")]
    #[strum(serialize = "response.function_call_arguments.done")]
    ArgumentsDone {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// Name of the function.
        name: String,
        /// JSON text of the arguments.
        arguments: String,
    },
    /// A part of an item is whole.
    #[serde(rename = "response.content_part.done")]
    #[strum(serialize = "response.content_part.done")]
    PartDone {
        /// The item.
        item_id: String,
        /// Index of the item.
        output_index: u32,
        /// 0.
        content_index: u32,
        /// The part.
        part: ContentPart,
    },
    /// An item is whole.
    #[serde(rename = "response.output_item.done")]
    #[strum(serialize = "response.output_item.done")]
    ItemDone {
        /// Index of the item.
        output_index: u32,
        /// The item.
        item: Item,
    },
    /// The response is whole: the last event.
    #[serde(rename = "response.completed")]
    #[strum(serialize = "response.completed")]
    Completed {
        /// The response.
        response: Box<Response>,
    },
    /// A limit ended the response: the last event.
    #[serde(rename = "response.incomplete")]
    #[strum(serialize = "response.incomplete")]
    Incomplete {
        /// The response.
        response: Box<Response>,
    },
    /// The response failed: the last event.
    #[serde(rename = "response.failed")]
    #[strum(serialize = "response.failed")]
    Failed {
        /// The response.
        response: Box<Response>,
    },
}

/// Answer to `DELETE /responses/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct DeletedResponse {
    /// The response.
    pub id: String,
    /// `response`.
    pub object: String,
    /// True.
    pub deleted: bool,
}

/// Answer to `GET /responses/{id}/input_items`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct InputItems {
    /// `list`.
    pub object: String,
    /// The items, as they were sent.
    pub data: Vec<Value>,
    /// Id of the first item of the page; empty without items.
    pub first_id: String,
    /// Id of the last item of the page; empty without items.
    pub last_id: String,
    /// Whether more items follow.
    pub has_more: bool,
}
