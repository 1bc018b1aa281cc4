//! From a chat request to the input of a job.

use std::collections::BTreeMap;

use island_protocol::ids::{AccountId, Slug};
use island_protocol_api::{
    chat::{ChatMessage, ChatRequest},
    completions::CompletionRequest,
    preferences::Preferences,
    problem::Code,
};
use serde_json::{Map, Value, json};

use crate::ApiError;
use island_coordinator_domain::{catalogue::Cargo, job::conversation};

/// Maximum bytes of a JSON Schema for replies.
const MAX_SCHEMA: usize = 64 << 10;
/// Settings that become input of a Cargo under the same name.
const OPTIONS: [&str; 15] = [
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "min_p",
    "repetition_penalty",
    "seed",
    "top_k",
    "stop",
    "response_format",
    "reasoning_effort",
    "max_reasoning_tokens",
    "logit_bias",
    "logprobs",
    "top_logprobs",
];
/// The name of `max_tokens` in newer requests.
const NEWER_NAMES: Names = &[("max_tokens", "max_completion_tokens")];
/// The name of `top_logprobs` in requests that continue a text.
const NAMES_OF_TEXT: Names = &[("top_logprobs", "logprobs")];
/// Maximum number of pictures in one conversation.
const MAX_IMAGES: usize = 16;
/// Maximum number of sounds in one conversation.
const MAX_SOUNDS: usize = 8;
/// Formats of sounds, as OpenAI's clients name them, and their media types.
const SOUNDS: [(&str, &str); 5] = [
    ("wav", "audio/wav"),
    ("mp3", "audio/mpeg"),
    ("flac", "audio/flac"),
    ("ogg", "audio/ogg"),
    ("m4a", "audio/mp4"),
];
/// How the addresses of pictures begin.
const IMAGE_DATA: [&str; 3] =
    ["data:image/png;base64,", "data:image/jpeg;base64,", "data:image/webp;base64,"];

/// Names of settings as inputs, and in the requests of one API where they differ.
pub(crate) type Names = &'static [(&'static str, &'static str)];

/// A chat request, mapped to the names of inputs.
#[derive(Debug)]
pub(crate) struct Chat {
    /// Names of models, the preferred one first.
    pub models: Vec<String>,
    pub preferences: Preferences,
    /// Number of replies.
    pub replies: u32,
    /// Whether the answer contains the probabilities of tokens.
    pub logprobs: bool,
    pub stream: bool,
    pub include_usage: bool,
    /// Whether the answer contains the reasoning.
    pub shows_reasoning: bool,
    /// Whether a message contains a picture.
    pub has_images: bool,
    /// Whether a message contains a sound.
    pub has_sounds: bool,
    source: Source,
    max_tokens: Option<u64>,
    /// Settings and tools, by name.
    options: Map<String, Value>,
    /// Their names in the request.
    names: Names,
}

/// What is continued.
#[derive(Debug)]
enum Source {
    /// A conversation, with each content as one string, or as parts if one of them is a picture or a sound.
    Messages(Vec<ChatMessage>),
    /// A text, and the one after the gap that is filled.
    Text { before: String, after: Option<String> },
}

fn invalid(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::field(Code::ValidationError, param, message)
}

impl Chat {
    /// Maps a request and checks the rules that a schema cannot express.
    pub(crate) fn new(request: ChatRequest) -> Result<Self, ApiError> {
        check_size(request.response_format.as_ref())?;
        let shows_reasoning = !request.reasoning.as_ref().is_some_and(|options| options.exclude);
        let request = with_reasoning(request);
        let images: usize = request.messages.iter().map(|message| images_of(message).count()).sum();
        if images > MAX_IMAGES {
            return Err(invalid("messages", format!("a conversation has at most {MAX_IMAGES} pictures")));
        }
        let sounds: usize = request.messages.iter().map(|message| sounds_of(message).count()).sum();
        if sounds > MAX_SOUNDS {
            return Err(invalid("messages", format!("a conversation has at most {MAX_SOUNDS} sounds")));
        }
        let mut options = Map::new();
        if let Some((tools, choice)) = tools(&request)? {
            options.extend([("tools".to_owned(), tools), ("tool_choice".to_owned(), choice)]);
            if let Some(several) = request.parallel_tool_calls {
                options.insert("parallel_tool_calls".to_owned(), several.into());
            }
        }
        check_probabilities(request.logprobs, request.top_logprobs)?;
        check_bias(request.logit_bias.as_ref())?;
        let mut settings = json!(request);
        let known = OPTIONS.map(|name| (name.to_owned(), settings[name].take()));
        options.extend(known.into_iter().filter(|(_, value)| !value.is_null()));
        let names: Names = if request.max_completion_tokens.is_some() { NEWER_NAMES } else { &[] };
        Ok(Self {
            models: [request.model].into_iter().chain(request.models.unwrap_or_default()).collect(),
            preferences: request.preferences.unwrap_or_default(),
            replies: request.n.unwrap_or(1).max(1),
            logprobs: request.logprobs == Some(true),
            stream: request.stream,
            include_usage: request.stream_options.is_some_and(|options| options.include_usage),
            shows_reasoning,
            has_images: images > 0,
            has_sounds: sounds > 0,
            source: Source::Messages(
                request.messages.into_iter().enumerate().map(flattened).collect::<Result<_, _>>()?,
            ),
            max_tokens: request.max_completion_tokens.or(request.max_tokens),
            options,
            names,
        })
    }

    /// The chat of another API, whose requests have these names.
    pub(crate) fn named(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// Maps a request that continues a text.
    pub(crate) fn of_text(request: CompletionRequest) -> Result<Self, ApiError> {
        check_bias(request.logit_bias.as_ref())?;
        let before = text_of(&request.prompt).ok_or_else(|| invalid("prompt", "prompt must be one text"))?;
        let (before, after) = (before.to_owned(), request.suffix.clone().filter(|after| !after.is_empty()));
        let mut settings = json!(request);
        let known = OPTIONS.map(|name| (name.to_owned(), settings[name].take()));
        let mut options: Map<String, Value> =
            known.into_iter().filter(|(_, value)| !value.is_null()).collect();
        if let Some(top) = request.logprobs {
            options.extend([("logprobs".to_owned(), true.into()), ("top_logprobs".to_owned(), top.into())]);
        }
        Ok(Self {
            models: [request.model].into_iter().chain(request.models.unwrap_or_default()).collect(),
            preferences: request.preferences.unwrap_or_default(),
            replies: request.n.unwrap_or(1).max(1),
            logprobs: request.logprobs.is_some(),
            stream: request.stream,
            include_usage: request.stream_options.is_some_and(|options| options.include_usage),
            shows_reasoning: false,
            has_images: false,
            has_sounds: false,
            source: Source::Text { before, after },
            max_tokens: request.max_tokens,
            options,
            names: NAMES_OF_TEXT,
        })
    }

    /// Checks that the Cargo can serve the request.
    pub(super) fn check(&self, cargo: &Cargo) -> Result<(), ApiError> {
        let slug = &cargo.entry.slug;
        if self.has_images && !cargo.sees() {
            return Err(invalid("messages", format!("the model {slug} takes no pictures")));
        }
        if self.has_sounds && !cargo.takes_sounds() {
            return Err(invalid("messages", format!("the model {slug} takes no sounds")));
        }
        if matches!(self.source, Source::Text { .. }) && !cargo.takes("raw_prompt") {
            return Err(invalid("model", format!("the model {slug} does not continue texts")));
        }
        if let Some(setting) = self.setting_without_use(cargo) {
            let other_name = self.names.iter().find(|(input, _)| *input == setting);
            let name = other_name.map_or(setting, |&(_, name)| name);
            return Err(invalid(name, format!("the model {slug} does not support {name}")));
        }
        Ok(())
    }

    /// The first setting that the Cargo does not take and whose value would change the reply.
    pub(super) fn setting_without_use(&self, cargo: &Cargo) -> Option<&str> {
        // The limit of the Cargo holds in any case.
        let limit = cargo.spec.limits.max_tokens;
        let is_lower = self.max_tokens.is_some_and(|tokens| limit == 0 || tokens < limit);
        if is_lower && !cargo.takes("max_tokens") {
            return Some("max_tokens");
        }
        let mut options = self.options.iter();
        let found = options.find(|(name, value)| !cargo.takes(name) && has_effect(name, value));
        found.map(|(name, _)| name.as_str())
    }

    /// The identities of the conversation's beginnings for an account, the whole one first.
    pub(super) fn beginnings(&self, account: AccountId, cargo: &Slug) -> Vec<String> {
        let Source::Messages(messages) = &self.source else { return Vec::new() };
        let messages: Vec<Value> = messages.iter().map(|message| json!(message)).collect();
        conversation::beginnings(account, cargo, &messages)
    }

    /// The input of the job for one of the replies: a conversation if the Cargo takes one, otherwise one prompt. Settings that the Cargo does not take are
    /// left out, because [`Self::check`] accepts them only if they have no effect, and `max_tokens` is at most the Cargo's limit.
    pub(super) fn input_for(&self, cargo: &Cargo, reply: u32) -> Map<String, Value> {
        let mut input = Map::new();
        match &self.source {
            Source::Messages(messages) if cargo.takes("messages") => {
                input.insert("messages".to_owned(), json!(messages));
            }
            Source::Messages(messages) => {
                input.insert("prompt".to_owned(), Value::String(joined(messages)));
            }
            Source::Text { before, after } => {
                input.insert("raw_prompt".to_owned(), before.clone().into());
                input.extend(after.clone().map(|after| ("suffix".to_owned(), after.into())));
            }
        }
        if let Some(max_tokens) = self.max_tokens.filter(|_| cargo.takes("max_tokens")) {
            let limit = cargo.spec.limits.max_tokens;
            let max_tokens = if limit > 0 { max_tokens.min(limit) } else { max_tokens };
            input.insert("max_tokens".to_owned(), json!(max_tokens));
        }
        let known = self.options.iter().filter(|(name, _)| cargo.takes(name));
        input.extend(known.map(|(name, value)| (name.clone(), value.clone())));
        // The same seed would write the same reply.
        if let Some(seed) = input.get("seed").and_then(Value::as_i64).filter(|_| reply > 0) {
            input.insert("seed".to_owned(), seed.wrapping_add(reply.into()).into());
        }
        input
    }
}

/// Whether a setting changes the replies of a model that has it. Clients send the values that do not, too.
fn has_effect(name: &str, value: &Value) -> bool {
    match name {
        // A model that does not take them does not reason.
        "reasoning_effort" | "max_reasoning_tokens" => false,
        // OpenAI's models without a choice of these accept the default values, too.
        "temperature" | "top_p" | "repetition_penalty" => value.as_f64() != Some(1.0),
        "presence_penalty" | "frequency_penalty" | "min_p" | "top_k" | "top_logprobs" => {
            value.as_f64() != Some(0.0)
        }
        "logprobs" => value.as_bool() != Some(false),
        "parallel_tool_calls" => value.as_bool() != Some(true),
        "tool_choice" => value.as_str() != Some("auto"),
        "response_format" => value["type"] != "text",
        "stop" => value.as_array().is_none_or(|texts| !texts.is_empty()),
        "logit_bias" => value.as_object().is_none_or(|biases| !biases.is_empty()),
        _ => true,
    }
}

fn joined(messages: &[ChatMessage]) -> String {
    let lines: Vec<&str> = messages.iter().filter_map(|message| message.content.as_str()).collect();
    lines.join("\n")
}

/// A text that may be in a list of one.
pub(super) fn text_of(prompt: &Value) -> Option<&str> {
    match prompt {
        Value::Array(list) if list.len() == 1 => list[0].as_str(),
        one => one.as_str(),
    }
}

fn check_probabilities(wanted: Option<bool>, top: Option<u32>) -> Result<(), ApiError> {
    if top.is_some() && wanted != Some(true) {
        return Err(invalid("top_logprobs", "top_logprobs needs logprobs: true"));
    }
    Ok(())
}

fn check_bias(bias: Option<&BTreeMap<String, f64>>) -> Result<(), ApiError> {
    let is_valid =
        |(token, bias): (&String, &f64)| token.parse::<i32>().is_ok() && (-100.0..=100.0).contains(bias);
    if bias.is_some_and(|bias| !bias.iter().all(is_valid)) {
        let message = "logit_bias must be numbers from -100 to 100, by the numbers of tokens";
        return Err(invalid("logit_bias", message));
    }
    Ok(())
}

fn check_size(format: Option<&Value>) -> Result<(), ApiError> {
    let schema = format.and_then(|format| format.pointer("/json_schema/schema"));
    if schema.is_some_and(|schema| schema.to_string().len() > MAX_SCHEMA) {
        let message = format!("schema must have at most {MAX_SCHEMA} bytes");
        return Err(invalid("response_format.json_schema.schema", message));
    }
    Ok(())
}

/// The request with how the model is to reason in the fields that Cargos have, whichever field the client used.
fn with_reasoning(mut request: ChatRequest) -> ChatRequest {
    let options = request.reasoning.take().unwrap_or_default();
    let template = request.chat_template_kwargs.take().unwrap_or_default();
    let switch = options.enabled.or(template.enable_thinking).or(template.thinking);
    let switched = switch.map(|enabled| if enabled { "medium" } else { "none" }.to_owned());
    let effort = request.reasoning_effort.or(options.effort).or(switched);
    // No Cargo knows a higher one.
    request.reasoning_effort = effort.map(|effort| if effort == "max" { "xhigh".to_owned() } else { effort });
    request.max_reasoning_tokens = request.max_reasoning_tokens.or(options.max_tokens);
    request
}

/// The addresses of the pictures in a message.
fn images_of(message: &ChatMessage) -> impl Iterator<Item = &str> {
    let parts = message.content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part.pointer("/image_url/url")?.as_str())
}

/// The sounds in a message.
fn sounds_of(message: &ChatMessage) -> impl Iterator<Item = &Value> {
    let parts = message.content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter(|part| is_sound(part))
}

fn is_sound(part: &Value) -> bool {
    matches!(part["type"].as_str(), Some("input_audio" | "audio_url"))
}

/// A sound as a `data:` address, in the one form that Cargos take; `None` if it has an unknown format or is somewhere else.
fn sound(part: &Value) -> Option<Value> {
    let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
    let data = text("/audio_url/url").or_else(|| text("/input_audio/data"))?;
    let address = if data.starts_with("data:") {
        data.to_owned()
    } else {
        let format = text("/input_audio/format")?;
        let (_, media) = SOUNDS.iter().find(|(name, _)| *name == format)?;
        format!("data:{media};base64,{data}")
    };
    address
        .starts_with("data:audio/")
        .then(|| json!({"type": "input_audio", "input_audio": {"data": address}}))
}

/// A message with its texts joined. Only the assistant may have no content.
fn flattened((index, mut message): (usize, ChatMessage)) -> Result<ChatMessage, ApiError> {
    let has_sounds = sounds_of(&message).next().is_some();
    if let (true, Value::Array(parts)) = (has_sounds, &mut message.content) {
        for part in parts.iter_mut().filter(|part| is_sound(part)) {
            *part = sound(part).ok_or_else(|| {
                let rule = "a sound must be base64 of a WAV, MP3, FLAC, Ogg or M4A file with its format, or a data: address of one; other addresses are not fetched";
                invalid(&format!("messages.{index}.content"), rule)
            })?;
        }
    }
    if has_sounds || images_of(&message).next().is_some() {
        let is_data = |address: &str| IMAGE_DATA.iter().any(|start| address.starts_with(start));
        if !images_of(&message).all(is_data) {
            let rule = "a picture must be a data: address with base64 of a PNG, JPEG or WebP file; other addresses are not fetched";
            return Err(invalid(&format!("messages.{index}.content"), rule));
        }
        return Ok(message);
    }
    let content = match &message.content {
        Value::Null if message.role == "assistant" => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str().or(part["refusal"].as_str())).collect()
        }
        _ => {
            return Err(invalid(
                &format!("messages.{index}.content"),
                "content must be a string or a list of text parts",
            ));
        }
    };
    Ok(ChatMessage { content: content.into(), ..message })
}

/// `tools` and `tool_choice` for a Cargo; `None` if no function may be called. Tools that are not functions are left out, as a model can
/// do without them, but for one that must be called.
fn tools(request: &ChatRequest) -> Result<Option<(Value, Value)>, ApiError> {
    let name = |tool: &Value| tool.pointer("/function/name").cloned();
    let mut tools: Vec<&Value> = request.tools.iter().flatten().filter(|tool| name(tool).is_some()).collect();
    let mut choice = request.tool_choice.clone().unwrap_or_else(|| json!("auto"));
    if let Some(allowed) = choice.get("allowed_tools") {
        let listed = allowed["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let listed: Vec<Value> = listed.iter().filter_map(name).collect();
        tools.retain(|tool| name(tool).is_some_and(|name| listed.contains(&name)));
        choice = allowed["mode"].clone();
    }
    let is_valid = match choice.as_str() {
        Some("none" | "auto") => true,
        Some("required") => !tools.is_empty(),
        _ => {
            name(&choice).is_some_and(|wanted| tools.iter().any(|tool| name(tool).as_ref() == Some(&wanted)))
        }
    };
    if !is_valid {
        let rule = "tool_choice must be none, auto, required or one of the functions in tools; tools of other types are not called";
        return Err(invalid("tool_choice", rule));
    }
    Ok((!tools.is_empty() && choice != "none").then(|| (json!(tools), choice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the functions on offer and the choice, or the field of the error.
    fn offered(tools: Value, choice: Value) -> Result<Option<(Vec<Value>, Value)>, Option<String>> {
        let request = ChatRequest {
            tools: Some(serde_json::from_value(tools).expect("tools")),
            tool_choice: Some(choice).filter(|choice| !choice.is_null()),
            ..ChatRequest::default()
        };
        let names = |tools: Value| {
            let tools = tools.as_array().expect("a list").clone();
            tools.iter().map(|tool| tool["function"]["name"].clone()).collect()
        };
        let offered = super::tools(&request).map_err(|error| error.body().error.param)?;
        Ok(offered.map(|(tools, choice)| (names(tools), choice)))
    }

    #[test]
    fn only_functions_are_offered_and_called() {
        let function = |name: &str| json!({"type": "function", "function": {"name": name}});
        let custom = json!({"type": "custom", "custom": {"name": "patch"}});
        let both = json!([custom, function("f"), function("g")]);
        let (f, all) = (json!("f"), vec![json!("f"), json!("g")]);
        assert_eq!(offered(both.clone(), Value::Null), Ok(Some((all.clone(), json!("auto")))));
        assert_eq!(offered(both.clone(), function("f")), Ok(Some((all.clone(), function("f")))));
        assert_eq!(offered(json!([custom]), json!("auto")), Ok(None));
        let allowed = |mode: &str| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [function("f"), custom]}});
        assert_eq!(offered(both.clone(), allowed("required")), Ok(Some((vec![f], json!("required")))));
        for (tools, choice) in [
            (json!([custom]), json!("required")),
            (json!([custom]), allowed("required")),
            (both.clone(), json!({"type": "custom", "custom": {"name": "patch"}})),
            (both.clone(), json!({"type": "web_search"})),
            (both, function("h")),
        ] {
            assert_eq!(offered(tools, choice.clone()), Err(Some("tool_choice".to_owned())), "{choice}");
        }
    }

    #[test]
    fn a_refusal_of_an_earlier_reply_is_its_text() {
        let parts = json!([{"type": "refusal", "refusal": "No."}]);
        let message = ChatMessage { role: "assistant".to_owned(), content: parts, ..ChatMessage::default() };
        assert_eq!(flattened((0, message)).expect("a message").content, "No.");
    }
}
