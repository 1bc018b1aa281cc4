//! Fills in templates, in the language of Jinja.

use island_cargo::{Error, OrInvalid, Output};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, syntax::SyntaxConfig, value::Serde};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Steps that one filling may take.
const FUEL: u64 = 20_000_000;

#[derive(Deserialize)]
pub(crate) struct Input {
    template: String,
    data: Option<Value>,
    /// Fills the template once for each.
    items: Option<Vec<Value>>,
    #[serde(default)]
    escape: Escape,
    /// Whether a name that the data lacks is an error.
    #[serde(default)]
    strict: bool,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Escape {
    #[default]
    None,
    Html,
    Json,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    One { text: String },
    Many { texts: Vec<String> },
}

pub(crate) fn render(input: Input, out: &mut Output<'_>) -> Result<Answer, Error> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(move |_| match input.escape {
        Escape::None => AutoEscape::None,
        Escape::Html => AutoEscape::Html,
        Escape::Json => AutoEscape::Json,
    });
    environment.set_undefined_behavior(if input.strict {
        UndefinedBehavior::Strict
    } else {
        UndefinedBehavior::Lenient
    });
    environment.set_syntax(SyntaxConfig::builder().keep_trailing_newline(true).build()?);
    let template = environment.template_from_str(&input.template).or_invalid("template")?;
    let fill = |data: &Value| template.render(Serde(data)).or_invalid("template");
    match (input.data, input.items) {
        (Some(data), None) => Ok(Answer::One { text: fill(&data)? }),
        (None, Some(items)) => {
            let mut texts = Vec::new();
            for (number, item) in items.iter().enumerate() {
                texts.push(fill(item)?);
                out.progress(number as u64 + 1, items.len() as u64);
            }
            Ok(Answer::Many { texts })
        }
        _ => Err(Error::invalid("give either data or items")),
    }
}
