//! Request bodies: one strict JSON text, validated against the JSON Schema of its type, which the OpenAPI document shows as well.
//!
//! What a request without a key can cost is small: only [`Keyed`] reads large bodies, and it does so after the key is
//! known. The values of a body are counted while it is parsed, as each of them takes more memory than its text.

use std::{cell::Cell, fmt, sync::Arc, sync::LazyLock, time::Duration};

use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts as _, Request},
    http::{HeaderMap, HeaderValue, header},
};
use bytes::Bytes;
use island_protocol_api::{
    Enroll, Pair, SubmitJob,
    admin::{AnnotateHost, ChangeCredits, CreateAccount, CreateNotice, GrantCredits, Reason},
    audio::AudioRequest,
    batch::CreateBatch,
    chat::{ChatRequest, EmbeddingsRequest},
    claim::IslandRequest,
    completions::CompletionRequest,
    images::{ImageEditRequest, ImagesRequest},
    key::CreateKey,
    messages::{CountTokensRequest, MessagesRequest},
    moderations::ModerationRequest,
    payout::CreatePayout,
    problem::Code,
    publication::SubmitPublication,
    quota::{Quotas, SetQuotas},
    rerank::RerankRequest,
    responses::ResponseRequest,
    signup::{CreateInvitation, FinishLogin, SignUp},
    speech::SpeechRequest,
    webhook::CreateWebhook,
};
use jsonschema::Validator;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{Api, ApiError, http::auth::Caller};
use island_coordinator_domain::catalogue::cargo;

/// Maximum bytes of a request body.
pub(crate) const MAX_BODY: usize = 9 << 20;
/// Maximum bytes of a job's input: an assignment must fit into one message of the fabric.
pub(crate) const MAX_INPUT: usize = 8 << 20;

/// Maximum depth of a body.
const MAX_DEPTH: usize = 64;
/// Maximum number of values in a body: each takes about a hundred bytes of memory.
const MAX_VALUES: usize = 250_000;
/// Maximum bytes of a body that is read before its sender is known, or that has no large fields.
const MAX_SMALL_BODY: usize = 64 << 10;
/// Maximum time to receive a small body.
const SMALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to receive a large body.
const LARGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Header with the preferences of a request as JSON, for clients that cannot add a field to the body.
pub(crate) const PREFERENCES: &str = "island-preferences";
/// The field with the same, and its other name, which clients of OpenRouter send.
const PREFERENCE_FIELDS: [&str; 2] = ["preferences", "provider"];
/// Maximum bytes of large bodies that are read at one time.
const MAX_BODIES: usize = 256 << 20;

/// A JSON object of at most 64 KiB.
#[derive(Debug)]
pub(crate) struct Json(pub Fields);

impl<S: Send + Sync> FromRequest<S> for Json {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        check_media_type(request.headers())?;
        let bytes = receive(request, MAX_SMALL_BODY, SMALL_TIMEOUT).await?;
        object(&bytes).map(Self)
    }
}

/// The caller, and a JSON object of at most [`MAX_BODY`] bytes, which is read after the key was checked.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub caller: Caller,
    pub fields: Fields,
}

impl FromRequest<Arc<Api>> for Keyed {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        let preferences = request.headers().get(PREFERENCES).cloned();
        let Received { caller, media_type: (), bytes, memory: _memory } =
            receive_keyed(request, api, check_media_type).await?;
        Ok(Self { caller, fields: object(&bytes)?.with_header(preferences) })
    }
}

/// A large body that is read after the key was checked.
#[derive(Debug)]
pub(crate) struct Received<'a, T> {
    pub caller: Caller,
    /// What the media type states about the body.
    pub media_type: T,
    pub bytes: Bytes,
    /// Reserved while the body is in memory.
    pub memory: SemaphorePermit<'a>,
}

/// Receives a body of at most [`MAX_BODY`] bytes whose media type passes `check`.
pub(crate) async fn receive_keyed<T>(
    request: Request,
    api: &Arc<Api>,
    check: impl FnOnce(&HeaderMap) -> Result<T, ApiError>,
) -> Result<Received<'_, T>, ApiError> {
    let (mut parts, body) = request.into_parts();
    let caller = Caller::from_request_parts(&mut parts, api).await?;
    let media_type = check(&parts.headers)?;
    let memory = api.bodies.reserve(&parts.headers)?;
    let bytes = receive(Request::from_parts(parts, body), MAX_BODY, LARGE_TIMEOUT).await?;
    Ok(Received { caller, media_type, bytes, memory })
}

/// The memory for large bodies, shared by all requests.
#[derive(Debug)]
pub struct BodyMemory(Semaphore);

impl Default for BodyMemory {
    fn default() -> Self {
        Self(Semaphore::new(MAX_BODIES))
    }
}

impl BodyMemory {
    /// Reserves memory for the body of a request with these headers, until the result is dropped.
    fn reserve(&self, headers: &HeaderMap) -> Result<SemaphorePermit<'_>, ApiError> {
        let length = content_length(headers).unwrap_or(MAX_BODY as u64).min(MAX_BODY as u64);
        self.0.try_acquire_many(length as u32).map_err(|_| {
            ApiError::new(Code::ServiceUnavailable, "too many large requests arrive at once; try again")
        })
    }
}

/// The length that a request states for its body.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.and_then(|value| value.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(ApiError::new(Code::UnsupportedMediaType, "send a body of type application/json"))
}

/// The body of a request, of at most `max` bytes.
async fn receive(request: Request, max: usize, limit: Duration) -> Result<Bytes, ApiError> {
    let too_large =
        || ApiError::new(Code::PayloadTooLarge, format!("a body may have {max} bytes, sent whole"));
    if content_length(request.headers()).is_some_and(|length| length > max as u64) {
        return Err(too_large());
    }
    let received = timeout(limit, to_bytes(request.into_body(), max)).await;
    let late = |_| {
        let message = format!("the body did not arrive within {} s", limit.as_secs());
        ApiError::new(Code::RequestTimeout, message)
    };
    received.map_err(late)?.map_err(|_| too_large())
}

fn object(bytes: &[u8]) -> Result<Fields, ApiError> {
    match parse(bytes)? {
        Value::Object(fields) => Ok(fields.into()),
        _ => Err(ApiError::new(Code::ValidationError, "the body must be a JSON object")),
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

/// Parses one JSON text. Duplicate names, deep nesting, too many values and trailing text are errors.
fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let values = Cell::new(MAX_VALUES);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = Strict { depth: MAX_DEPTH, values: &values }.deserialize(&mut reader);
    let parsed = parsed.and_then(|value| reader.end().map(|()| value));
    parsed.map_err(|error| {
        if values.get() > 0 {
            return unreadable(&error);
        }
        ApiError::new(Code::PayloadTooLarge, format!("a body may have fewer than {MAX_VALUES} JSON values"))
    })
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    /// Values that may follow, plus one.
    values: &'a Cell<usize>,
}

impl Strict<'_> {
    /// Counts a value.
    fn count<E: Error>(self) -> Result<(), E> {
        self.values.set(self.values.get().saturating_sub(1));
        if self.values.get() == 0 { Err(E::custom("it has too many values")) } else { Ok(()) }
    }

    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("it is nested too deeply"))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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
    AnnotateHost,
    AudioRequest,
    ChangeCredits,
    GrantCredits,
    ChatRequest,
    CompletionRequest,
    CountTokensRequest,
    CreateAccount,
    CreateBatch,
    CreateInvitation,
    CreateKey,
    CreateNotice,
    CreatePayout,
    CreateWebhook,
    EmbeddingsRequest,
    Enroll,
    FinishLogin,
    ImageEditRequest,
    ImagesRequest,
    IslandRequest,
    MessagesRequest,
    ModerationRequest,
    Pair,
    Quotas,
    Reason,
    RerankRequest,
    ResponseRequest,
    SetQuotas,
    SignUp,
    SpeechRequest,
    SubmitJob,
    SubmitPublication,
];

fn compile<T: JsonSchema>() -> Validator {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let compiled = jsonschema::options().should_validate_formats(true).build(&schema);
    compiled.expect("the schemas of request bodies are valid, as a test checks")
}

/// A body that was not yet checked against a type.
#[derive(Debug)]
pub(crate) struct Fields {
    values: Map<String, Value>,
    /// The preferences in the header of the request.
    preferences: Option<HeaderValue>,
}

impl From<Map<String, Value>> for Fields {
    fn from(values: Map<String, Value>) -> Self {
        Self { values, preferences: None }
    }
}

/// Whether a value in OpenRouter's object restricts nothing: `null` of any field, and some values of fields that only
/// OpenRouter has. Its clients send such values unasked; other values of those fields are refused.
fn is_no_restriction(name: &str, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    match name {
        "allow_fallbacks" => value == true,
        "require_parameters" | "zdr" | "enforce_distillable_text" => value == false,
        "data_collection" => value == "allow",
        "order" => value.as_array().is_some_and(Vec::is_empty),
        _ => false,
    }
}

impl Fields {
    /// The fields as they were sent.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.values.iter()
    }

    /// The same fields of a request with this header.
    pub(crate) fn with_header(self, preferences: Option<HeaderValue>) -> Self {
        Self { preferences, ..self }
    }

    /// The same with the preferences of the request as a value of their field, whether they are in this field, in that of the other name,
    /// as text in a form, or in the header. The header is for requests whose body has none.
    pub(crate) fn preferring(mut self) -> Result<Self, ApiError> {
        let [field, alias] =
            PREFERENCE_FIELDS.map(|name| self.values.remove(name).filter(|given| !given.is_null()));
        let is_of_openrouter = field.is_none() && alias.is_some();
        let read = |text: &[u8]| {
            let rule = "preferences must be a JSON object";
            parse(text).map_err(|_| ApiError::field(Code::ValidationError, PREFERENCE_FIELDS[0], rule))
        };
        let mut given = match (field.or(alias), self.preferences.take()) {
            (Some(Value::String(text)), _) => Some(read(text.as_bytes())?),
            (Some(given), _) => Some(given),
            (None, Some(header)) => Some(read(header.as_bytes())?),
            (None, None) => None,
        };
        if is_of_openrouter && let Some(Value::Object(given)) = &mut given {
            given.retain(|name, value| !is_no_restriction(name, value));
        }
        self.values.extend(given.map(|given| (PREFERENCE_FIELDS[0].to_owned(), given)));
        Ok(self)
    }

    /// Reads these fields, which are text in a form, as JSON numbers and truth values where they are such.
    pub(crate) fn read_scalars(&mut self, names: &[&str]) {
        for name in names {
            let Some(field) = self.values.get_mut(*name) else { continue };
            let read = field.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            if let Some(read) = read.filter(|read| read.is_number() || read.is_boolean()) {
                *field = read;
            }
        }
    }

    /// Validates the body against the schema of a type and reads it as that type. The error names the field.
    pub(crate) fn parse<T: RequestBody>(self) -> Result<T, ApiError> {
        let mut body = Value::Object(self.values);
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
        Value::Object(fields) => fields.into(),
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

    #[test]
    fn a_body_has_a_limited_number_of_values() {
        let zeros = |n: usize| format!("[{}]", vec!["0"; n].join(","));
        assert!(parse(zeros(MAX_VALUES - 2).as_bytes()).is_ok());
        let error = parse(zeros(MAX_VALUES - 1).as_bytes()).expect_err("one more value").body().error;
        assert_eq!(error.code, "payload_too_large");
        let names = vec!["{}"; MAX_VALUES].join(",");
        let error = parse(format!("[{names}]").as_bytes()).expect_err("objects count too").body().error;
        assert_eq!(error.code, "payload_too_large");
    }

    #[test]
    fn memory_for_large_bodies_is_limited() {
        let memory = BodyMemory::default();
        let unknown_length = HeaderMap::new();
        let held: Vec<_> = std::iter::from_fn(|| memory.reserve(&unknown_length).ok()).collect();
        assert_eq!(held.len(), MAX_BODIES / MAX_BODY);
        let error = memory.reserve(&unknown_length).expect_err("all is reserved").body().error;
        assert_eq!(error.code, "service_unavailable");
        drop(held);
        assert!(memory.reserve(&unknown_length).is_ok());
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
            Fields::from(body).parse::<SubmitJob>().expect_err(text).body().error.param
        };
        assert_eq!(param(r#"{"workload":"a","input":{},"priority":101}"#), Some("priority".into()));
        assert_eq!(param(r#"{"workload":"a","input":{},"priority":1.5}"#), Some("priority".into()));
        assert_eq!(param(r#"{"input":{}}"#), Some("workload".into()));
        assert_eq!(param(r#"{"workload":"a","input":{},"z":1}"#), Some("z".into()));
    }

    #[test]
    fn preferences_come_from_the_body_or_else_from_the_header() {
        let of = |body: Value, header: Option<&'static str>| {
            let fields = fields(body).with_header(header.map(HeaderValue::from_static));
            let mut body: Map<String, Value> = fields.preferring()?.values;
            Ok::<_, ApiError>((body.remove("preferences"), body.contains_key("provider")))
        };
        let (own, trusted) = (serde_json::json!({"own": "only"}), serde_json::json!({"trusted": true}));
        let header = Some("{\"own\": \"only\"}");
        for (body, header, expected) in [
            (serde_json::json!({}), None, None),
            (serde_json::json!({}), header, Some(&own)),
            (serde_json::json!({"preferences": null}), header, Some(&own)),
            (serde_json::json!({"preferences": trusted}), header, Some(&trusted)),
            (serde_json::json!({"provider": trusted}), header, Some(&trusted)),
            (serde_json::json!({"preferences": "{\"trusted\": true}"}), None, Some(&trusted)),
        ] {
            assert_eq!(of(body, header).expect("valid"), (expected.cloned(), false));
        }
        for (body, header) in
            [(serde_json::json!({}), Some("own=only")), (serde_json::json!({"preferences": "own"}), None)]
        {
            let error = of(body, header).expect_err("not JSON").body().error;
            assert_eq!(error.param.as_deref(), Some("preferences"));
        }
    }

    #[test]
    fn fields_of_openrouter_that_restrict_nothing_are_left_out() {
        let of = |body: Value| {
            let mut values = fields(body).preferring().expect("JSON").values;
            values.remove("preferences").expect("preferences")
        };
        let sent = serde_json::json!({
            "allow_fallbacks": true, "require_parameters": false, "data_collection": "allow", "zdr": false,
            "order": [], "only": null, "trusted": true
        });
        // Any field may be `null`, those that have other values without effect among them.
        let unset = serde_json::json!({
            "allow_fallbacks": null, "require_parameters": null, "data_collection": null, "zdr": null,
            "enforce_distillable_text": null, "order": null, "unknown": null, "own": null, "trusted": true
        });
        let trusted = serde_json::json!({"trusted": true});
        assert_eq!(of(serde_json::json!({"provider": sent})), trusted);
        assert_eq!(of(serde_json::json!({"provider": sent.to_string()})), trusted, "as text in a form");
        assert_eq!(of(serde_json::json!({"provider": unset})), trusted, "null");
        assert_eq!(of(serde_json::json!({"preferences": sent})), sent, "the other name has no such fields");
        for (name, value) in [
            ("allow_fallbacks", serde_json::json!(false)),
            ("require_parameters", serde_json::json!(true)),
            ("data_collection", serde_json::json!("deny")),
            ("order", serde_json::json!(["attic"])),
        ] {
            let kept = of(serde_json::json!({"provider": {name: value}}));
            assert_eq!(kept[name], value, "it is refused when it is read");
        }
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
