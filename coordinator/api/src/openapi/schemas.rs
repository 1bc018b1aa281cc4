//! Components that operations refer to: schemas of types, and errors.

use std::collections::BTreeMap;

use schemars::{
    JsonSchema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

/// Returns the reference to a type's schema.
pub(crate) type SchemaOf = fn(&mut Schemas) -> Value;

/// The components collected so far, for responses and for requests.
#[derive(Debug)]
pub(crate) struct Schemas {
    response: SchemaGenerator,
    request: SchemaGenerator,
    failures: BTreeMap<String, Value>,
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    settings.into_generator()
}

impl Schemas {
    pub(super) fn new() -> Self {
        Self {
            response: generator(Contract::Serialize),
            request: generator(Contract::Deserialize),
            failures: BTreeMap::new(),
        }
    }

    /// A type in responses.
    pub(crate) fn response<T: JsonSchema>(&mut self) -> Value {
        self.response.subschema_for::<T>().to_value()
    }

    /// A type in requests.
    pub(crate) fn request<T: JsonSchema>(&mut self) -> Value {
        self.request.subschema_for::<T>().to_value()
    }

    /// An error's answer, defined once under its name.
    pub(super) fn failure(&mut self, name: String, answer: impl FnOnce(&mut Self) -> Value) -> Value {
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        if !self.failures.contains_key(&name) {
            let answer = answer(self);
            self.failures.insert(name, answer);
        }
        reference
    }

    /// All collected schemas and errors. A type of both requests and responses has its response form.
    pub(super) fn into_parts(mut self) -> (Map<String, Value>, BTreeMap<String, Value>) {
        let mut all = self.request.take_definitions(true);
        all.extend(self.response.take_definitions(true));
        all.sort_keys();
        (all, self.failures)
    }
}
