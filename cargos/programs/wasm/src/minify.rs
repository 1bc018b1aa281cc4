//! Makes HTML, CSS, JavaScript and JSON smaller without changing what they mean.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Deserialize)]
struct Input {
    code: String,
    language: Language,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Language {
    Html,
    Css,
    Js,
    Json,
}

#[derive(Serialize)]
struct Answer {
    code: String,
    bytes_before: usize,
    bytes_after: usize,
}

fn minify(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let code = match input.language {
        Language::Html => html_minifier::minify(&input.code).or_invalid("code")?,
        Language::Css => minifier::css::minify(&input.code).map_err(Error::invalid)?.to_string(),
        Language::Js => minifier::js::minify(&input.code).map_err(Error::invalid)?.to_string(),
        // Through a value, which rejects invalid JSON.
        Language::Json => serde_json::from_str::<Value>(&input.code).or_invalid("code")?.to_string(),
    };
    Ok(Answer { bytes_before: input.code.len(), bytes_after: code.len(), code })
}

fn main() -> ExitCode {
    run(minify)
}
