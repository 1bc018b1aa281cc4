//! JSON Schemas of types whose JSON differs from their fields.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    cargo::RuntimeType,
    credits::MicroCredits,
    egress::Egress,
    ids::{
        AccountId, ApiKeyId, DeliveryId, HostId, InstanceId, InvitationId, JobId, Nonce, NoticeId, PayoutId,
        PublicationId, Slug, WebhookId,
    },
    time::Timestamp,
};

macro_rules! schema {
    ($($name:ident = $schema:tt;)*) => {
        $(impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

schema! {
    JobId = { "type": "string", "format": "uuid", "description": "A job." };
    HostId = { "type": "string", "format": "uuid", "description": "An Island." };
    AccountId = { "type": "string", "format": "uuid", "description": "An account." };
    InvitationId = { "type": "string", "format": "uuid", "description": "An invitation." };
    NoticeId = { "type": "string", "format": "uuid", "description": "A notice." };
    PayoutId = { "type": "string", "format": "uuid", "description": "A payout." };
    PublicationId = { "type": "string", "format": "uuid", "description": "A publication." };
    WebhookId = { "type": "string", "format": "uuid", "description": "A webhook." };
    DeliveryId = { "type": "string", "format": "uuid", "description": "One event for one webhook." };
    ApiKeyId = { "type": "string", "format": "uuid", "description": "An API key; not the secret." };
    InstanceId = { "type": "string", "format": "uuid", "description": "One run of one program." };
    Nonce = { "type": "string", "format": "uuid", "description": "Random, used once." };
    Slug = {
        "type": "string",
        "pattern": "^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$",
        "description": "Name of a Cargo."
    };
    Timestamp = {
        "type": "string",
        "format": "date-time",
        "description": "A moment in UTC, ISO 8601, to the millisecond."
    };
    MicroCredits = {
        "type": "number",
        "minimum": -2_000_000_000,
        "maximum": 2_000_000_000,
        "description": "Credits, exact to six decimal places.",
        "examples": [0.0013]
    };
    RuntimeType = {
        "type": "string",
        "description": "Engine that runs a Cargo; an Island may report a newer one.",
        "examples": ["container", "wasm", "onnx", "llmcpp", "diffusers", "coreml"]
    };
    Egress = {
        "description": "Where containers may connect to: nowhere, wherever their Cargos declare, or of that these hosts, each with a port or without.",
        "oneOf": [
            { "type": "string", "enum": ["none", "declared"] },
            { "type": "array", "items": { "type": "string" } }
        ]
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_lists_every_runtime() {
        let schema = RuntimeType::json_schema(&mut SchemaGenerator::default());
        let names: Vec<_> = RuntimeType::ALL.iter().map(RuntimeType::as_str).collect();
        assert_eq!(schema.get("examples"), Some(&serde_json::json!(names)));
    }
}
