//! The input of a job. It is encoded once, when the job is accepted: SQL and the fabric get the same text, copies of the job share it, and it
//! is parsed where code looks inside.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, value::RawValue};

use super::input_tokens::{self, InputTokens};

/// An encoded input, an object. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JobInput(Arc<Encoded>);

#[derive(Debug)]
struct Encoded {
    json: Box<RawValue>,
    tokens: OnceLock<InputTokens>,
}

impl JobInput {
    /// Encodes the fields of an input.
    pub fn new(fields: &Map<String, Value>) -> Self {
        // Values of JSON can be encoded.
        let json = serde_json::value::to_raw_value(fields).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(Arc::new(Encoded { json, tokens: input_tokens::count(fields).into() }))
    }

    /// An input that was encoded before. Returns `None` if the text is not an object of JSON.
    pub fn from_json(text: String) -> Option<Self> {
        let json = RawValue::from_string(text).ok()?;
        json.get().starts_with('{').then(|| Self(Arc::new(Encoded { json, tokens: OnceLock::new() })))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.json.get()
    }

    /// All fields, parsed.
    pub fn fields(&self) -> Map<String, Value> {
        serde_json::from_str(self.as_str()).unwrap_or_default()
    }

    /// Parses one field. Returns `None` if it is absent.
    pub fn get(&self, field: &str) -> Option<Value> {
        let fields: HashMap<String, &RawValue> = serde_json::from_str(self.as_str()).ok()?;
        serde_json::from_str(fields.get(field)?.get()).ok()
    }

    /// How many tokens a language model may find in it.
    pub fn tokens(&self) -> InputTokens {
        *self.0.tokens.get_or_init(|| input_tokens::count(&self.fields()))
    }
}

impl Default for JobInput {
    fn default() -> Self {
        Self::new(&Map::new())
    }
}

impl PartialEq for JobInput {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Serialize for JobInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spaces that no encoder of this workspace writes show whether a text was encoded again.
    const SPACED: &str = r#"{ "prompt" : "hi", "stop" : ["a"] }"#;

    #[derive(Serialize)]
    struct Message {
        v: u32,
        input: JobInput,
    }

    #[test]
    fn an_encoded_input_is_not_encoded_again() {
        let input = JobInput::from_json(SPACED.to_owned()).expect("an object");
        let message = json!({"v": 1}).to_string().replace('}', ",\"input\":") + SPACED + "}";
        let copy = input.clone();
        assert!(std::ptr::eq(copy.as_str(), input.as_str()), "copies share the text");
        assert_eq!(serde_json::to_string(&Message { v: 1, input: copy }).expect("JSON"), message);
    }

    #[test]
    fn fields_are_parsed_as_they_were_encoded() {
        let fields = json!({"prompt": "hi\u{0}\"", "stop": null, "seed": u64::MAX, "t": 0.1});
        let fields = fields.as_object().expect("an object");
        let input = JobInput::new(fields);
        assert_eq!(&input.fields(), fields);
        for (name, value) in fields {
            assert_eq!(input.get(name).as_ref(), Some(value), "{name}");
        }
        assert_eq!(input.get("absent"), None);
        let read = JobInput::from_json(input.as_str().to_owned()).expect("an object");
        assert_eq!((read.tokens(), &read), (input.tokens(), &input));
    }

    #[test]
    fn a_text_that_is_no_object_is_no_input() {
        for text in ["", "null", "[1]", "{\"a\":", "{} {}"] {
            assert!(JobInput::from_json(text.to_owned()).is_none(), "{text}");
        }
    }
}
