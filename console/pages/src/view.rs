//! What pages are made of: a few kinds of blocks, each with one template. Everything that a person or a model wrote is
//! text in them, and the templates escape it; only the types of this module are taken as HTML.

use askama::{Template, filters::HtmlSafe};
use island_protocol::{api::PageMeta, credits::MicroCredits, time::Timestamp};

use crate::t;

/// A part of a page.
#[derive(Debug, Clone, Template)]
#[template(path = "block.html")]
pub enum Block {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A text that must be seen.
    Notice(Tone, String),
    /// Values with their names.
    Facts(Vec<(String, Cell)>),
    /// Large numbers.
    Tiles(Vec<Tile>),
    /// A table.
    Table(Table),
    /// A form.
    Form(Form),
    /// A plot with the table that it is drawn from.
    Plot(Plot),
    /// Text as it is, such as a manifest, with a caption.
    Pre(String, String),
    /// Text that one click copies.
    Copy(String, String),
    /// Things, each with a link.
    Cards(Vec<Card>),
    /// Links to the neighboring pages of a list.
    Pager(Pager),
    /// Links to the parts of a page.
    Tabs(Vec<Tab>),
    /// Blocks that are shown on demand.
    Fold(String, Vec<Block>),
    /// Blocks under a heading, in a frame.
    Panel(String, Vec<Block>),
    /// Blocks beside each other.
    Columns(Vec<Block>),
    /// A file that a job made.
    Media(Media),
    /// Addresses with their texts.
    Links(Vec<(String, String)>),
}

/// What a notice or a badge is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Information.
    Plain,
    /// A success.
    Good,
    /// Something to look after.
    Warn,
    /// A failure.
    Bad,
}

impl Tone {
    /// The class in the style sheet.
    pub fn class(self) -> &'static str {
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
pub enum Cell {
    /// No value.
    Nothing,
    /// Text.
    Text(String),
    /// An id, or text of a program.
    Code(String),
    /// A number.
    Number(String),
    /// An amount of credits.
    Credits(MicroCredits),
    /// A time, shown in the zone of the reader.
    Time(Timestamp),
    /// A state.
    Badge(Tone, String),
    /// An address with its text.
    Link(String, String),
    /// Buttons.
    Actions(Vec<Form>),
    /// A part in percent, with its text.
    Bar(u64, String),
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number.
    pub fn number(number: impl ToString) -> Self {
        Self::Number(number.to_string())
    }

    /// A time that may be missing.
    pub fn time(time: Option<Timestamp>) -> Self {
        time.map_or(Self::Nothing, Self::Time)
    }

    /// A link.
    pub fn link(href: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Link(href.into(), text.into())
    }
}

/// A number with its name.
#[derive(Debug, Clone)]
pub struct Tile {
    /// Its name.
    pub label: String,
    /// The number.
    pub value: Cell,
    /// A remark, or empty.
    pub note: String,
}

impl Tile {
    /// A number without a remark.
    pub fn new(label: &str, value: Cell) -> Self {
        Self { label: label.to_owned(), value, note: String::new() }
    }
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Its title, or empty.
    pub caption: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// Shown in place of no rows.
    pub empty: String,
    /// Links to the neighboring pages.
    pub pager: Option<Pager>,
    /// Address from which the table is read again while it is open.
    pub refresh: Option<String>,
    /// Its id in the page, or empty.
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
pub struct Pager {
    /// Which entries are shown, of how many.
    pub shown: String,
    /// Address of the page before.
    pub previous: Option<String>,
    /// Address of the page behind.
    pub next: Option<String>,
}

impl Pager {
    /// `address` ends where `offset=` is added.
    pub fn new(address: &str, meta: PageMeta) -> Option<Self> {
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
pub struct Form {
    /// Where it is sent.
    pub action: String,
    /// `post`, or `get` for filters.
    pub method: &'static str,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Text of its button.
    pub submit: String,
    /// What its button does.
    pub tone: Tone,
    /// Whether it is one line, as in a table.
    pub is_inline: bool,
    /// Whether files are sent.
    pub has_files: bool,
    /// Distinguishes what several forms of a page do for who cannot see where they are.
    pub label: String,
    /// What cannot be undone, which is shown before the button is; or empty.
    pub confirm: String,
}

impl Form {
    fn has_extra(&self) -> bool {
        self.fields.iter().any(|field| field.is_extra)
    }

    /// A form that changes something.
    pub fn post(action: impl Into<String>, submit: &str, fields: Vec<Field>) -> Self {
        Self {
            action: action.into(),
            method: "post",
            fields,
            submit: submit.to_owned(),
            tone: Tone::Plain,
            is_inline: false,
            has_files: false,
            label: String::new(),
            confirm: String::new(),
        }
    }

    /// A form that restricts a list.
    pub fn filter(action: impl Into<String>, fields: Vec<Field>) -> Self {
        Self { method: "get", is_inline: true, ..Self::post(action, t("form.filter"), fields) }
    }

    /// A button.
    pub fn button(action: impl Into<String>, submit: &str, label: impl Into<String>) -> Self {
        Self { is_inline: true, label: label.into(), ..Self::post(action, submit, Vec::new()) }
    }

    /// Marks what cannot be undone.
    #[must_use]
    pub fn bad(self) -> Self {
        Self { tone: Tone::Bad, ..self }
    }

    /// Shows a text, and the button only with it.
    #[must_use]
    pub fn confirm(self, text: impl Into<String>) -> Self {
        Self { confirm: text.into(), ..self }
    }

    /// Puts all fields in one line.
    #[must_use]
    pub fn inline(self) -> Self {
        Self { is_inline: true, ..self }
    }
}

/// A field of a form.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// Its name in the form.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// A remark, or empty.
    pub help: String,
    /// What is entered already.
    pub value: String,
    /// How it is entered.
    pub kind: Kind,
    /// Whether it must be entered.
    pub is_required: bool,
    /// Whether it is shown only on demand, behind all others.
    pub is_extra: bool,
    /// Why what was entered is refused, or empty.
    pub error: String,
}

/// How a field is entered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kind {
    /// A line of text.
    #[default]
    Line,
    /// Several lines of text.
    Lines,
    /// Text of a program.
    Code,
    /// Text that is not shown.
    Secret,
    /// An e-mail address.
    Email,
    /// A number.
    Number {
        /// Distance of the values; `any` for all.
        step: String,
        /// Minimum, or empty.
        min: String,
        /// Maximum, or empty.
        max: String,
    },
    /// Yes or no.
    Check,
    /// A day.
    Date,
    /// One of several values with their texts.
    Choice(Vec<(String, String)>),
    /// A file. Media types that are offered.
    File(String),
    /// Several files, likewise.
    Files(String),
    /// A value that is sent and not shown.
    Hidden,
}

impl Field {
    fn is_wrong(&self) -> bool {
        !self.error.is_empty()
    }

    /// A field without a value.
    pub fn new(name: &str, label: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), kind, ..Self::default() }
    }

    /// A line of text.
    pub fn line(name: &str, label: &str) -> Self {
        Self::new(name, label, Kind::Line)
    }

    /// A number of zero or more.
    pub fn amount(name: &str, label: &str) -> Self {
        Self::new(
            name,
            label,
            Kind::Number { step: "any".to_owned(), min: "0".to_owned(), max: String::new() },
        )
    }

    /// A value that is sent and not shown.
    pub fn hidden(name: &str, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..Self::new(name, "", Kind::Hidden) }
    }

    /// The reason that the audit log records.
    pub fn reason() -> Self {
        Self::line("reason", t("form.reason")).required()
    }

    /// Marks that it must be entered.
    #[must_use]
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Sets the remark.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    /// Sets what is entered already.
    #[must_use]
    pub fn value(self, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..self }
    }
}

/// Values over time or by name, as a picture above the table that they are read from.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Names of the series.
    pub columns: Vec<String>,
    /// Times, each with a value of every series.
    pub points: Vec<(Timestamp, Vec<f64>)>,
    /// Whether values are bars that stand on each other; otherwise lines.
    pub is_bars: bool,
}

impl Plot {
    /// Whether its times are days of UTC, which are the same days in the zone of every reader.
    fn is_days(&self) -> bool {
        self.is_bars && self.points.iter().all(|(time, _)| *time == time.day_begin())
    }
}

/// A thing in a list of things.
#[derive(Debug, Clone)]
pub struct Card {
    /// Its page.
    pub href: String,
    /// Its name.
    pub title: String,
    /// Its id, or empty.
    pub note: String,
    /// What it is.
    pub text: String,
    /// Its states.
    pub badges: Vec<(Tone, String)>,
    /// Values with their names.
    pub facts: Vec<(String, Cell)>,
}

/// A way to a page beside this one.
#[derive(Debug, Clone)]
pub struct Tab {
    /// Its address.
    pub href: String,
    /// Its name.
    pub text: String,
    /// Whether it is shown now.
    pub is_current: bool,
}

/// How a file is shown in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As a picture.
    Picture,
    /// As sound, with a player.
    Sound,
    /// As a video, with a player.
    Video,
    /// As a link only.
    File,
}

/// A file that a job made.
#[derive(Debug, Clone)]
pub struct Media {
    /// Its address.
    pub href: String,
    /// How it is shown.
    pub shown: Shown,
    /// What it is, for people who cannot see it.
    pub label: String,
    /// Where it is in the output.
    pub caption: String,
    /// Its name where it is stored.
    pub file_name: String,
}

impl HtmlSafe for Block {}
impl HtmlSafe for Cell {}

/// The same time for programs, and for people without a script.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(crate) fn plain_time(time: &Timestamp) -> String {
    let text = time.to_string();
    let minute = text.get(..16).unwrap_or(&text);
    crate::texts::fill(t("plot.utc"), &[("time", &minute.replace('T', " "))])
}

/// A day of UTC, for programs and for people without a script.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(crate) fn plain_day(time: &Timestamp) -> String {
    time.to_string().chars().take(10).collect()
}

/// A number as few characters.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(crate) fn short(number: &f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        crate::check::escaping(Path::new("templates"));
    }

    #[test]
    fn days_have_no_time() {
        let plot = |ms: i64, is_bars| Plot {
            title: "x".to_owned(),
            columns: vec!["y".to_owned()],
            points: vec![(Timestamp::from_unix_ms(ms), vec![1.0])],
            is_bars,
        };
        let day = Block::Plot(plot(86_400_000, true)).render().expect("rendered");
        assert!(
            day.contains("data-days=\"true\"") && day.contains("<time datetime=\"1970-01-02\">1970-01-02<"),
            "{day}"
        );
        let hour = Block::Plot(plot(90_000_000, true)).render().expect("rendered");
        assert!(hour.contains("data-days=\"false\"") && hour.contains(">1970-01-02 01:00 UTC<"), "{hour}");
        assert!(!plot(86_400_000, false).is_days());
    }

    #[test]
    fn what_cannot_be_undone_is_confirmed() {
        let form = Form::button("/x", "Delete", "Delete x").bad();
        assert!(!Block::Form(form.clone()).render().expect("rendered").contains("<details"));
        let html = Block::Form(form.confirm("It is gone.")).render().expect("rendered");
        let (summary, text) = (html.find("<summary"), html.find("<p>It is gone.</p>"));
        assert!(summary.is_some() && summary < text && text < html.find("<button"), "{html}");
    }

    #[test]
    fn a_wrong_field_is_one_for_who_cannot_see_it() {
        let wrong = Field { error: "too long".to_owned(), ..Field::line("bad", "x") };
        let form = Form::post("/x", "Send", vec![Field::line("good", "x"), wrong]);
        let html = Block::Form(form).render().expect("rendered");
        assert!(html.contains("name=\"good\" aria-invalid=\"false\""), "{html}");
        assert!(html.contains("name=\"bad\" aria-invalid=\"true\""), "{html}");
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
