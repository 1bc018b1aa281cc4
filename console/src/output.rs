//! Results of jobs as what they are: text, pictures, sound, videos, files, tables, facts, or JSON.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use island_protocol::ids::JobId;
use serde_json::{Map, Number, Value};

use crate::{
    backend::encoded,
    texts::{fill, t},
    view::{Block, Cell, Media, Shown, Table},
};

/// Maximum characters of a text in a page; the whole of it can be downloaded.
const MAX_TEXT: usize = 100_000;
/// Maximum rows of a table in a page.
const MAX_ROWS: usize = 200;
/// Maximum columns of a table.
const MAX_COLUMNS: usize = 12;
/// Maximum files in a page.
const MAX_MEDIA: usize = 32;
/// Strings of JSON are shortened to this length in a page.
const MAX_STRING: usize = 400;
/// Depth to which files are found.
const MAX_DEPTH: usize = 8;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub media_type: &'static str,
    /// How its names end.
    pub extension: &'static str,
    pub shown: Shown,
}

impl Kind {
    const fn new(media_type: &'static str, extension: &'static str, shown: Shown) -> Self {
        Self { media_type, extension, shown }
    }
}

/// How files of each kind begin, in base 64.
const BEGINNINGS: &[(&str, Kind)] = &[
    ("iVBORw0KGgo", Kind::new("image/png", "png", Shown::Picture)),
    ("/9j/", Kind::new("image/jpeg", "jpg", Shown::Picture)),
    ("R0lGOD", Kind::new("image/gif", "gif", Shown::Picture)),
    ("T2dnUw", Kind::new("audio/ogg", "ogg", Shown::Sound)),
    ("ZkxhQ", Kind::new("audio/flac", "flac", Shown::Sound)),
    ("SUQz", Kind::new("audio/mpeg", "mp3", Shown::Sound)),
    ("GkXfo", Kind::new("video/webm", "webm", Shown::Video)),
    ("JVBERi0", Kind::new("application/pdf", "pdf", Shown::File)),
    ("UEsDB", Kind::new("application/zip", "zip", Shown::File)),
    ("H4sI", Kind::new("application/gzip", "gz", Shown::File)),
];

/// A file whose kind is in its first twelve bytes, but not at their beginning.
fn within(head: &[u8]) -> Option<Kind> {
    match (head.get(..4)?, head.get(4..8)?, head.get(8..12)?) {
        (b"RIFF", _, b"WAVE") => Some(Kind::new("audio/wav", "wav", Shown::Sound)),
        (b"RIFF", _, b"WEBP") => Some(Kind::new("image/webp", "webp", Shown::Picture)),
        (_, b"ftyp", b"M4A ") => Some(Kind::new("audio/mp4", "m4a", Shown::Sound)),
        (_, b"ftyp", _) => Some(Kind::new("video/mp4", "mp4", Shown::Video)),
        _ => None,
    }
}

/// Recognizes a file by its beginning; a few letters that look like one are not enough.
pub(crate) fn recognize(text: &str) -> Option<Kind> {
    const MIN: usize = 60;
    if text.len() < MIN {
        return None;
    }
    // RIFF, and the length of a first box that is shorter than 256 bytes.
    if text.starts_with("UklGR") || text.starts_with("AAAA") {
        return within(&BASE64_STANDARD.decode(text.get(..16)?).ok()?);
    }
    BEGINNINGS.iter().find(|(begin, _)| text.starts_with(begin)).map(|(_, kind)| *kind)
}

/// The blocks that show an output.
pub(crate) fn blocks(job: JobId, output: &Value) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut found = Vec::new();
    media(output, &mut String::new(), 0, &mut found);
    for (number, (pointer, kind)) in (1..).zip(&found) {
        blocks.push(Block::Media(file(job, number, pointer, *kind)));
    }
    match output {
        Value::String(text) if found.is_empty() => return vec![text_block(t("output.text"), text)],
        Value::Object(fields) => object(fields, &mut blocks),
        Value::Array(items) => list("", items, &mut blocks),
        _ => {}
    }
    let json = serde_json::to_string_pretty(&shortened(output, 0)).unwrap_or_default();
    let pre = text_block(t("output.json"), &json);
    blocks.push(if blocks.is_empty() { pre } else { Block::Fold(t("output.json").to_owned(), vec![pre]) });
    blocks
}

/// The file at a place of an output.
fn file(job: JobId, number: usize, pointer: &str, kind: Kind) -> Media {
    let label = match kind.shown {
        Shown::Picture => "output.picture",
        Shown::Sound => "output.sound",
        Shown::Video => "output.video",
        Shown::File => "output.file",
    };
    Media {
        href: format!("/console/jobs/{job}/part?at={}", encoded(pointer)),
        shown: kind.shown,
        label: fill(label, &[("number", &number.to_string())]),
        caption: pointer.strip_prefix('/').unwrap_or(t("output.whole")).to_owned(),
        file_name: format!("{job}-{number}.{}", kind.extension),
    }
}

/// A text, of which a page shows a limited part.
pub(crate) fn text_block(caption: &str, text: &str) -> Block {
    let Some((end, _)) = text.char_indices().nth(MAX_TEXT) else {
        return Block::Pre(caption.to_owned(), text.to_owned());
    };
    let note = fill(
        "output.shortened",
        &[("shown", &MAX_TEXT.to_string()), ("all", &text.chars().count().to_string())],
    );
    Block::Pre(format!("{caption} – {note}"), text[..end].to_owned())
}

/// What a language model wrote.
pub(crate) fn prose(text: &str) -> Block {
    match text_block(t("output.text"), text) {
        Block::Pre(caption, text) => Block::Prose(caption, text),
        other => other,
    }
}

fn object(fields: &Map<String, Value>, blocks: &mut Vec<Block>) {
    let mut facts = Vec::new();
    for (name, value) in fields {
        match value {
            Value::String(text) if recognize(text).is_some() => {}
            Value::String(text) if text.len() > 200 || text.contains('\n') => {
                blocks.push(text_block(name, text));
            }
            Value::Array(items) => list(name, items, blocks),
            Value::Object(inner) => {
                let simple = inner.iter().filter(|(_, value)| !value.is_object() && !value.is_array());
                let simple = simple.filter(|(_, value)| value.as_str().is_none_or(|text| text.len() <= 200));
                facts.extend(simple.map(|(below, value)| (format!("{name}.{below}"), cell(value))));
            }
            scalar => facts.push((name.clone(), cell(scalar))),
        }
    }
    if !facts.is_empty() {
        blocks.insert(0, Block::Facts(facts));
    }
}

/// A table, if the items are objects of simple values.
fn list(name: &str, items: &[Value], blocks: &mut Vec<Block>) {
    let Some(Value::Object(first)) = items.first() else {
        let is_file = |item: &Value| item.as_str().is_some_and(|text| recognize(text).is_some());
        let is_simple = |item: &Value| !item.is_object() && !item.is_array() && !is_file(item);
        if !items.is_empty() && items.len() <= MAX_ROWS && items.iter().all(is_simple) {
            let rows = items.iter().map(|item| vec![cell(item)]).collect();
            let columns = vec![if name.is_empty() { t("output.value").to_owned() } else { name.to_owned() }];
            blocks.push(Block::Table(Table { columns, rows, ..Table::default() }));
        }
        return;
    };
    let columns: Vec<String> = first
        .iter()
        .filter(|(_, value)| value.as_str().is_none_or(|text| recognize(text).is_none()))
        .map(|(name, _)| name.clone())
        .take(MAX_COLUMNS)
        .collect();
    let rows = items.iter().take(MAX_ROWS);
    let rows = rows.map(|item| columns.iter().map(|column| cell(&item[column.as_str()])).collect());
    let caption = if items.len() > MAX_ROWS {
        fill(
            "output.rows",
            &[("name", name), ("shown", &MAX_ROWS.to_string()), ("all", &items.len().to_string())],
        )
    } else {
        name.to_owned()
    };
    if !columns.is_empty() {
        blocks.push(Block::Table(Table { caption, rows: rows.collect(), columns, ..Table::default() }));
    }
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Nothing,
        Value::Number(number) => Cell::number(short_number(number)),
        Value::String(text) => Cell::Text(short_string(text)),
        Value::Bool(_) => Cell::Text(value.to_string()),
        // A box, or a point.
        Value::Object(fields) if !fields.is_empty() && fields.values().all(Value::is_number) => {
            let field = |(name, value): (&String, &Value)| match value {
                Value::Number(number) => format!("{name} {}", short_number(number)),
                other => format!("{name} {other}"),
            };
            Cell::Text(short_string(&fields.iter().map(field).collect::<Vec<_>>().join(", ")))
        }
        nested => Cell::Code(short_string(&nested.to_string())),
    }
}

/// A fraction to six digits, because the JSON beside it has all of them; whole numbers as they are.
fn short_number(number: &Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() && value != 0.0 && value.abs() < 1e6 => {
            // Zero for numbers from 100,000 on, five for those from one to ten.
            let digits = 5.0 - value.abs().log10().floor();
            if digits > 12.0 {
                return format!("{value:.5e}");
            }
            let fixed = format!("{value:.0$}", digits as usize);
            if fixed.contains('.') {
                fixed.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                fixed
            }
        }
        _ => number.to_string(),
    }
}

fn short_string(text: &str) -> String {
    match text.char_indices().nth(MAX_STRING) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A copy with long strings and deep values cut, for reading.
fn shortened(value: &Value, depth: usize) -> Value {
    match value {
        // What is shown as a file is not text as well.
        Value::String(text) if recognize(text).is_some() => {
            Value::String(text.chars().take(24).chain(['…']).collect())
        }
        Value::String(text) => Value::String(short_string(text)),
        Value::Array(_) | Value::Object(_) if depth > 32 => Value::String("…".to_owned()),
        Value::Array(items) => items.iter().map(|item| shortened(item, depth + 1)).collect(),
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (name.clone(), shortened(value, depth + 1))).collect(),
        ),
        other => other.clone(),
    }
}

fn media(value: &Value, pointer: &mut String, depth: usize, found: &mut Vec<(String, Kind)>) {
    if found.len() >= MAX_MEDIA || depth > MAX_DEPTH {
        return;
    }
    let mut below = |step: &str, value: &Value, pointer: &mut String| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
        media(value, pointer, depth + 1, found);
        pointer.truncate(length);
    };
    match value {
        Value::String(text) => found.extend(recognize(text).map(|kind| (pointer.clone(), kind))),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| below(&index.to_string(), item, pointer));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, value)| below(name, value, pointer)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use askama::Template as _;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const JOB: JobId = JobId(Uuid::nil());

    fn png() -> String {
        format!("iVBORw0KGgo{}", "A".repeat(80))
    }

    fn html(output: &Value) -> String {
        blocks(JOB, output).iter().map(|block| block.render().expect("rendered")).collect()
    }

    #[test]
    fn pictures_are_found_wherever_they_are() {
        let shown = html(&json!({"images": [{"data": png(), "format": "png"}], "n/a~": png()}));
        assert!(shown.contains("part?at=%2Fimages%2F0%2Fdata"), "{shown}");
        assert!(shown.contains("part?at=%2Fn~1a~0"), "{shown}");
        assert!(!shown.contains(&png()), "the picture is not in the page");
    }

    #[test]
    fn objects_are_tables_and_text_is_text() {
        let shown = html(&json!([{"label": "<b>x</b>", "score": 0.5}, {"label": "y", "score": 1}]));
        assert!(shown.contains("scope=\"col\">label</th>") && shown.contains("0.5"), "{shown}");
        assert!(!shown.contains("<b>"), "{shown}");
        let shown = html(&json!("</pre><script>alert(1)</script>"));
        assert!(!shown.contains("<script>"), "{shown}");
    }

    #[test]
    fn numbers_of_a_table_are_short_and_a_box_is_read_at_once() {
        let shown = html(&json!([{
            "score": 0.666_719_019_412_994_4, "box": {"xmin": -22, "ymax": 47.25}, "time": 1_234_567.25,
            "count": 12_345_678,
        }]));
        let table = shown.split("</table>").next().expect("a table first");
        for part in [">0.666719<", ">xmin -22, ymax 47.25<", ">1234567.25<", ">12345678<"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert!(shown.contains("0.6667190194129944"), "the JSON has all digits: {shown}");
        let short = |value: f64| short_number(&Number::from_f64(value).expect("finite"));
        let cases = [
            (0.5, "0.5"),
            (-0.1 - 0.2, "-0.3"),
            (99_999.96, "100000"),
            (9.999_999, "10"),
            (1.25e-9, "1.25000e-9"),
            (0.0, "0.0"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let shown = html(&Value::String("x".repeat(10 << 20)));
        assert!(shown.len() < MAX_TEXT + 1000);
    }

    #[test]
    fn files_are_recognized_by_their_bytes() {
        let kind = |begin: &[u8]| {
            let bytes: Vec<u8> = begin.iter().copied().chain([0; 60]).collect();
            recognize(&BASE64_STANDARD.encode(bytes)).map(|kind| (kind.extension, kind.shown))
        };
        assert_eq!(kind(b"%PDF-1.7"), Some(("pdf", Shown::File)));
        assert_eq!(kind(b"PK\x03\x04"), Some(("zip", Shown::File)));
        assert_eq!(kind(b"\x1a\x45\xdf\xa3"), Some(("webm", Shown::Video)));
        assert_eq!(kind(b"\0\0\0\x18ftypisom"), Some(("mp4", Shown::Video)));
        assert_eq!(kind(b"\0\0\0\x18ftypM4A "), Some(("m4a", Shown::Sound)));
        assert_eq!(kind(b"RIFF\0\0\0\0WAVE"), Some(("wav", Shown::Sound)));
        assert_eq!(kind(b"\0\0\0\x18other"), None);
        let shown =
            html(&json!({"pdf": BASE64_STANDARD.encode([b"%PDF-1.7".as_slice(), &[0; 60]].concat())}));
        assert!(shown.contains("download=\"00000000-0000-0000-0000-000000000000-1.pdf\""), "{shown}");
    }

    #[test]
    fn few_letters_are_not_a_picture() {
        assert_eq!(recognize("/9j/ is a path"), None);
        assert_eq!(recognize(&png()).map(|kind| kind.media_type), Some("image/png"));
    }
}
