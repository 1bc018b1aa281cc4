//! Syntax highlighting of source code, as HTML.

use std::process::ExitCode;

use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};
use syntect::{
    highlighting::ThemeSet,
    html::{ClassStyle, ClassedHTMLGenerator, highlighted_html_for_string},
    parsing::SyntaxSet,
    util::LinesWithEndings,
};

#[derive(Deserialize)]
struct Input {
    code: String,
    language: String,
    #[serde(default = "theme")]
    theme: String,
    /// Class names instead of colors, for a custom style sheet.
    #[serde(default)]
    classes: bool,
}

#[derive(Serialize)]
struct Answer {
    html: String,
    language: String,
}

fn theme() -> String {
    "InspiredGitHub".to_owned()
}

fn colour(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let syntaxes = SyntaxSet::load_defaults_newlines();
    let syntax = syntaxes.find_syntax_by_token(&input.language).ok_or_else(|| {
        let names: Vec<&str> = syntaxes.syntaxes().iter().map(|syntax| syntax.name.as_str()).collect();
        Error::invalid(format!("language {:?} is not one of: {}", input.language, names.join(", ")))
    })?;
    let html = if input.classes {
        let style = ClassStyle::SpacedPrefixed { prefix: "hl-" };
        let mut generator = ClassedHTMLGenerator::new_with_class_style(syntax, &syntaxes, style);
        for line in LinesWithEndings::from(&input.code) {
            generator.parse_html_for_line_which_includes_newline(line)?;
        }
        format!("<pre><code>{}</code></pre>", generator.finalize())
    } else {
        let themes = ThemeSet::load_defaults().themes;
        let theme = themes.get(&input.theme).ok_or_else(|| {
            let names: Vec<&str> = themes.keys().map(String::as_str).collect();
            Error::invalid(format!("theme {:?} is not one of: {}", input.theme, names.join(", ")))
        })?;
        highlighted_html_for_string(&input.code, &syntaxes, syntax, theme)?
    };
    Ok(Answer { html, language: syntax.name.clone() })
}

fn main() -> ExitCode {
    run(colour)
}
