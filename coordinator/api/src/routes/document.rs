//! `GET /openapi.json`, and `GET /docs` beside the API.

use std::sync::Arc;

use axum::{
    Extension,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;

use crate::openapi;
use crate::routes::Routes;
use island_coordinator_domain::catalogue::Catalogue;

/// The served forms, built once.
#[derive(Debug)]
pub(crate) struct Document {
    json: Bytes,
    page: Bytes,
}

impl Document {
    /// Builds the document for this catalogue.
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        let document = openapi::document(&Routes::all().entries, catalogue);
        Self { json: document.to_string().into(), page: openapi::page::html(&document).into() }
    }
}

/// The document.
pub(crate) async fn json(Extension(document): Extension<Arc<Document>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document.json.clone()).into_response()
}

/// The page, without any external resource.
pub(crate) async fn page(Extension(document): Extension<Arc<Document>>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    ];
    (headers, document.page.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs, path::Path};

    use serde_json::{Value, json};

    use super::*;

    fn document() -> Value {
        let cargos = Path::new("../../cargos");
        // Without the folders for engines: which of their Cargos are served depends on what is built.
        let catalogue = Catalogue::load_with(cargos, std::iter::empty()).expect("catalogue");
        openapi::document(&Routes::all().entries, &catalogue)
    }

    #[test]
    fn the_committed_document_is_the_generated_one() {
        let path = Path::new("../../docs/openapi.json");
        let generated = format!("{:#}\n", document());
        if env::var_os("UPDATE_OPENAPI").is_some() {
            fs::write(path, &generated).expect("write docs/openapi.json");
        }
        let committed = fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == generated,
            "docs/openapi.json is not the generated document: run this with UPDATE_OPENAPI=1"
        );
    }

    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_resolves_and_every_component_is_used() {
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let components = document["components"].as_object().expect("components");
        let kinds = components.iter().filter(|(kind, _)| *kind != "securitySchemes");
        let named = |(kind, all): (&String, &Value)| -> Vec<String> {
            all.as_object().expect("a map").keys().map(|name| format!("#/components/{kind}/{name}")).collect()
        };
        let defined: BTreeSet<String> = kinds.flat_map(named).collect();
        assert_eq!(found, defined.iter().map(String::as_str).collect());
    }

    #[test]
    fn operations_have_unique_ids_and_a_successful_answer() {
        let routes = Routes::all();
        let mut document = document();
        let mut ids = BTreeSet::new();
        for entry in &routes.entries {
            let operation = document["paths"][entry.path][entry.method].take();
            assert!(ids.insert(operation["operationId"].to_string()), "{operation}");
            let answers = operation["responses"].as_object().expect("answers");
            assert!(
                answers.keys().any(|status| status.starts_with(['2', '3'])),
                "{} {}",
                entry.method,
                entry.path
            );
        }
    }

    #[test]
    fn examples_of_bodies_match_their_schemas() {
        let document = document();
        let mut checked = 0;
        for operation in
            document["paths"].as_object().expect("paths").values().filter_map(Value::as_object).flatten()
        {
            let content = &operation.1["requestBody"]["content"]["application/json"];
            let mut schema = content["schema"].clone();
            if !schema.is_object() {
                continue;
            }
            schema["components"] = document["components"].clone();
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            let named =
                content["examples"].as_object().into_iter().flatten().map(|(_, example)| &example["value"]);
            for example in named.chain(content.get("example")) {
                assert!(validator.is_valid(example), "{example}");
                checked += 1;
            }
        }
        assert!(checked >= 3, "{checked}");
    }

    /// Parameters of the query that take any text, by operation.
    const TEXTS: [(&str, &str); 10] = [
        ("beginLogin", "challenge"),
        ("confirmLogin", "state"),
        ("confirmLogin", "code"),
        ("confirmLogin", "error"),
        ("listAccounts", "email"),
        ("listBatches", "after"),
        ("listFiles", "after"),
        ("listHosts", "q"),
        ("listHostsOfAccounts", "q"),
        ("listResponseInputItems", "after"),
    ];

    /// Otherwise a client cannot know which values are refused.
    #[test]
    fn parameters_of_the_query_describe_what_they_take() {
        let document = document();
        let mut texts = BTreeSet::new();
        let operations = document["paths"].as_object().expect("paths").values();
        for operation in operations.filter_map(Value::as_object).flat_map(|methods| methods.values()) {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let schema = &parameter["schema"];
                let is_described = ["pattern", "format", "enum"].iter().any(|key| schema.get(key).is_some());
                if parameter["in"] == "query" && schema["type"] == "string" && !is_described {
                    let name = |value: &Value| value.as_str().expect("a name").to_owned();
                    texts.insert((name(&operation["operationId"]), name(&parameter["name"])));
                }
            }
        }
        let expected = TEXTS.map(|(operation, name)| (operation.to_owned(), name.to_owned()));
        assert_eq!(texts, BTreeSet::from(expected));
    }

    #[test]
    fn errors_name_their_codes() {
        let document = document();
        let answer = document["paths"]["/jobs"]["post"]["responses"]["402"]["$ref"].as_str();
        let answer = answer.and_then(|path| document.pointer(&path[1..])).expect("an answer");
        let refused = &answer["content"]["application/json"]["schema"];
        assert_eq!(
            refused["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"],
            json!(["insufficient_credits"])
        );
    }

    #[test]
    fn the_page_shows_every_operation_and_type() {
        let document = document();
        let page = openapi::page::html(&document);
        for (path, operations) in document["paths"].as_object().expect("paths") {
            assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
            for operation in operations.as_object().expect("operations").values() {
                let id = operation["operationId"].as_str().expect("id");
                assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
            }
        }
        for name in document["components"]["schemas"].as_object().expect("types").keys() {
            assert!(page.contains(&format!("<h3 id=\"{name}\">")), "{name}");
        }
    }
}
