//! Names fit for addresses, from titles in any script.

use std::process::ExitCode;

use deunicode::deunicode;
use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    text: String,
    #[serde(default = "dash")]
    separator: String,
    max_length: Option<usize>,
    #[serde(default = "yes")]
    lowercase: bool,
}

#[derive(Serialize)]
struct Answer {
    slug: String,
}

fn dash() -> String {
    "-".to_owned()
}

fn yes() -> bool {
    true
}

fn make(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let text = deunicode(&input.text);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words {
        let separator = if slug.is_empty() { "" } else { input.separator.as_str() };
        let room = input.max_length.unwrap_or(usize::MAX).saturating_sub(slug.len() + separator.len());
        if word.len() > room {
            // Words stay whole; a first one that is too long is cut.
            if slug.is_empty() {
                slug.push_str(&word[..room]);
            }
            break;
        }
        slug.push_str(separator);
        slug.push_str(word);
    }
    if input.lowercase {
        slug.make_ascii_lowercase();
    }
    Ok(Answer { slug })
}

fn main() -> ExitCode {
    run(make)
}
