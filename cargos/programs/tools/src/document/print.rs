//! HTML and Markdown as PDF, by WeasyPrint. Pictures and styles come inside the document or as `data:` addresses.

use comrak::{Options, markdown_to_html};
use island_cargo::{Error, Output};
use serde::Deserialize;

use super::pdf::Document;
use crate::{process, scratch::Scratch};

/// Default style of Markdown.
const STYLE: &str = include_str!("print.css");

#[derive(Deserialize)]
pub(crate) struct Page {
    html: String,
    css: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Article {
    markdown: String,
    title: Option<String>,
    css: Option<String>,
}

fn print(html: &str, css: Option<&str>, out: &mut Output<'_>) -> Result<Document, Error> {
    let scratch = Scratch::new()?;
    scratch.put("in.html", html.as_bytes())?;
    let mut command = process::tool("python3", &scratch);
    command.args(["-IBm", "weasyprint", "--quiet", "--encoding=utf-8"]);
    if let Some(css) = css {
        scratch.put("in.css", css.as_bytes())?;
        command.args(["--stylesheet", "in.css"]);
    }
    command.args(["in.html", "out.pdf"]);
    out.status("printing");
    process::output(command)?;
    Document::finished(&scratch, "out.pdf")
}

pub(crate) fn html(input: Page, out: &mut Output<'_>) -> Result<Document, Error> {
    print(&input.html, input.css.as_deref(), out)
}

pub(crate) fn markdown(input: Article, out: &mut Output<'_>) -> Result<Document, Error> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.tasklist = true;
    options.extension.strikethrough = true;
    options.extension.autolink = true;
    options.extension.footnotes = true;
    options.parse.smart = true;
    let body = markdown_to_html(&input.markdown, &options);
    let title = escape(input.title.as_deref().unwrap_or_default());
    let html = format!("<!doctype html><meta charset=utf-8><title>{title}</title>{body}");
    print(&html, Some(&format!("{STYLE}\n{}", input.css.unwrap_or_default())), out)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
