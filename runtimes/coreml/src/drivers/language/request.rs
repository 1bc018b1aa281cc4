//! The input of a language model's job, with the field names of chat completions.

use island_runtimes_kit::error::{EngineError, invalid_input};
use serde_json::{Map, Value, json};

/// Maximum number of messages of a conversation.
const MAX_MESSAGES: usize = 4096;
/// Maximum number of stop sequences.
const MAX_STOPS: usize = 16;

/// A validated request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// Role and text, oldest first.
    pub(super) messages: Vec<(String, String)>,
    /// Maximum number of generated tokens; unlimited if absent.
    pub(super) max_tokens: Option<usize>,
    /// Stop sequences.
    pub(super) stops: Vec<String>,
    /// Options of the search.
    pub(super) wishes: Value,
}

impl Request {
    /// Reads a job's input.
    pub(super) fn of(input: &Value) -> Result<Self, EngineError> {
        let fields = input.as_object().ok_or_else(|| invalid_input("the input must be an object"))?;
        let asked =
            fields.get("max_completion_tokens").or(fields.get("max_tokens")).filter(|asked| !asked.is_null());
        let max_tokens = asked.map(|asked| {
            let count =
                asked.as_u64().filter(|&count| count > 0).and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| invalid_input("max_tokens must be a whole number of at least 1"))
        });
        Ok(Self {
            messages: messages(fields)?,
            max_tokens: max_tokens.transpose()?,
            stops: stops(fields)?,
            wishes: wishes(fields)?,
        })
    }
}

fn messages(fields: &Map<String, Value>) -> Result<Vec<(String, String)>, EngineError> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let Some(given) = fields.get("messages") else {
        let prompt = text("prompt").or(text("text")).filter(|prompt| !prompt.is_empty());
        let prompt = prompt.ok_or_else(|| invalid_input("messages, prompt or text is required"))?;
        let system = text("system_prompt").filter(|system| !system.is_empty());
        let system = system.map(|system| ("system".to_owned(), system));
        return Ok(system.into_iter().chain([("user".to_owned(), prompt)]).collect());
    };
    let bad = || invalid_input("messages must be a list of messages, each with role and content");
    let list =
        given.as_array().filter(|list| !list.is_empty() && list.len() <= MAX_MESSAGES).ok_or_else(bad)?;
    list.iter().map(|message| read(message).ok_or_else(bad)).collect()
}

fn read(message: &Value) -> Option<(String, String)> {
    let role = match message.get("role")?.as_str()? {
        "developer" => "system",
        role @ ("system" | "user" | "assistant") => role,
        _ => return None,
    };
    let content = match message.get("content")? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
            parts.iter().map(text).collect::<Option<Vec<_>>>()?.join("\n")
        }
        _ => return None,
    };
    Some((role.to_owned(), content))
}

fn stops(fields: &Map<String, Value>) -> Result<Vec<String>, EngineError> {
    let bad = || invalid_input(format!("stop must be a text, or up to {MAX_STOPS} texts"));
    let stops = match fields.get("stop") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(stop)) => vec![stop.clone()],
        Some(Value::Array(all)) if all.len() <= MAX_STOPS => {
            all.iter().map(|stop| stop.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(bad)?
        }
        Some(_) => return Err(bad()),
    };
    if stops.iter().any(String::is_empty) { Err(bad()) } else { Ok(stops) }
}

/// No temperature, or 0, selects the most likely token.
fn wishes(fields: &Map<String, Value>) -> Result<Value, EngineError> {
    let mut wishes = Map::new();
    let number = |name: &str, low: f64, high: f64| match fields.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => {
            let number = value.as_f64().filter(|number| (low..=high).contains(number));
            number.map(Some).ok_or_else(|| invalid_input(format!("{name} must be from {low} to {high}")))
        }
    };
    if let Some(temperature) = number("temperature", 0.0, 10.0)? {
        wishes.insert("do_sample".to_owned(), json!(temperature > 0.0));
        if temperature > 0.0 {
            wishes.insert("temperature".to_owned(), json!(temperature));
        }
    }
    if let Some(share) = number("top_p", 0.0, 1.0)? {
        wishes.insert("top_p".to_owned(), json!(share.max(1e-6)));
    }
    if let Some(penalty) = number("repetition_penalty", 0.1, 10.0)? {
        wishes.insert("repetition_penalty".to_owned(), json!(penalty));
    }
    for name in ["top_k", "seed"] {
        if let Some(value) = fields.get(name).filter(|value| !value.is_null()) {
            let whole = value.as_u64().or(value.as_i64().map(i64::cast_unsigned));
            let whole = whole.ok_or_else(|| invalid_input(format!("{name} must be a whole number")))?;
            wishes.insert(name.to_owned(), json!(whole));
        }
    }
    // One beam: a state cannot be copied.
    wishes.insert("num_beams".to_owned(), json!(1));
    Ok(Value::Object(wishes))
}
