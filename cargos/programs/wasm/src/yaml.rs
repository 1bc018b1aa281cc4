//! YAML to JSON and back.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Yaml { yaml: String },
    Json { json: Value },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Json { documents: Vec<Value> },
    Yaml { yaml: String },
}

fn convert(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    match input {
        Input::Yaml { yaml } => {
            Ok(Answer::Json { documents: serde_saphyr::from_multiple(&yaml).or_invalid("yaml")? })
        }
        Input::Json { json } => Ok(Answer::Yaml { yaml: serde_saphyr::to_string(&json)? }),
    }
}

fn main() -> ExitCode {
    run(convert)
}
