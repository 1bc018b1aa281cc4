//! What pages are made of: a few kinds of blocks, each with one template. Everything that a person or a model wrote is
//! text in them, and the templates escape it; only the types of this module are taken as HTML.

use askama::{Template, filters::HtmlSafe};
use island_protocol::{api::PageMeta, credits::MicroCredits, time::Timestamp};

use crate::texts::t;

/// A part of a page.
#[derive(Debug, Clone, Template)]
#[template(path = "block.html")]
pub(crate) enum Block {
    Heading(String),
    Text(String),
    Notice(Tone, String),
    Facts(Vec<(String, Cell)>),
    Tiles(Vec<Tile>),
    Table(Table),
    Form(Form),
    Plot(Plot),
    /// Text as it is, such as a manifest, with a caption.
    Pre(String, String),
    /// Text that one click copies.
    Copy(String, String),
    Cards(Vec<Card>),
    Pager(Pager),
    Tabs(Vec<Tab>),
    Fold(String, Vec<Block>),
    Panel(String, Vec<Block>),
    Columns(Vec<Block>),
    Media(Media),
    Links(Vec<(String, String)>),
}

/// What a notice or a badge is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// A value.
#[derive(Debug, Clone, Template)]
#[template(path = "cell.html")]
pub(crate) enum Cell {
    Nothing,
    Text(String),
    Code(String),
    Number(String),
    Credits(MicroCredits),
    Time(Timestamp),
    Badge(Tone, String),
    Link(String, String),
    Actions(Vec<Form>),
    Bar(u64, String),
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn number(number: impl ToString) -> Self {
        Self::Number(number.to_string())
    }

    pub(crate) fn time(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Nothing, Self::Time)
    }

    pub(crate) fn link(href: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Link(href.into(), text.into())
    }
}

/// A number with its name.
#[derive(Debug, Clone)]
pub(crate) struct Tile {
    pub label: String,
    pub value: Cell,
    pub note: String,
}

impl Tile {
    pub(crate) fn new(label: &str, value: Cell) -> Self {
        Self { label: label.to_owned(), value, note: String::new() }
    }
}

/// A table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub caption: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// Shown in place of no rows.
    pub empty: String,
    pub pager: Option<Pager>,
    /// Address from which the table is read again while it is open.
    pub refresh: Option<String>,
    pub id: &'static str,
}

impl Table {
    /// The column of a cell, which narrow screens show beside it.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
    fn label(&self, column: &usize) -> &str {
        self.columns.get(*column).map_or("", String::as_str)
    }
}

/// Position in a list that has several pages.
#[derive(Debug, Clone)]
pub(crate) struct Pager {
    pub shown: String,
    pub previous: Option<String>,
    pub next: Option<String>,
}

impl Pager {
    /// `address` ends where `offset=` is added.
    pub(crate) fn new(address: &str, meta: PageMeta) -> Option<Self> {
        let PageMeta { total, limit, offset } = meta;
        if total <= limit && offset == 0 {
            return None;
        }
        let link = |offset: u64| format!("{address}offset={offset}");
        let end = (offset + limit).min(total);
        Some(Self {
            shown: format!("{}–{end} / {total}", (offset + 1).min(total)),
            previous: (offset > 0).then(|| link(offset.saturating_sub(limit))),
            next: (end < total).then(|| link(end)),
        })
    }
}

/// A form.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub action: String,
    /// `post`, or `get` for filters.
    pub method: &'static str,
    pub fields: Vec<Field>,
    pub submit: String,
    pub tone: Tone,
    /// Whether it is one line, as in a table.
    pub is_inline: bool,
    /// Whether files are sent.
    pub has_files: bool,
    /// Distinguishes what several forms of a page do for who cannot see where they are.
    pub label: String,
}

impl Form {
    fn has_extra(&self) -> bool {
        self.fields.iter().any(|field| field.is_extra)
    }

    pub(crate) fn post(action: impl Into<String>, submit: &str, fields: Vec<Field>) -> Self {
        Self {
            action: action.into(),
            method: "post",
            fields,
            submit: submit.to_owned(),
            tone: Tone::Plain,
            is_inline: false,
            has_files: false,
            label: String::new(),
        }
    }

    pub(crate) fn filter(action: impl Into<String>, fields: Vec<Field>) -> Self {
        Self { method: "get", is_inline: true, ..Self::post(action, t("form.filter"), fields) }
    }

    /// A button.
    pub(crate) fn button(action: impl Into<String>, submit: &str, label: impl Into<String>) -> Self {
        Self { is_inline: true, label: label.into(), ..Self::post(action, submit, Vec::new()) }
    }

    pub(crate) fn bad(self) -> Self {
        Self { tone: Tone::Bad, ..self }
    }

    pub(crate) fn inline(self) -> Self {
        Self { is_inline: true, ..self }
    }
}

/// A field of a form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Field {
    pub name: String,
    pub label: String,
    pub help: String,
    pub value: String,
    pub kind: Kind,
    pub is_required: bool,
    /// Whether it is shown only on demand, behind all others.
    pub is_extra: bool,
    pub error: String,
}

/// How a field is entered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Line,
    Lines,
    Code,
    Secret,
    Email,
    Number {
        step: String,
        min: String,
        max: String,
    },
    Check,
    /// A day.
    Date,
    Choice(Vec<(String, String)>),
    /// Media types that are offered.
    File(String),
    Hidden,
}

impl Field {
    pub(crate) fn new(name: &str, label: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), kind, ..Self::default() }
    }

    pub(crate) fn line(name: &str, label: &str) -> Self {
        Self::new(name, label, Kind::Line)
    }

    pub(crate) fn amount(name: &str, label: &str) -> Self {
        Self::new(
            name,
            label,
            Kind::Number { step: "any".to_owned(), min: "0".to_owned(), max: String::new() },
        )
    }

    pub(crate) fn hidden(name: &str, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..Self::new(name, "", Kind::Hidden) }
    }

    /// The reason that the audit log records.
    pub(crate) fn reason() -> Self {
        Self::line("reason", t("form.reason")).required()
    }

    pub(crate) fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    pub(crate) fn value(self, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..self }
    }
}

/// Values over time or by name, as a picture above the table that they are read from.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    pub title: String,
    pub columns: Vec<String>,
    pub points: Vec<(Timestamp, Vec<f64>)>,
    pub is_bars: bool,
}

/// A thing in a list of things.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    pub href: String,
    pub title: String,
    pub note: String,
    pub text: String,
    pub badges: Vec<(Tone, String)>,
    pub facts: Vec<(String, Cell)>,
}

/// A way to a page beside this one.
#[derive(Debug, Clone)]
pub(crate) struct Tab {
    pub href: String,
    pub text: String,
    pub is_current: bool,
}

/// A picture or sound that a job made.
#[derive(Debug, Clone)]
pub(crate) struct Media {
    pub href: String,
    pub is_sound: bool,
    pub caption: String,
}

impl HtmlSafe for Block {}
impl HtmlSafe for Cell {}

/// Address and text of a page in the menu.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub href: &'static str,
    pub text: &'static str,
    pub is_current: bool,
}

/// Entries of the menu under one name.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub name: &'static str,
    pub entries: Vec<Entry>,
}

/// The frame of all pages.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub title: String,
    /// Folder of the assets, which changes with them.
    pub assets: &'static str,
    pub groups: Vec<Group>,
    /// Address and credits of who is signed in.
    pub account: Option<(String, MicroCredits)>,
    pub notices: Vec<(Tone, String)>,
    pub scripts: Vec<&'static str>,
    pub has_plots: bool,
    pub has_htmx: bool,
    pub is_wide: bool,
}

/// A page that consists of blocks.
#[derive(Debug, Template)]
#[template(path = "page.html")]
pub(crate) struct BlocksPage {
    pub frame: Frame,
    pub lead: String,
    pub blocks: Vec<Block>,
}

/// The same time for programs, and for people without a script.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(crate) fn plain_time(time: &Timestamp) -> String {
    let text = time.to_string();
    let minute = text.get(..16).unwrap_or(&text);
    format!("{} UTC", minute.replace('T', " "))
}

/// A number as few characters.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(crate) fn short(number: &f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}\u{0}";

    #[test]
    fn what_people_write_is_text() {
        let cells = vec![
            Cell::text(HOSTILE),
            Cell::Code(HOSTILE.to_owned()),
            Cell::link(HOSTILE, HOSTILE),
            Cell::Badge(Tone::Good, HOSTILE.to_owned()),
        ];
        let form = Form::post(HOSTILE, HOSTILE, vec![Field::line(HOSTILE, HOSTILE).value(HOSTILE)]);
        let blocks = vec![
            Block::Heading(HOSTILE.to_owned()),
            Block::Text(HOSTILE.to_owned()),
            Block::Pre(HOSTILE.to_owned(), HOSTILE.to_owned()),
            Block::Copy(HOSTILE.to_owned(), HOSTILE.to_owned()),
            Block::Form(form),
            Block::Table(Table {
                caption: HOSTILE.to_owned(),
                columns: vec![HOSTILE.to_owned(); 4],
                rows: vec![cells],
                ..Table::default()
            }),
        ];
        for block in blocks {
            let html = block.render().expect("rendered");
            assert!(!html.contains("<script>") && !html.contains("alert(1)</"), "{html}");
            assert!(!html.contains("=\"\"'"), "{html}");
        }
    }

    #[test]
    fn no_template_turns_escaping_off() {
        for entry in fs::read_dir("templates").expect("templates") {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a template");
            for forbidden in ["|safe", "| safe", "escape(\"none", "style=", "onclick", "<script>"] {
                assert!(!text.contains(forbidden), "{} has {forbidden}", path.display());
            }
        }
    }

    #[test]
    fn a_pager_names_its_neighbors() {
        let meta = |total, offset| PageMeta { total, limit: 20, offset };
        assert!(Pager::new("/x?", meta(20, 0)).is_none());
        let middle = Pager::new("/x?", meta(50, 20)).expect("pages");
        assert_eq!(middle.shown, "21–40 / 50");
        assert_eq!(middle.previous.as_deref(), Some("/x?offset=0"));
        assert_eq!(middle.next.as_deref(), Some("/x?offset=40"));
        let last = Pager::new("/x?", meta(50, 40)).expect("pages");
        assert!(last.next.is_none());
    }
}
