//! Text out of Word documents, as plain text and as Markdown with headings, lists and tables.

use std::io::{Cursor, Read};

use island_cargo::{Blob, Error, OrInvalid, Output};
use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};
use serde::{Deserialize, Serialize};
use zip::ZipArchive;

/// Most bytes of a document's text, unpacked.
const MOST: u64 = 64 << 20;

#[derive(Deserialize)]
pub(crate) struct Input {
    docx: Blob,
}

#[derive(Serialize, Debug, PartialEq)]
pub(crate) struct Answer {
    text: String,
    markdown: String,
    words: usize,
    paragraphs: usize,
    tables: usize,
}

/// Where in the document the reader is.
#[derive(Default)]
struct Body {
    text: Vec<String>,
    markdown: Vec<String>,
    paragraph: String,
    /// Level of a heading, 0 for none.
    heading: usize,
    in_list: bool,
    in_text: bool,
    tables: usize,
    /// How many tables the reader is inside of; those within tables are part of their cell.
    depth: usize,
    row: Vec<String>,
    cell: String,
    rows: usize,
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let value = tag.try_get_attribute(name).ok()??;
    Some(value.value.into_owned())
}

/// The level of a paragraph style's heading: `Heading2`, `Title`.
fn heading(style: &str) -> usize {
    if style == "Title" {
        return 1;
    }
    let level = style.strip_prefix("Heading").or_else(|| style.strip_prefix("heading "));
    level.and_then(|level| level.trim().parse().ok()).filter(|level| (1..=6).contains(level)).unwrap_or(0)
}

impl Body {
    fn open(&mut self, tag: &BytesStart<'_>) {
        match tag.local_name().as_ref() {
            "tbl" => {
                self.depth += 1;
                if self.depth == 1 {
                    self.tables += 1;
                    self.rows = 0;
                }
            }
            "pStyle" => self.heading = attribute(tag, "w:val").map_or(0, |style| heading(&style)),
            "numPr" => self.in_list = true,
            "t" => self.in_text = true,
            "tab" => self.paragraph.push('\t'),
            "br" | "cr" => self.paragraph.push('\n'),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.in_text = false,
            "p" => self.end_paragraph(),
            "tc" if self.depth == 1 => self.row.push(std::mem::take(&mut self.cell).trim().to_owned()),
            "tr" if self.depth == 1 => self.end_row(),
            "tbl" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.paragraph).trim_end().to_owned();
        let (level, in_list) = (std::mem::take(&mut self.heading), std::mem::take(&mut self.in_list));
        if self.depth > 0 {
            self.cell.push_str(&text);
            self.cell.push(' ');
        } else if !text.is_empty() {
            let mark = match (level, in_list) {
                (0, false) => String::new(),
                (0, true) => "- ".to_owned(),
                (level, _) => format!("{} ", "#".repeat(level)),
            };
            self.markdown.push(format!("{mark}{text}"));
            self.text.push(text);
        }
    }

    fn end_row(&mut self) {
        let row = std::mem::take(&mut self.row);
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        let line = format!("| {} |", cells.join(" | "));
        if self.rows == 0 {
            self.markdown.push(format!("{line}\n|{}", " --- |".repeat(cells.len())));
        } else if let Some(table) = self.markdown.last_mut() {
            table.push('\n');
            table.push_str(&line);
        }
        self.rows += 1;
        self.text.push(row.join("\t"));
    }
}

fn read(xml: &str) -> Result<Answer, Error> {
    let mut reader = Reader::from_str(xml);
    let mut body = Body::default();
    loop {
        match reader.read_event().or_invalid("docx")? {
            Event::Start(tag) | Event::Empty(tag) => body.open(&tag),
            Event::End(tag) => body.close(tag.local_name().as_ref()),
            Event::Text(text) if body.in_text => body.paragraph.push_str(&text.xml10_content()),
            Event::GeneralRef(name) if body.in_text => {
                let name = name.into_inner();
                let text = quick_xml::escape::unescape(&format!("&{name};")).or_invalid("docx")?.into_owned();
                body.paragraph.push_str(&text);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let text = body.text.join("\n");
    Ok(Answer {
        words: text.split_whitespace().count(),
        paragraphs: body.text.len(),
        text,
        markdown: body.markdown.join("\n\n"),
        tables: body.tables,
    })
}

pub(crate) fn extract(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let mut archive = ZipArchive::new(Cursor::new(input.docx.0)).or_invalid("docx")?;
    let file = archive.by_name("word/document.xml").or_invalid("docx")?;
    let mut xml = String::new();
    file.take(MOST + 1).read_to_string(&mut xml).or_invalid("docx")?;
    if xml.len() as u64 > MOST {
        return Err(Error::invalid(format!("the document's text is longer than {MOST} bytes")));
    }
    read(&xml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_lists_and_tables_survive() {
        let xml = r#"<w:document xmlns:w="w"><w:body>
            <w:p><w:pPr><w:pStyle w:val="Heading2"/></w:pPr><w:r><w:t>Tea &amp; salt</w:t></w:r></w:p>
            <w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>first</w:t></w:r></w:p>
            <w:p><w:r><w:t xml:space="preserve">two </w:t></w:r><w:r><w:t>runs</w:t></w:r></w:p><w:p/>
            <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a|b</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr>
            <w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
        </w:body></w:document>"#;
        let answer = read(xml).expect("success");
        assert_eq!(answer.text, "Tea & salt\nfirst\ntwo runs\na|b\t\n1\t2");
        assert_eq!(
            answer.markdown,
            "## Tea & salt\n\n- first\n\ntwo runs\n\n| a\\|b |  |\n| --- | --- |\n| 1 | 2 |"
        );
        assert_eq!((answer.tables, answer.words), (1, 9));
    }

    #[test]
    fn broken_xml_is_the_inputs_fault() {
        assert!(read("<w:p><w:t>a</w:p>").expect_err("a failure").is_invalid());
    }
}
