//! Schemas of types, collected under `#/components/schemas`.

use schemars::{
    JsonSchema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value};

/// How a type's schema is asked for, without its name.
pub(crate) type Of = fn(&mut Schemas) -> Value;

/// What was asked for so far: what we send, and what we take.
#[derive(Debug)]
pub(crate) struct Schemas {
    sent: SchemaGenerator,
    taken: SchemaGenerator,
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
        Self { sent: generator(Contract::Serialize), taken: generator(Contract::Deserialize) }
    }

    /// A type as we send it.
    pub(crate) fn sent<T: JsonSchema>(&mut self) -> Value {
        self.sent.subschema_for::<T>().to_value()
    }

    /// A type as we take it.
    pub(crate) fn taken<T: JsonSchema>(&mut self) -> Value {
        self.taken.subschema_for::<T>().to_value()
    }

    /// Everything that was referred to. What is both sent and taken is told as it is sent.
    pub(super) fn into_definitions(mut self) -> Map<String, Value> {
        let mut all = self.taken.take_definitions(true);
        all.extend(self.sent.take_definitions(true));
        all.sort_keys();
        all
    }
}
