//! Parses the input of a job. Every number is checked here, whatever a schema allows.

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_api::RunRequest;
use island_runtimes_template::{Message, Thinking};
use serde_json::{Map, Value, json};

use std::collections::BTreeMap;

use crate::{
    prompt::MEDIA,
    sampling::Sampling,
    tools::{Offer, Wrong, past},
};

/// Maximum number of stop texts of one request.
const MAX_STOPS: usize = 16;
/// Maximum bytes of one stop text.
const MAX_STOP_BYTES: usize = 1024;
/// Maximum number of pictures and sounds in one conversation.
const MAX_MEDIA: usize = 16;
/// Maximum number of tokens with a bias.
const MAX_BIASES: usize = 1024;
/// Maximum number of alternatives whose probabilities are reported.
const MAX_LOGPROBS: u64 = 20;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The conversation; numbers between marks stand for pictures. Empty if there is a `text`.
    pub messages: Vec<Message>,
    /// Text to continue, or a gap to fill, without a chat template.
    pub text: Option<RawText>,
    /// Its pictures and sounds, in order.
    pub media: Vec<Media>,
    /// Maximum number of tokens to write; absent, as many as fit.
    pub max_tokens: Option<u64>,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Texts that end the reply.
    pub stops: Vec<String>,
    /// Functions it may call.
    pub offer: Option<Offer>,
    /// JSON Schema that the whole reply must match.
    pub schema: Option<Value>,
    /// How the model is to reason before it answers.
    pub thinking: Thinking,
    /// Maximum number of tokens of its reasoning.
    pub max_reasoning_tokens: Option<u64>,
    /// Whether only the tokens of the prompt are counted, and nothing is written.
    pub counts_only: bool,
}

/// A file in a message, in base64 or as a `data:` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// A picture.
    Picture(String),
    /// A sound.
    Sound(String),
}

/// Text that is not a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawText {
    /// The text before what is written.
    pub before: String,
    /// The text after it; `None` if what is written has no end.
    pub after: Option<String>,
}

/// Input that this engine cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not an object.
    #[error("the input must be an object")]
    Shape,
    /// There is no conversation.
    #[error("messages, prompt, raw_prompt or text is needed")]
    Nothing,
    /// A field of the wrong type or out of its range.
    #[error("{field} must be {must}")]
    Field {
        /// Its name.
        field: &'static str,
        /// The rule for it.
        must: &'static str,
    },
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::of_job(FailureCode::InvalidInput, error.to_string())
    }
}

impl Request {
    /// Parses a job's input. Missing fields come from `[engine.defaults]` of the Cargo; a missing seed is `seed`.
    pub fn of(request: &RunRequest, seed: u64) -> Result<Self, RequestError> {
        let input = request.input.as_object().ok_or(RequestError::Shape)?;
        let mut fields =
            request.cargo.engine.get("defaults").and_then(Value::as_object).cloned().unwrap_or_default();
        fields.extend(
            input
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        let fields = Fields(&fields);
        let limit = Some(request.cargo.limits.max_tokens).filter(|&limit| limit > 0);
        let asked = fields.whole("max_completion_tokens")?.or(fields.whole("max_tokens")?);
        let offer =
            Offer::read(fields.0).map_err(|Wrong { field, must }| RequestError::Field { field, must })?;
        let form = schema(&fields)?;
        let schema = match &offer {
            Some(offer) => offer.reply_schema(form.as_ref()),
            None => form,
        };
        let (thinking, max_reasoning_tokens) = thinking(&fields)?;
        let mut media = Vec::new();
        let text = fields.text("raw_prompt")?;
        let after = fields.text("suffix")?;
        let text = text.map(|before| RawText { before, after });
        let messages = if text.is_some() { Vec::new() } else { messages(&fields, &mut media)? };
        Ok(Self {
            thinking,
            max_reasoning_tokens,
            messages,
            text,
            media,
            max_tokens: asked.into_iter().chain(limit).min(),
            sampling: sampling(&fields, seed)?,
            stops: stops(&fields)?,
            offer,
            schema,
            counts_only: fields.flag("count_tokens")?,
        })
    }
}

struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn text(&self, field: &'static str) -> Result<Option<String>, RequestError> {
        let Some(value) = self.0.get(field) else { return Ok(None) };
        let text = value.as_str().ok_or(RequestError::Field { field, must: "a text" })?;
        Ok(Some(text.to_owned()))
    }

    fn flag(&self, field: &'static str) -> Result<bool, RequestError> {
        let Some(value) = self.0.get(field) else { return Ok(false) };
        value.as_bool().ok_or(RequestError::Field { field, must: "true or false" })
    }

    fn number(
        &self,
        field: &'static str,
        range: (f64, f64),
        must: &'static str,
    ) -> Result<Option<f64>, RequestError> {
        let Some(value) = self.0.get(field) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (range.0..=range.1).contains(number));
        number.map(Some).ok_or(RequestError::Field { field, must })
    }

    fn whole(&self, field: &'static str) -> Result<Option<u64>, RequestError> {
        let Some(value) = self.0.get(field) else { return Ok(None) };
        let whole = value.as_u64().filter(|&whole| whole > 0);
        whole.map(Some).ok_or(RequestError::Field { field, must: "a whole number of at least 1" })
    }
}

/// How the model is to reason, and the maximum number of tokens for it.
fn thinking(fields: &Fields<'_>) -> Result<(Thinking, Option<u64>), RequestError> {
    let effort = fields.text("reasoning_effort")?;
    let effort = match effort.as_deref() {
        Some("minimal") => Some("low"),
        Some("xhigh") => Some("high"),
        None | Some("none" | "low" | "medium" | "high") => effort.as_deref(),
        Some(_) => {
            let must = "none, minimal, low, medium, high or xhigh";
            return Err(RequestError::Field { field: "reasoning_effort", must });
        }
    };
    let budget = match fields.0.get("max_reasoning_tokens") {
        None => None,
        Some(value) => Some(
            value
                .as_u64()
                .ok_or(RequestError::Field { field: "max_reasoning_tokens", must: "a whole number" })?,
        ),
    };
    let is_off = effort == Some("none") || budget == Some(0);
    let enabled = (effort.is_some() || budget.is_some()).then_some(!is_off);
    let effort = effort.filter(|_| !is_off).map(str::to_owned);
    Ok((Thinking { enabled, effort }, if is_off { Some(0) } else { budget }))
}

fn schema(fields: &Fields<'_>) -> Result<Option<Value>, RequestError> {
    let wrong = RequestError::Field {
        field: "response_format",
        must: "of type text, json_object, or json_schema with a schema",
    };
    let Some(format) = fields.0.get("response_format") else { return Ok(None) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({ "type": "object" }))),
        Some("json_schema") => {
            let schema = format.get("json_schema").and_then(|named| named.get("schema"));
            schema.filter(|schema| schema.is_object()).cloned().map(Some).ok_or(wrong)
        }
        _ => Err(wrong),
    }
}

fn messages(fields: &Fields<'_>, media: &mut Vec<Media>) -> Result<Vec<Message>, RequestError> {
    if let Some(given) = fields.0.get("messages") {
        let wrong =
            RequestError::Field { field: "messages", must: "a list of messages, each with role and content" };
        let list = given.as_array().filter(|list| !list.is_empty()).ok_or(wrong.clone())?;
        return list.iter().map(|message| read_message(message, media).ok_or(wrong.clone())).collect();
    }
    let prompt = fields.text("prompt")?.or(fields.text("text")?).ok_or(RequestError::Nothing)?;
    let system = fields.text("system_prompt")?.filter(|system| !system.is_empty());
    let system = system.map(|content| Message::new("system", without_marks(&content)));
    Ok(system.into_iter().chain([Message::new("user", without_marks(&prompt))]).collect())
}

fn read_message(message: &Value, media: &mut Vec<Media>) -> Option<Message> {
    let role = match message.get("role")?.as_str()? {
        // The newer name of the same role; templates use the older.
        "developer" => "system",
        role @ ("system" | "user" | "assistant" | "tool") => role,
        _ => return None,
    };
    let content = match message.get("content").unwrap_or(&Value::Null) {
        Value::String(text) => without_marks(text),
        // Only a message with function calls may have no content.
        Value::Null if message.get("tool_calls").is_some() => String::new(),
        Value::Array(parts) => {
            let parts = parts.iter().map(|part| read_part(part, media));
            parts.collect::<Option<Vec<_>>>()?.join("\n")
        }
        _ => return None,
    };
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(calls) => calls.as_array()?.iter().map(read_call).collect::<Option<_>>()?,
    };
    let text = |field: &str| message.get(field).and_then(Value::as_str).map(without_marks);
    Some(Message {
        calls,
        reasoning: text("reasoning_content"),
        call_id: text("tool_call_id"),
        name: text("name"),
        ..Message::new(role, content)
    })
}

/// An earlier call. Templates need the arguments as an object, clients send them as a text.
fn read_call(call: &Value) -> Option<Value> {
    let function = call.get("function")?;
    let name = function.get("name")?.as_str()?;
    let arguments = match function.get("arguments")? {
        Value::String(text) => past::arguments(text),
        given => given.clone(),
    };
    let id = call.get("id").cloned().unwrap_or(Value::Null);
    Some(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// The text of a part; that of a file is its number between marks.
fn read_part(part: &Value, media: &mut Vec<Media>) -> Option<String> {
    let file = |pointer: &str| part.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let file = match part.get("type")?.as_str()? {
        "text" => return part.get("text")?.as_str().map(without_marks),
        "image_url" => Media::Picture(file("/image_url/url")?),
        "input_audio" => Media::Sound(file("/input_audio/data")?),
        _ => return None,
    };
    media.push(file);
    (media.len() <= MAX_MEDIA).then(|| format!("{MEDIA}{}{MEDIA}", media.len() - 1))
}

/// A text in which nothing looks like the number of a file.
fn without_marks(text: &str) -> String {
    text.replace(MEDIA, "\u{fffd}")
}

fn sampling(fields: &Fields<'_>, seed: u64) -> Result<Sampling, RequestError> {
    let usual = Sampling::default();
    let number = |field, low, high, must, usual: f32| {
        Ok::<_, RequestError>(fields.number(field, (low, high), must)?.map_or(usual, |number| number as f32))
    };
    let top_k = match fields.0.get("top_k") {
        None => usual.top_k,
        Some(value) => value
            .as_u64()
            .and_then(|top_k| i32::try_from(top_k).ok())
            .ok_or(RequestError::Field { field: "top_k", must: "a whole number" })?,
    };
    let seed = match fields.0.get("seed") {
        None => seed,
        Some(value) => value
            .as_i64()
            .map(i64::cast_unsigned)
            .or_else(|| value.as_u64())
            .ok_or(RequestError::Field { field: "seed", must: "a whole number" })?,
    };
    let penalty = "from -2 to 2";
    Ok(Sampling {
        temperature: number("temperature", 0.0, 10.0, "from 0 to 10", usual.temperature)?,
        top_p: number("top_p", 0.0, 1.0, "from 0 to 1", usual.top_p)?,
        min_p: number("min_p", 0.0, 1.0, "from 0 to 1", usual.min_p)?,
        repetition: number("repetition_penalty", 0.1, 10.0, "from 0.1 to 10", usual.repetition)?,
        presence: number("presence_penalty", -2.0, 2.0, penalty, usual.presence)?,
        frequency: number("frequency_penalty", -2.0, 2.0, penalty, usual.frequency)?,
        top_k,
        seed,
        bias: bias(fields)?,
        logprobs: logprobs(fields)?,
    })
}

fn bias(fields: &Fields<'_>) -> Result<BTreeMap<i32, f32>, RequestError> {
    let must = "an object of up to 1024 numbers from -100 to 100, by the numbers of tokens";
    let wrong = RequestError::Field { field: "logit_bias", must };
    let Some(given) = fields.0.get("logit_bias") else { return Ok(BTreeMap::new()) };
    let given = given.as_object().filter(|given| given.len() <= MAX_BIASES).ok_or(wrong.clone())?;
    let read = |(token, bias): (&String, &Value)| {
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias))?;
        Some((token.parse().ok()?, bias as f32))
    };
    given.iter().map(|entry| read(entry).ok_or(wrong.clone())).collect()
}

/// Number of alternatives whose probabilities are reported; `None` if none are reported, not even that of the chosen token.
fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, RequestError> {
    let must = "true or false";
    let wanted = match fields.0.get("logprobs") {
        None => false,
        Some(wanted) => wanted.as_bool().ok_or(RequestError::Field { field: "logprobs", must })?,
    };
    let top = match fields.0.get("top_logprobs") {
        None => 0,
        Some(top) => {
            let top = top.as_u64().filter(|&top| top <= MAX_LOGPROBS);
            top.ok_or(RequestError::Field { field: "top_logprobs", must: "a whole number up to 20" })?
        }
    };
    Ok(wanted.then_some(top as usize))
}

fn stops(fields: &Fields<'_>) -> Result<Vec<String>, RequestError> {
    let wrong = RequestError::Field { field: "stop", must: "a text, or up to 16 texts of up to 1024 bytes" };
    let given = match fields.0.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let fits = |value: &Value| value.as_str().filter(|stop| stop.len() <= MAX_STOP_BYTES).map(str::to_owned);
    let stops: Option<Vec<String>> = given.iter().map(fits).collect();
    stops.filter(|stops| stops.len() <= MAX_STOPS).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: Value) -> Result<Request, RequestError> {
        let cargo = json!({"slug": "m", "runtime_type": "llmcpp", "limits": {"max_tokens": 100}, "engine": {"defaults": {"top_k": 7, "temperature": 0.5}}});
        let request = RunRequest {
            cargo: serde_json::from_value(cargo).expect("a Cargo"),
            input,
            artifacts: std::collections::BTreeMap::new(),
            continues: None,
            continues_reasoning: None,
            scope: String::new(),
        };
        Request::of(&request, 42)
    }

    #[test]
    fn input_overrides_defaults_and_limits_override_input() {
        let request =
            read(json!({"prompt": "hi", "temperature": 0, "max_tokens": 500, "stop": "x", "top_p": null}))
                .expect("valid");
        assert_eq!(
            (request.sampling.top_k, request.sampling.temperature, request.sampling.seed),
            (7, 0.0, 42)
        );
        assert_eq!((request.max_tokens, request.stops), (Some(100), vec!["x".to_owned()]));
    }

    #[test]
    fn files_are_numbered_and_marks_of_users_are_replaced() {
        let image = |data: &str| json!({"type": "image_url", "image_url": {"url": data}});
        let text = |text: &str| json!({"type": "text", "text": text});
        let sound = json!({"type": "input_audio", "input_audio": {"data": "b", "format": "wav"}});
        let content = json!([image("a"), text("and"), sound, text(&format!("{MEDIA}0{MEDIA}"))]);
        let request = read(json!({"messages": [{"role": "user", "content": content}]})).expect("valid");
        let file = |name: &str| Media::Picture(name.to_owned());
        assert_eq!(request.media, [file("a"), Media::Sound("b".to_owned())]);
        let marked = format!("{MEDIA}0{MEDIA}\nand\n{MEDIA}1{MEDIA}\n\u{fffd}0\u{fffd}");
        assert_eq!(request.messages[0].content, marked);
        let many = json!({"messages": [{"role": "user", "content": vec![image("a"); MAX_MEDIA + 1]}]});
        assert!(read(many).is_err());
    }

    #[test]
    fn biases_probabilities_and_raw_texts_are_parsed() {
        let request = read(json!({
            "raw_prompt": "a", "suffix": "b", "logit_bias": {"7": -100, "8": 1.5}, "logprobs": true, "top_logprobs": 3,
        }));
        let request = request.expect("valid");
        assert_eq!(request.text, Some(RawText { before: "a".to_owned(), after: Some("b".to_owned()) }));
        assert!(request.messages.is_empty());
        assert_eq!(request.sampling.bias, BTreeMap::from([(7, -100.0), (8, 1.5)]));
        assert_eq!(request.sampling.logprobs, Some(3));
        assert_eq!(read(json!({"prompt": "a", "top_logprobs": 3})).expect("valid").sampling.logprobs, None);
        for bad in [
            json!({"prompt": "a", "logit_bias": {"x": 1}}),
            json!({"prompt": "a", "logit_bias": {"1": 101}}),
            json!({"prompt": "a", "logit_bias": [1]}),
            json!({"prompt": "a", "logprobs": 1}),
            json!({"prompt": "a", "logprobs": true, "top_logprobs": 21}),
            json!({"suffix": "a"}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn effort_and_budget_decide_whether_the_model_reasons() {
        let parsed = |extra: Value| {
            let mut input = json!({"prompt": "hi"});
            input.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
            read(input).map(|request| (request.thinking, request.max_reasoning_tokens))
        };
        let thinking =
            |enabled, effort: Option<&str>| Thinking { enabled, effort: effort.map(str::to_owned) };
        assert_eq!(parsed(json!({})), Ok((thinking(None, None), None)));
        assert_eq!(parsed(json!({"reasoning_effort": "none"})), Ok((thinking(Some(false), None), Some(0))));
        assert_eq!(parsed(json!({"max_reasoning_tokens": 0})), Ok((thinking(Some(false), None), Some(0))));
        assert_eq!(
            parsed(json!({"reasoning_effort": "minimal", "max_reasoning_tokens": 9})),
            Ok((thinking(Some(true), Some("low")), Some(9)))
        );
        assert!(parsed(json!({"reasoning_effort": "much"})).is_err());
        assert!(parsed(json!({"max_reasoning_tokens": -1})).is_err());
    }

    #[test]
    fn all_forms_of_conversations_are_parsed() {
        let parts = read(
            json!({"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}),
        );
        let messages = parts.expect("valid").messages;
        assert_eq!((messages[0].role.as_str(), messages[1].content.as_str()), ("system", "a\nb"));
        let call = |arguments: &str| json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
        let called = json!({"messages": [{"role": "assistant", "tool_calls": [call(""), call("{\"a\":1}"), call("{\"a\":\"x")]}]});
        let calls = read(called).expect("valid").messages.remove(0).calls;
        let arguments: Vec<&Value> = calls.iter().map(|call| &call["function"]["arguments"]).collect();
        assert_eq!(arguments, [&json!({}), &json!({"a": 1}), &json!({"a": "x"})], "the last one was cut");
        let prompt = read(json!({"prompt": "p", "system_prompt": "s"})).expect("valid").messages;
        assert_eq!(prompt.len(), 2);
        assert_eq!(read(json!({"text": "t"})).expect("valid").messages[0].content, "t");
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let bad = [
            json!(null),
            json!({}),
            json!({"prompt": 7}),
            json!({"messages": []}),
            json!({"messages": [{"role": "god", "content": "x"}]}),
            json!({"prompt": "x", "temperature": -1}),
            json!({"prompt": "x", "temperature": "hot"}),
            json!({"prompt": "x", "top_p": 1.5}),
            json!({"prompt": "x", "top_k": -4}),
            json!({"prompt": "x", "top_k": 1_u64 << 40}),
            json!({"prompt": "x", "max_tokens": 0}),
            json!({"prompt": "x", "max_tokens": 1.5}),
            json!({"prompt": "x", "stop": 5}),
            json!({"prompt": "x", "stop": vec!["s"; 17]}),
            json!({"prompt": "x", "seed": "s"}),
            json!({"prompt": "x", "presence_penalty": 3}),
            json!({"prompt": "x", "repetition_penalty": 0}),
            json!({"prompt": "x", "response_format": "json"}),
            json!({"prompt": "x", "response_format": {"type": "json_schema"}}),
            json!({"prompt": "x", "tools": [{}]}),
            json!({"messages": [{"role": "user", "content": null}]}),
        ];
        for input in bad {
            assert!(read(input.clone()).is_err(), "{input}");
        }
    }
}
