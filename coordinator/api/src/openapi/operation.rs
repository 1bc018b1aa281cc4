//! One operation: its parameters, body, answers and errors.

use std::collections::{BTreeMap, BTreeSet};

use island_protocol::event::JobEvent;
use island_protocol_api::{
    key::Scope,
    problem::{Code, ErrorBody},
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::schemas::{SchemaOf, Schemas};

/// Groups of operations.
pub(crate) const TAGS: [(&str, &str); 10] = [
    ("Jobs", "Submit any Cargo, follow it, read it, cancel it."),
    ("Chat", "Endpoints of the OpenAI API."),
    ("Batches", "Many requests in one file, in the form of the OpenAI API."),
    ("Webhooks", "Addresses that are sent events."),
    ("Catalogue", "Cargos and what they cost."),
    ("Account", "Credits and API keys."),
    ("Islands", "The machines that run jobs."),
    ("Fabric", "Access to the message fabric."),
    ("Service", "The service itself."),
    (
        "Operators",
        "Accounts, credits and keys of a whole network, for keys of its operators. Every action is recorded.",
    ),
];

/// Description of a response.
#[derive(Debug)]
struct Content {
    description: &'static str,
    schema: Option<SchemaOf>,
    /// Type of each event if the response may be a stream of Server-Sent Events.
    events: Option<SchemaOf>,
    example: Option<Value>,
    /// Whether the events have names and numbers.
    numbered: bool,
    /// Another media type of the body, beside or instead of JSON.
    media: Option<&'static str>,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Operation {
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    description: Option<&'static str>,
    scope: Option<Scope>,
    parameters: Vec<Value>,
    body: Option<(SchemaOf, Option<Value>)>,
    /// Media type of the body.
    body_media: &'static str,
    /// Whether the body is a job, for which the catalogue has examples.
    of_catalogue: bool,
    answers: BTreeMap<u16, Content>,
    codes: BTreeSet<&'static str>,
}

fn code(name: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.as_str() == name)
}

fn parameter(name: &str, place: &str, required: bool, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": place, "required": required, "description": description, "schema": schema})
}

impl Operation {
    /// An operation that needs no key.
    pub(crate) fn open(tag: &'static str, id: &'static str, summary: &'static str) -> Self {
        let operation = Self {
            id,
            tag,
            summary,
            description: None,
            scope: None,
            parameters: Vec::new(),
            body: None,
            body_media: "application/json",
            of_catalogue: false,
            answers: BTreeMap::new(),
            codes: BTreeSet::new(),
        };
        operation.fails(&[Code::InternalError, Code::ServiceUnavailable])
    }

    /// An operation that needs a key of this scope.
    pub(crate) fn keyed(tag: &'static str, id: &'static str, summary: &'static str, scope: Scope) -> Self {
        let operation = Self { scope: Some(scope), ..Self::open(tag, id, summary) };
        operation.fails(&[
            Code::MissingApiKey,
            Code::InvalidApiKey,
            Code::Forbidden,
            Code::AccountSuspended,
            Code::PayloadTooLarge,
            Code::RateLimited,
        ])
    }

    /// Sets the description.
    pub(crate) fn about(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    /// Adds errors of the operation.
    pub(crate) fn fails(mut self, codes: &[Code]) -> Self {
        self.codes.extend(codes.iter().map(|code| code.as_str()));
        self
    }

    /// Adds a parameter of the path.
    pub(crate) fn segment(mut self, name: &str, description: &str, schema: &Value) -> Self {
        self.parameters.push(parameter(name, "path", true, description, schema));
        self
    }

    /// Adds a parameter of the query.
    pub(crate) fn query(mut self, name: &str, required: bool, description: &str, schema: &Value) -> Self {
        self.parameters.push(parameter(name, "query", required, description, schema));
        self.fails(&[Code::InvalidRequest])
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, description: &str, schema: &Value) -> Self {
        self.parameters.push(parameter(name, "header", false, description, schema));
        self
    }

    /// Adds `limit` and `offset`.
    pub(crate) fn paged(self) -> Self {
        self.query(
            "limit",
            false,
            "Maximum number of entries.",
            &json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
        )
        .query("offset", false, "Entries to skip.", &json!({"type": "integer", "minimum": 0, "default": 0}))
        .fails(&[Code::ValidationError])
    }

    /// Adds the header `Idempotency-Key`.
    pub(crate) fn idempotent(self) -> Self {
        let schema =
            json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*[!-~][ -~]*$"});
        let about = "Send the same key with the same body to get the first answer again, for a day.";
        self.header("Idempotency-Key", about, &schema).fails(&[
            Code::InvalidIdempotencyKey,
            Code::IdempotencyInProgress,
            Code::IdempotencyKeyReused,
        ])
    }

    /// Adds the header with the preferences of the request.
    pub(crate) fn preferring(self) -> Self {
        let about = "The field `preferences` as JSON, for clients that cannot add it to the body. The body comes first.";
        self.header(
            "Island-Preferences",
            about,
            &json!({"type": "string", "examples": ["{\"own\": \"first\"}"]}),
        )
    }

    /// Sets the type of the body.
    pub(crate) fn takes<T: JsonSchema>(mut self, example: Option<Value>) -> Self {
        self.body = Some((Schemas::request::<T>, example));
        self.fails(&[
            Code::InvalidJson,
            Code::RequestTimeout,
            Code::UnsupportedMediaType,
            Code::PayloadTooLarge,
            Code::ValidationError,
        ])
    }

    /// Sets a form as the body: its fields are those of the type.
    pub(crate) fn takes_form<T: JsonSchema>(mut self) -> Self {
        self.body = Some((Schemas::request::<T>, None));
        self.body_media = "multipart/form-data";
        self.fails(&[
            Code::RequestTimeout,
            Code::UnsupportedMediaType,
            Code::PayloadTooLarge,
            Code::ValidationError,
        ])
    }

    /// Takes examples of the body from the catalogue.
    pub(crate) fn of_catalogue(mut self) -> Self {
        self.of_catalogue = true;
        self
    }

    /// Adds a successful answer.
    pub(crate) fn answers<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.answer(status, Content::of::<T>(description))
    }

    /// Adds a successful answer that may be a stream of Server-Sent Events of type `E` instead.
    pub(crate) fn answers_or_streams<T: JsonSchema, E: JsonSchema>(self, description: &'static str) -> Self {
        let content = Content { events: Some(Schemas::response::<E>), ..Content::of::<T>(description) };
        self.answer(200, content)
    }

    /// Sets a stream of job events as the answer.
    pub(crate) fn streams(self, description: &'static str, example: &str) -> Self {
        let events = Some(Schemas::response::<JobEvent> as SchemaOf);
        self.answer(
            200,
            Content {
                description,
                schema: None,
                events,
                example: Some(example.into()),
                numbered: true,
                media: None,
            },
        )
    }

    /// Adds a successful answer that is CSV instead if the query requests it.
    pub(crate) fn answers_or_csv<T: JsonSchema>(self, description: &'static str) -> Self {
        let content = Content { media: Some("text/csv"), ..Content::of::<T>(description) };
        self.answer(200, content).fails(&[Code::ValidationError])
    }

    /// Adds a successful answer that is plain text instead if the body requests it.
    pub(crate) fn answers_or_text<T: JsonSchema>(self, description: &'static str) -> Self {
        let content = Content { media: Some("text/plain"), ..Content::of::<T>(description) };
        self.answer(200, content)
    }

    /// Sets a sound as the answer, which may be a stream of Server-Sent Events of type `E` instead.
    pub(crate) fn sends_sound_or_streams<E: JsonSchema>(self, description: &'static str) -> Self {
        let (events, media) = (Some(Schemas::response::<E> as SchemaOf), Some("audio/*"));
        let content = Content { description, schema: None, events, example: None, numbered: false, media };
        self.answer(200, content)
    }

    /// Sets a redirection as the answer.
    pub(crate) fn redirects(self, description: &'static str) -> Self {
        let content =
            Content { description, schema: None, events: None, example: None, numbered: false, media: None };
        self.answer(303, content)
    }

    /// Sets a file as the answer.
    pub(crate) fn sends_file(self, description: &'static str) -> Self {
        let media = Some("application/octet-stream");
        let content =
            Content { description, schema: None, events: None, example: None, numbered: false, media };
        self.answer(200, content)
    }

    fn answer(mut self, status: u16, content: Content) -> Self {
        self.answers.insert(status, content);
        self
    }

    /// The operation object.
    pub(super) fn describe(&self, path: &str, schemas: &mut Schemas, inputs: &Map<String, Value>) -> Value {
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
        });
        if let Some(description) = self.description {
            operation["description"] = description.into();
        }
        operation["security"] = if self.scope.is_some() { json!([{"key": []}]) } else { json!([]) };
        if let Some(scope) = self.scope {
            operation["x-scope"] = scope.as_str().into();
        }
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.clone().into();
        }
        debug_assert_eq!(
            path.matches('{').count(),
            self.count("path"),
            "every parameter of {path} is described"
        );
        if let Some((schema, example)) = &self.body {
            let mut content = json!({"schema": schema(schemas)});
            if self.of_catalogue && !inputs.is_empty() {
                content["examples"] = inputs.clone().into();
            } else if let Some(example) = example {
                content["example"] = example.clone();
            }
            operation["requestBody"] = json!({"required": true, "content": {self.body_media: content}});
        }
        operation["responses"] = self.responses(schemas);
        operation
    }

    fn count(&self, place: &str) -> usize {
        self.parameters.iter().filter(|parameter| parameter["in"] == place).count()
    }

    fn responses(&self, schemas: &mut Schemas) -> Value {
        let mut responses = Map::new();
        for (status, content) in &self.answers {
            responses.insert(status.to_string(), content.describe(self.scope.is_some(), schemas));
        }
        let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        for name in &self.codes {
            if let Some(code) = code(name) {
                by_status.entry(code.status()).or_default().push(name);
            }
        }
        for (status, names) in by_status.into_iter().filter(|(status, _)| !self.answers.contains_key(status))
        {
            let answer = schemas.failure(title(&names), |schemas| failure(status, &names, schemas));
            responses.insert(status.to_string(), answer);
        }
        responses.into()
    }
}

impl Content {
    /// A JSON body.
    fn of<T: JsonSchema>(description: &'static str) -> Self {
        let schema = Some(Schemas::response::<T> as SchemaOf);
        Self { description, schema, events: None, example: None, numbered: false, media: None }
    }

    /// The schema of one Server-Sent Event. As in OpenAPI 3.2, the schema of a stream describes one event.
    fn event(&self, data: &Value) -> Value {
        let data = json!({"type": "string", "contentMediaType": "application/json", "contentSchema": data});
        if self.numbered {
            return json!({
                "type": "object",
                "required": ["data", "event", "id"],
                "properties": {
                    "data": data,
                    "event": {"enum": JobEvent::NAMES},
                    "id": {"type": "string", "pattern": "^[1-9][0-9]*$"},
                },
            });
        }
        let data = json!({"anyOf": [data, {"const": "[DONE]"}]});
        json!({"type": "object", "required": ["data"], "properties": {"data": data}})
    }

    fn describe(&self, keyed: bool, schemas: &mut Schemas) -> Value {
        let mut content = Map::new();
        if let Some(schema) = self.schema {
            content.insert("application/json".to_owned(), json!({"schema": schema(schemas)}));
        }
        if let Some(event) = self.events {
            let mut stream = json!({"schema": self.event(&event(schemas))});
            if let Some(example) = &self.example {
                stream["example"] = example.clone();
            }
            content.insert("text/event-stream".to_owned(), stream);
        }
        if let Some(media) = self.media {
            content.insert(media.to_owned(), json!({}));
        }
        let mut answer = json!({"description": self.description, "content": content});
        if keyed {
            let names = HEADERS.iter().filter(|(name, ..)| name.starts_with("X-"));
            answer["headers"] =
                names.map(|(name, ..)| ((*name).to_owned(), header(name))).collect::<Map<_, _>>().into();
        }
        answer
    }
}

/// Headers of several answers.
const HEADERS: [(&str, &str); 4] = [
    ("X-RateLimit-Limit", "Requests a minute."),
    ("X-RateLimit-Remaining", "Requests left now."),
    ("X-RateLimit-Reset", "Unix seconds at which one more is free."),
    ("Retry-After", "Seconds to wait."),
];

fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}

/// The definitions of the headers.
pub(super) fn headers() -> Map<String, Value> {
    let count = json!({"type": "integer", "minimum": 0});
    let one = |(name, description): (&str, &str)| {
        (name.to_owned(), json!({"description": description, "schema": count}))
    };
    HEADERS.into_iter().map(one).collect()
}

/// `InvalidApiKeyOrMissingApiKey`.
fn title(names: &[&str]) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let titles: Vec<String> = names.iter().map(|name| name.split('_').map(capital).collect()).collect();
    titles.join("Or")
}

/// An error as an answer.
fn failure(status: u16, names: &[&str], schemas: &mut Schemas) -> Value {
    let body = schemas.response::<ErrorBody>();
    let codes = json!({"properties": {"error": {"properties": {"code": {"enum": names}}}}});
    let description = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut answer = json!({
        "description": description,
        "content": {"application/json": {"schema": {"allOf": [body, codes]}}},
    });
    if matches!(status, 409 | 429 | 503) {
        answer["headers"] = json!({"Retry-After": header("Retry-After")});
    }
    if status == 401 {
        answer["headers"] = json!({"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}}});
    }
    answer
}
