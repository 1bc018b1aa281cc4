//! The OpenAPI 3.1 document, generated from the table of routes, and the page that renders it.

pub(crate) mod operation;
pub(crate) mod page;
mod schemas;

use island_protocol_api::PREFIX;
use serde_json::{Map, Value, json};

use island_coordinator_domain::catalogue::Catalogue;
use operation::Operation;
use schemas::Schemas;

/// An operation and its route.
#[derive(Debug)]
pub(crate) struct Entry {
    /// `get`, `post`, `delete`.
    pub method: &'static str,
    /// The path in the router's form, `/jobs/{id}`.
    pub path: &'static str,
    pub operation: Operation,
}

/// Description of the document.
const ABOUT: &str = "A marketplace for compute: clients submit jobs, each runs a named Cargo on a provider's machine, \
     an Island. Errors are `{\"error\": {\"message\", \"code\"}}`; codes are stable, messages are not.";

/// Builds the document. Examples of inputs come from the catalogue.
pub(crate) fn document(entries: &[Entry], catalogue: &Catalogue) -> Value {
    let mut schemas = Schemas::new();
    let inputs = inputs(catalogue);
    let mut paths = Map::new();
    for entry in entries {
        let path = paths.entry(entry.path.to_owned()).or_insert_with(|| json!({}));
        path[entry.method] = entry.operation.describe(entry.path, &mut schemas, &inputs);
    }
    let (schemas, responses) = schemas.into_parts();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Island",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": PREFIX}],
        "tags": operation::TAGS.map(|(name, description)| json!({"name": name, "description": description})),
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, `ak_…`."},
            },
            "headers": operation::headers(),
            "responses": responses,
            "schemas": schemas,
        },
    })
}

/// Longest input shown as an example.
const MAX_EXAMPLE_BYTES: usize = 1000;

/// One example job of each category, from the operators' catalogue.
fn inputs(catalogue: &Catalogue) -> Map<String, Value> {
    let mut inputs = Map::new();
    let mut seen = Vec::new();
    for cargo in catalogue.own() {
        let view = cargo.view(true);
        let Some(input) = view.example.as_ref().and_then(|example| example.get("input")) else { continue };
        // An example with embedded media would be too long to read.
        if seen.contains(&view.entry.category) || input.to_string().len() > MAX_EXAMPLE_BYTES {
            continue;
        }
        seen.push(view.entry.category);
        let value = json!({"workload": view.entry.slug, "input": input});
        inputs.insert(view.entry.slug.to_string(), json!({"summary": view.entry.name, "value": value}));
    }
    inputs
}
