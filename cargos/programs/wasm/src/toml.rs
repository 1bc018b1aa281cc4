//! TOML to JSON and back.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Toml { toml: String },
    Json { json: Value },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Json { json: Value },
    Toml { toml: String },
}

/// JSON for TOML, whose dates become texts.
fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, json(value))).collect())
        }
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
    }
}

fn convert(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    match input {
        Input::Toml { toml } => {
            let table: toml::Table = toml.parse().or_invalid("toml")?;
            Ok(Answer::Json { json: json(toml::Value::Table(table)) })
        }
        // What TOML lacks (null, a list at the top) is the input's fault.
        Input::Json { json } => Ok(Answer::Toml { toml: toml::to_string_pretty(&json).or_invalid("json")? }),
    }
}

fn main() -> ExitCode {
    run(convert)
}
