//! Sanitizes untrusted HTML: everything that is not known to be safe is removed.

use std::{
    collections::{HashMap, HashSet},
    process::ExitCode,
};

use ammonia::Builder;
use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};

/// Elements whose content is code: allowing them makes no sense, and ammonia refuses them with a panic.
const CODE: [&str; 2] = ["script", "style"];

#[derive(Deserialize)]
struct Input {
    html: String,
    /// The elements that stay, instead of the usual ones.
    tags: Option<Vec<String>>,
    /// Further attributes that stay, by element.
    #[serde(default)]
    attributes: HashMap<String, Vec<String>>,
    #[serde(default)]
    text_only: bool,
}

#[derive(Serialize)]
struct Answer {
    html: String,
}

fn clean(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let mut builder = Builder::default();
    if input.text_only {
        builder.tags(HashSet::new());
    } else if let Some(tags) = &input.tags {
        if let Some(code) = tags.iter().find(|tag| CODE.contains(&tag.to_ascii_lowercase().as_str())) {
            return Err(Error::invalid(format!("{code} cannot be allowed")));
        }
        builder.tags(tags.iter().map(String::as_str).collect());
    }
    for (tag, names) in &input.attributes {
        // Handlers are code in any element, and `style` can load and cover anything; `rel` is ammonia's own.
        let bad = |name: &&String| {
            let name = name.to_ascii_lowercase();
            name.starts_with("on") || ["style", "srcdoc", "rel"].contains(&name.as_str())
        };
        if let Some(name) = names.iter().find(bad) {
            return Err(Error::invalid(format!("attribute {name} cannot be allowed")));
        }
        builder.add_tag_attributes(tag.as_str(), names.iter().map(String::as_str));
    }
    Ok(Answer { html: builder.clean(&input.html).to_string() })
}

fn main() -> ExitCode {
    run(clean)
}
