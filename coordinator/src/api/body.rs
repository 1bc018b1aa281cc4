//! Request bodies: one strict JSON text, validated against the JSON Schema of its type, which the OpenAPI document shows as well.

use std::{fmt, sync::LazyLock};

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
    http::header,
};
use island_protocol::{
    api::{CheckIsland, Enroll, Pair, RenewCredentials, SubmitJob, key::CreateKey},
    chat::{ChatRequest, EmbeddingsRequest},
    images::ImagesRequest,
    problem::Code,
};
use jsonschema::Validator;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use super::{ApiError, MAX_BODY};
use crate::catalogue::cargo;

/// Maximum depth of a body.
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
    // `1e999` is valid JSON; only its value cannot be represented.
    if text.starts_with("number out of range") {
        return ApiError::new(Code::ValidationError, format!("a {text}"));
    }
    ApiError::new(Code::InvalidJson, format!("the body is not JSON: {text}"))
}

/// Parses one JSON text. Duplicate names, deep nesting and trailing text are errors.
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
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("it is nested too deeply"))?;
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
                return Err(A::Error::custom("an object has the same name twice"));
            }
            object.insert(name, entries.next_value_seed(deeper)?);
        }
        Ok(Value::Object(object))
    }
}

/// A type of a request body, with its JSON Schema compiled once.
pub(crate) trait RequestBody: DeserializeOwned {
    fn validator() -> &'static Validator;
}

macro_rules! request_bodies {
    ($($name:ty),* $(,)?) => {
        $(impl RequestBody for $name {
            fn validator() -> &'static Validator {
                static VALIDATOR: LazyLock<Validator> = LazyLock::new(compile::<$name>);
                &VALIDATOR
            }
        })*

        #[cfg(test)]
        const VALIDATORS: &[fn() -> &'static Validator] = &[$(<$name as RequestBody>::validator),*];
    };
}

request_bodies![
    ChatRequest,
    CheckIsland,
    CreateKey,
    EmbeddingsRequest,
    Enroll,
    ImagesRequest,
    Pair,
    RenewCredentials,
    SubmitJob,
];

fn compile<T: JsonSchema>() -> Validator {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let compiled = jsonschema::options().should_validate_formats(true).build(&schema);
    compiled.expect("the schemas of request bodies are valid, as a test checks")
}

/// A body that was not yet checked against a type.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields as they were sent.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }

    /// Validates the body against the schema of a type and reads it as that type. The error names the field.
    pub(crate) fn parse<T: RequestBody>(self) -> Result<T, ApiError> {
        let mut body = Value::Object(self.0);
        cargo::check(T::validator(), &body).map_err(|violation| match violation.field.as_str() {
            "" => ApiError::new(Code::ValidationError, violation.message),
            field => ApiError::field(Code::ValidationError, field, format!("{field}: {}", violation.message)),
        })?;
        body.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(make_integer);
        T::deserialize(body).map_err(|error| ApiError::new(Code::ValidationError, error.to_string()))
    }
}

/// `1.0` is an integer to JSON Schema, and to clients whose language has one kind of number, but not to serde.
fn make_integer(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
    if let (Value::Number(number), Some(whole)) = (&mut *value, whole)
        && number.is_f64()
    {
        *value = (whole as i64).into();
    }
}

/// Fields as a request would contain them.
#[cfg(test)]
pub(crate) fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => Fields(fields),
        other => panic!("{other} is not an object"),
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
    fn every_schema_compiles() {
        assert!(VALIDATORS.iter().all(|validator| !validator().is_valid(&Value::Null)));
    }

    #[test]
    fn errors_name_the_field() {
        let param = |text: &str| {
            let Ok(Value::Object(body)) = parse(text.as_bytes()) else { panic!("{text}") };
            Fields(body).parse::<SubmitJob>().expect_err(text).body().error.param
        };
        assert_eq!(param(r#"{"workload":"a","input":{},"priority":101}"#), Some("priority".into()));
        assert_eq!(param(r#"{"workload":"a","input":{},"priority":1.5}"#), Some("priority".into()));
        assert_eq!(param(r#"{"input":{}}"#), Some("workload".into()));
        assert_eq!(param(r#"{"workload":"a","input":{},"z":1}"#), Some("z".into()));
    }

    #[test]
    fn numbers_and_nulls_are_read_as_clients_send_them() {
        let body = serde_json::json!({"workload": "a", "input": {"x": 1.0}, "priority": 7.0});
        let job: SubmitJob = fields(body).parse().expect("a job");
        assert_eq!((job.priority, &job.input["x"]), (7, &serde_json::json!(1.0)), "an input stays as it is");
        let job: SubmitJob = fields(serde_json::json!({"workload": "a", "input": {}, "priority": null}))
            .parse()
            .expect("a job");
        assert_eq!(job.priority, 0);
    }
}
