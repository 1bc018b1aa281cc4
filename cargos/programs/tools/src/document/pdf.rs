//! Text out of PDFs, and several PDFs as one: by poppler and qpdf.

use island_cargo::{Blob, Error, Output};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{process, scratch::Scratch};

#[derive(Deserialize)]
pub(crate) struct Extraction {
    pdf: Blob,
    first_page: Option<u32>,
    last_page: Option<u32>,
    /// Keeps columns where they are on the page.
    #[serde(default)]
    layout: bool,
    password: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Extracted {
    /// All pages, separated by empty lines.
    text: String,
    pages: Vec<String>,
    page_count: u64,
    info: Map<String, Value>,
}

#[derive(Deserialize)]
pub(crate) struct Merging {
    pdfs: Vec<Blob>,
}

#[derive(Serialize)]
pub(crate) struct Document {
    pub(crate) pdf: Blob,
    pub(crate) bytes: usize,
    pub(crate) page_count: u64,
}

impl Document {
    pub(crate) fn finished(scratch: &Scratch, name: &str) -> Result<Self, Error> {
        let (page_count, _) = info(scratch, name, None)?;
        let pdf = scratch.take(name)?;
        Ok(Self { bytes: pdf.0.len(), pdf, page_count })
    }
}

/// Number of pages, and metadata of the document.
fn info(scratch: &Scratch, name: &str, password: Option<&str>) -> Result<(u64, Map<String, Value>), Error> {
    let mut command = process::tool("pdfinfo", scratch);
    command.arg("-isodates");
    if let Some(password) = password {
        command.args(["-upw", password]);
    }
    command.arg(name);
    let text = process::output(command)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let pairs: Map<String, Value> =
        lines.map(|(key, value)| (key.trim().to_owned(), value.trim().into())).collect();
    let pages = pairs.get("Pages").and_then(Value::as_str).and_then(|pages| pages.parse().ok());
    let wanted =
        ["Title", "Subject", "Keywords", "Author", "Creator", "Producer", "CreationDate", "PDF version"];
    let said =
        pairs.into_iter().filter(|(key, value)| wanted.contains(&key.as_str()) && value != "").collect();
    Ok((pages.ok_or_else(|| Error::failed("the pages cannot be counted"))?, said))
}

pub(crate) fn extract(input: Extraction, _: &mut Output<'_>) -> Result<Extracted, Error> {
    let scratch = Scratch::new()?;
    scratch.put("in.pdf", &input.pdf.0)?;
    let (page_count, info) = info(&scratch, "in.pdf", input.password.as_deref())?;
    let mut command = process::tool("pdftotext", &scratch);
    command.args(["-enc", "UTF-8", if input.layout { "-layout" } else { "-raw" }]);
    for (option, page) in [("-f", input.first_page), ("-l", input.last_page)] {
        if let Some(page) = page {
            command.args([option, &page.to_string()]);
        }
    }
    if let Some(password) = &input.password {
        command.args(["-upw", password]);
    }
    command.args(["in.pdf", "-"]);
    let text = process::output(command)?;
    let text = String::from_utf8_lossy(&text);
    // Each page ends with a form feed.
    let mut pages: Vec<String> = text.split('\u{c}').map(|page| page.trim_end().to_owned()).collect();
    pages.pop();
    Ok(Extracted { text: pages.join("\n\n"), pages, page_count, info })
}

pub(crate) fn merge(input: Merging, _: &mut Output<'_>) -> Result<Document, Error> {
    let scratch = Scratch::new()?;
    let mut command = process::tool("qpdf", &scratch);
    // The same documents give the same file.
    command.args(["--empty", "--deterministic-id", "--warning-exit-0", "--pages"]);
    for (number, pdf) in input.pdfs.iter().enumerate() {
        let name = format!("in{number}.pdf");
        scratch.put(&name, &pdf.0)?;
        command.arg(name);
    }
    command.args(["--", "out.pdf"]);
    process::output(command)?;
    Document::finished(&scratch, "out.pdf")
}
