//! What operations refer to, collected under `#/components`: schemas of types, and errors.

use std::collections::BTreeMap;

use schemars::{
    JsonSchema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

/// How a type's schema is asked for, without its name.
pub(crate) type Of = fn(&mut Schemas) -> Value;

/// What was asked for so far: what we send, and what we take.
#[derive(Debug)]
pub(crate) struct Schemas {
    sent: SchemaGenerator,
    taken: SchemaGenerator,
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
            sent: generator(Contract::Serialize),
            taken: generator(Contract::Deserialize),
            failures: BTreeMap::new(),
        }
    }

    /// A type as we send it.
    pub(crate) fn sent<T: JsonSchema>(&mut self) -> Value {
        self.sent.subschema_for::<T>().to_value()
    }

    /// A type as we take it.
    pub(crate) fn taken<T: JsonSchema>(&mut self) -> Value {
        self.taken.subschema_for::<T>().to_value()
    }

    /// An answer that is an error, told once under its name.
    pub(super) fn failure(&mut self, name: String, answer: impl FnOnce(&mut Self) -> Value) -> Value {
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        if !self.failures.contains_key(&name) {
            let answer = answer(self);
            self.failures.insert(name, answer);
        }
        reference
    }

    /// Every type and every error that was referred to. What is both sent and taken is told as it is sent.
    pub(super) fn into_parts(mut self) -> (Map<String, Value>, BTreeMap<String, Value>) {
        let mut all = self.taken.take_definitions(true);
        all.extend(self.sent.take_definitions(true));
        all.sort_keys();
        (all, self.failures)
    }
}
