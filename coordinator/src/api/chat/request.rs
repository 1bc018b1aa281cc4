//! What a chat request asks for.

mod tools;

use island_protocol::problem::Code;
use serde_json::{Map, Value, json};

use crate::{
    api::{ApiError, body::Fields},
    catalogue::Cargo,
};

/// A checked chat request. Fields that are not known here are ignored, as other servers do.
#[derive(Debug)]
pub(super) struct Chat {
    pub model: String,
    pub stream: bool,
    pub include_usage: bool,
    /// Each with `role` and `content`, the content a string, and what belongs to calls.
    messages: Vec<Value>,
    max_tokens: Option<i64>,
    /// Sampling settings, by name.
    options: Map<String, Value>,
}

fn invalid(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::field(Code::ValidationError, param, message)
}

impl Chat {
    /// Checks the fields.
    pub(super) fn parse(mut fields: Fields) -> Result<Self, ApiError> {
        let messages = messages(fields.required("messages")?)?;
        let older = fields.integer("max_tokens", 1..=i64::MAX)?;
        let max_tokens = fields.integer("max_completion_tokens", 1..=i64::MAX)?.or(older);
        let mut options = Map::new();
        for (name, low, high) in [
            ("temperature", 0.0, 2.0),
            ("top_p", 0.0, 1.0),
            ("presence_penalty", -2.0, 2.0),
            ("frequency_penalty", -2.0, 2.0),
            // Not in the chat API of others, but known to most engines.
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 0.1, 10.0),
        ] {
            if let Some(value) = fields.number(name, low..=high)? {
                options.insert(name.to_owned(), json!(value));
            }
        }
        for (name, low, high) in [("seed", i64::MIN, i64::MAX), ("top_k", 0, i64::from(i32::MAX))] {
            if let Some(value) = fields.integer(name, low..=high)? {
                options.insert(name.to_owned(), json!(value));
            }
        }
        if let Some(stop) = fields.take("stop") {
            options.insert("stop".to_owned(), stops(stop)?);
        }
        if fields.integer("n", 1..=128)?.is_some_and(|n| n > 1) {
            return Err(invalid("n", "only n = 1 is served; send several requests for several replies"));
        }
        if let Some(format) = fields.take("response_format") {
            check_format(&format)?;
            options.insert("response_format".to_owned(), format);
        }
        if let Some((tools, choice)) = tools::taken(&mut fields)? {
            options.insert("tools".to_owned(), tools);
            options.insert("tool_choice".to_owned(), choice);
        }
        let include_usage = match fields.take("stream_options") {
            None => false,
            Some(Value::Object(options)) => match options.get("include_usage") {
                None | Some(Value::Null) => false,
                Some(Value::Bool(wanted)) => *wanted,
                Some(_) => {
                    return Err(invalid(
                        "stream_options.include_usage",
                        "include_usage must be true or false",
                    ));
                }
            },
            Some(_) => return Err(invalid("stream_options", "stream_options must be an object")),
        };
        Ok(Self {
            model: fields.string("model")?.unwrap_or_default(),
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage,
            messages,
            max_tokens,
            options,
        })
    }

    /// The input of a job: as a conversation where the Cargo takes one, else as one prompt; settings that the Cargo
    /// does not know are left out, and no more tokens are asked for than it gives.
    pub(super) fn input_for(&self, cargo: &Cargo) -> Map<String, Value> {
        let mut input = Map::new();
        if cargo.takes("messages") {
            input.insert("messages".to_owned(), Value::Array(self.messages.clone()));
        } else {
            input.insert("prompt".to_owned(), Value::String(self.prompt()));
        }
        if let Some(max_tokens) = self.max_tokens.filter(|_| cargo.takes("max_tokens")) {
            let most = i64::try_from(cargo.spec.limits.max_tokens).unwrap_or(i64::MAX);
            let max_tokens = if most > 0 { max_tokens.min(most) } else { max_tokens };
            input.insert("max_tokens".to_owned(), json!(max_tokens));
        }
        let known = self.options.iter().filter(|(name, _)| cargo.takes(name));
        input.extend(known.map(|(name, value)| (name.clone(), value.clone())));
        input
    }

    fn prompt(&self) -> String {
        let lines: Vec<&str> =
            self.messages.iter().filter_map(|message| message["content"].as_str()).collect();
        lines.join("\n")
    }
}

/// Bytes of a JSON Schema that a reply can be held to.
const MAX_SCHEMA: usize = 64 << 10;

fn check_format(format: &Value) -> Result<(), ApiError> {
    let kind = format.get("type").and_then(Value::as_str);
    let schema = format.get("json_schema").and_then(|named| named.get("schema"));
    match (kind, schema) {
        (Some("text" | "json_object"), _) => Ok(()),
        (Some("json_schema"), Some(schema))
            if schema.is_object() && schema.to_string().len() <= MAX_SCHEMA =>
        {
            Ok(())
        }
        (Some("json_schema"), _) => Err(invalid(
            "response_format.json_schema.schema",
            format!("schema must be a JSON Schema of at most {MAX_SCHEMA} bytes"),
        )),
        _ => Err(invalid("response_format", "type must be text, json_object or json_schema")),
    }
}

fn messages(value: Value) -> Result<Vec<Value>, ApiError> {
    let Value::Array(list) = value else { return Err(invalid("messages", "messages must be a list")) };
    if list.is_empty() {
        return Err(invalid("messages", "messages must not be empty"));
    }
    list.into_iter().enumerate().map(|(index, message)| one_message(index, &message)).collect()
}

fn one_message(index: usize, message: &Value) -> Result<Value, ApiError> {
    const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
    let role = message.get("role").and_then(Value::as_str).filter(|role| ROLES.contains(role));
    let Some(role) = role else {
        return Err(invalid(
            &format!("messages.{index}.role"),
            "role must be system, developer, user, assistant or tool",
        ));
    };
    let param = format!("messages.{index}.content");
    let content = match message.get("content") {
        None | Some(Value::Null) if role == "assistant" => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => joined(&param, parts)?,
        _ => return Err(invalid(&param, "content must be a string or a list of text parts")),
    };
    let mut checked = json!({"role": role, "content": content});
    tools::keep_calls(index, message, &mut checked)?;
    Ok(checked)
}

fn joined(param: &str, parts: &[Value]) -> Result<String, ApiError> {
    let text = |part: &Value| {
        let is_text = part.get("type").and_then(Value::as_str) == Some("text");
        part.get("text").and_then(Value::as_str).filter(|_| is_text).map(str::to_owned)
    };
    parts
        .iter()
        .map(text)
        .collect::<Option<String>>()
        .ok_or_else(|| invalid(param, "only parts of type text are taken"))
}

fn stops(stop: Value) -> Result<Value, ApiError> {
    let fine = match &stop {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => {
            list.len() <= 4 && list.iter().all(|text| text.as_str().is_some_and(|text| !text.is_empty()))
        }
        _ => false,
    };
    if fine { Ok(stop) } else { Err(invalid("stop", "stop must be a text or a list of up to 4 texts")) }
}
