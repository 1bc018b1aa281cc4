//! The table of contents of a Markdown document.

use std::process::ExitCode;

use comrak::{
    Anchorizer, Arena, Options,
    nodes::{AstNode, NodeValue},
    parse_document,
};
use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    markdown: String,
    #[serde(default = "one")]
    min_level: u8,
    #[serde(default = "six")]
    max_level: u8,
}

#[derive(Serialize)]
struct Heading {
    level: u8,
    text: String,
    anchor: String,
}

#[derive(Serialize)]
struct Answer {
    toc: String,
    headings: Vec<Heading>,
}

fn one() -> u8 {
    1
}

fn six() -> u8 {
    6
}

/// The words of a heading, without their markup.
fn words<'a>(node: &'a AstNode<'a>) -> String {
    let parts = node.descendants().map(|node| match &node.data.borrow().value {
        NodeValue::Text(text) => text.to_string(),
        NodeValue::Code(code) => code.literal.clone(),
        NodeValue::SoftBreak | NodeValue::LineBreak => " ".to_owned(),
        _ => String::new(),
    });
    parts.collect()
}

/// Characters that would end a link's text early.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]")
}

fn contents(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    if input.min_level > input.max_level {
        return Err(Error::invalid("min_level is above max_level"));
    }
    let arena = Arena::new();
    let root = parse_document(&arena, &input.markdown, &Options::default());
    // Anchors count repeated headings, so that every heading is seen, wanted or not.
    let mut anchors = Anchorizer::new();
    let mut headings = Vec::new();
    for node in root.descendants() {
        let NodeValue::Heading(heading) = &node.data.borrow().value else { continue };
        let text = words(node);
        let anchor = anchors.anchorize(&text);
        if (input.min_level..=input.max_level).contains(&heading.level) {
            headings.push(Heading { level: heading.level, text, anchor });
        }
    }
    let top = headings.iter().map(|heading| heading.level).min().unwrap_or(1);
    let lines = headings.iter().map(|heading| {
        let indent = "  ".repeat(usize::from(heading.level - top));
        format!("{indent}- [{}](#{})\n", escape(&heading.text), heading.anchor)
    });
    Ok(Answer { toc: lines.collect(), headings })
}

fn main() -> ExitCode {
    run(contents)
}
