//! Language detection.

use island_cargo::{Error, OrInvalid, Output};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
pub(crate) struct Input {
    text: String,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    /// ISO 639-3.
    language: &'static str,
    name: &'static str,
    script: String,
    /// From 0 to 1.
    confidence: f64,
    reliable: bool,
}

pub(crate) fn detect(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let found = whatlang::detect(&input.text).or_invalid("the text has no letters of a known script")?;
    Ok(Answer {
        language: found.lang().code(),
        name: found.lang().eng_name(),
        script: found.script().name().to_owned(),
        confidence: (found.confidence() * 1000.0).round() / 1000.0,
        reliable: found.is_reliable(),
    })
}
