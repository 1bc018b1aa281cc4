//! Markdown to HTML, with GitHub's tables, task lists, strikethrough, footnotes and links.

use std::process::ExitCode;

use comrak::{Options, markdown_to_html};
use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    markdown: String,
    /// Line breaks stay line breaks.
    #[serde(default)]
    hard_breaks: bool,
    #[serde(default)]
    smart_punctuation: bool,
    /// Headings get ids to link to.
    #[serde(default)]
    heading_ids: bool,
}

#[derive(Serialize)]
struct Answer {
    html: String,
}

fn render(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    // Raw HTML and dangerous links are dropped, comrak's default.
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.tasklist = true;
    options.extension.strikethrough = true;
    options.extension.autolink = true;
    options.extension.footnotes = true;
    options.extension.header_id_prefix = input.heading_ids.then(String::new);
    options.parse.smart = input.smart_punctuation;
    options.render.hardbreaks = input.hard_breaks;
    Ok(Answer { html: markdown_to_html(&input.markdown, &options) })
}

fn main() -> ExitCode {
    run(render)
}
