//! Request bodies: one strict JSON text, then its fields by name, so that every complaint names the field.

use std::{fmt, ops::RangeInclusive};

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
    http::header,
};
use island_protocol::problem::Code;
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use super::{ApiError, MAX_BODY};

/// How deep a body may nest.
const MAX_DEPTH: usize = 64;

/// A JSON object of a request.
#[derive(Debug)]
pub(crate) struct Json(pub Fields);

impl<S: Send + Sync> FromRequest<S> for Json {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let media_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = media_type.and_then(|value| value.split(';').next()).map(str::trim);
        if !essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
            return Err(ApiError::new(Code::UnsupportedMediaType, "send a body of type application/json"));
        }
        let bytes = to_bytes(request.into_body(), MAX_BODY).await.map_err(|_| {
            ApiError::new(Code::PayloadTooLarge, format!("a body may have {MAX_BODY} bytes, sent whole"))
        })?;
        let value = parse(&bytes).map_err(|error| unreadable(&error))?;
        match value {
            Value::Object(fields) => Ok(Self(Fields(fields))),
            _ => Err(ApiError::new(Code::ValidationError, "the body must be a JSON object")),
        }
    }
}

fn unreadable(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    // `1e999` is JSON; it is the value that nobody can use.
    if text.starts_with("number out of range") {
        return ApiError::new(Code::ValidationError, format!("a {text}"));
    }
    ApiError::new(Code::InvalidJson, format!("the body is no JSON: {text}"))
}

/// `1.0` is an integer to JSON Schema, and to clients whose language has one kind of number.
fn whole(value: &Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT)?;
    Some(number as i64)
}

/// Parses one JSON text; duplicate names, deep nesting and anything behind it are errors.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: MAX_DEPTH }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("it nests too deep"))?;
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(deeper)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom("a name is there twice in one object"));
            }
            object.insert(name, entries.next_value_seed(deeper)?);
        }
        Ok(Value::Object(object))
    }
}

/// The fields of a body. Each getter takes its field out; null counts as absent.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

fn invalid(name: &str, must: &str) -> ApiError {
    ApiError::field(Code::ValidationError, name, format!("{name} must be {must}"))
}

impl Fields {
    /// Every field that nobody took.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }

    /// The raw field.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(crate) fn required(&mut self, name: &str) -> Result<Value, ApiError> {
        self.take(name)
            .ok_or_else(|| ApiError::field(Code::ValidationError, name, format!("{name} is missing")))
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid(name, "a string")),
        }
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(invalid(name, "true or false")),
        }
    }

    pub(crate) fn integer(
        &mut self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let (low, high) = (range.start(), range.end());
        let must = || format!("an integer from {low} to {high}");
        let number = value.as_i64().or_else(|| whole(&value)).filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| invalid(name, &must()))
    }

    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let must = format!("a number from {} to {}", range.start(), range.end());
        let number = value.as_f64().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| invalid(name, &must))
    }

    /// Complains about the first field that nobody took.
    pub(crate) fn nothing_else(&self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let shown: String = name.chars().take(64).collect();
                let message = format!("there is no field {shown:?} here");
                Err(ApiError::field(Code::ValidationError, shown, message))
            }
        }
    }

    /// All fields as one type; serde's complaint names the field in backticks.
    pub(crate) fn into_type<T: DeserializeOwned>(self) -> Result<T, ApiError> {
        T::deserialize(Value::Object(self.0)).map_err(|error| {
            let text = error.to_string();
            match text.split('`').nth(1) {
                Some(field) => ApiError::field(Code::ValidationError, field, text.clone()),
                None => ApiError::new(Code::ValidationError, text),
            }
        })
    }
}

/// Fields as a request would bring them.
#[cfg(test)]
pub(crate) fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => Fields(fields),
        other => panic!("{other} is no object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_strict_text() {
        for bad in ["", "{", "{} x", r#"{"a":1,"a":2}"#, "[1e999]", "nul", "{\"a\":\"\u{1}\"}"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\"\xff\"").is_err());
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(deep(64).as_bytes()).is_ok());
        assert!(parse(deep(65).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_serde_on_what_it_takes(text in r#"[\[\]{}",:0-9a-e.\- ]{0,40}"#) {
            if let Ok(value) = parse(text.as_bytes()) {
                prop_assert_eq!(value, serde_json::from_str::<Value>(&text).expect("also plain JSON"));
            }
        }
    }

    #[test]
    fn complaints_name_the_field() {
        let fields = |text: &str| match parse(text.as_bytes()) {
            Ok(Value::Object(fields)) => Fields(fields),
            other => panic!("{other:?}"),
        };
        let param = |error: ApiError| error.body().error.param;
        assert_eq!(param(fields(r#"{"p":101}"#).integer("p", 0..=100).expect_err("range")), Some("p".into()));
        assert_eq!(param(fields(r#"{"p":1.5}"#).integer("p", 0..=100).expect_err("type")), Some("p".into()));
        assert_eq!(param(fields("{}").required("q").expect_err("missing")), Some("q".into()));
        assert_eq!(param(fields(r#"{"z":1}"#).nothing_else().expect_err("unknown")), Some("z".into()));
    }
}
