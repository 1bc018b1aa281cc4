//! What pages are made of: a few kinds of blocks, each with one template. Everything that a person or a model wrote is
//! text in them, and the templates escape it; only the types of this module are taken as HTML.

mod form;

use askama::{Template, filters::HtmlSafe};
use island_protocol::{credits::MicroCredits, time::Timestamp};
use island_protocol_api::PageMeta;

pub use self::form::{Field, Form, Kind, enter};
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
    /// Text of a language model with a caption, which a script formats.
    Prose(String, String),
    /// Text that one click copies.
    Copy(String, String),
    /// Things, each with a link.
    Cards(Vec<Card>),
    /// Links to the neighboring pages of a list.
    Pager(Pager),
    /// Links to the parts of a page.
    Tabs(Vec<Tab>),
    /// Blocks that are read again while the page is open.
    Live(Live),
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

/// A part of a page that is read again while the page is open.
#[derive(Debug, Clone)]
pub struct Live {
    /// Its id in the page.
    pub id: &'static str,
    /// Address of a page that contains it.
    pub address: String,
    /// What it shows.
    pub blocks: Vec<Block>,
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
    /// Text, or no value if it is empty.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::Nothing } else { Self::Text(text) }
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

    /// The id of a row in a table that is read again: what is focused in the row stays there when others come before it.
    fn row_id(&self, row: &[Cell]) -> Option<String> {
        self.refresh.as_ref()?;
        match row.first()? {
            Cell::Link(of, _) | Cell::Code(of) => Some(format!("{}-{of}", self.id)),
            _ => None,
        }
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
    crate::text_file::fill(t("plot.utc"), &[("time", &minute.replace('T', " "))])
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
            Block::Prose(HOSTILE.to_owned(), HOSTILE.to_owned()),
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
    fn what_is_refused_is_shown_in_its_form() {
        let form = |action: &str| {
            let fields = vec![
                Field::line("reason", "Reason"),
                Field::new("tick", "Tick", Kind::Check),
                Field::hidden("id", "7"),
                Field::new("secret", "Secret", Kind::Secret),
            ];
            Form::post(action, "Send", fields)
        };
        let row = vec![Cell::Actions(vec![form("/row")])];
        let mut blocks = vec![
            Block::Fold("Folded".to_owned(), vec![Block::Form(form("/folded"))]),
            Block::Panel(String::new(), vec![Block::Table(Table { rows: vec![row], ..Table::default() })]),
        ];
        let entered = |name: &str| Some(name.to_uppercase()).filter(|_| name != "tick");
        assert!(enter(&mut blocks, "/row", &entered) && enter(&mut blocks, "/folded", &entered));
        assert!(!enter(&mut blocks, "/other", &entered));
        assert!(matches!(blocks[0], Block::Panel(..)), "what hides it is open");
        for block in &blocks {
            let html = block.render().expect("rendered");
            assert!(html.contains("value=\"REASON\"") && html.contains("value=\"7\""), "{html}");
            assert!(!html.contains("SECRET") && !html.contains("checked"), "{html}");
        }
    }

    #[test]
    fn rows_of_a_table_that_is_read_again_are_known() {
        let table = |refresh: Option<&str>| {
            let rows = vec![vec![Cell::link("/x/1", "one")], vec![Cell::text("two")]];
            Table { rows, refresh: refresh.map(str::to_owned), id: "list", ..Table::default() }
        };
        let html = Block::Table(table(Some("/x"))).render().expect("rendered");
        assert!(html.contains("<tr role=\"row\" id=\"list-/x/1\">"), "{html}");
        assert_eq!(html.matches(" id=").count(), 2, "the table and one row: {html}");
        assert!(!Block::Table(table(None)).render().expect("rendered").contains("list-"));
    }

    #[test]
    fn values_are_suggested() {
        let field = Field::new("cargo", "Cargo", Kind::Suggested(vec![HOSTILE.to_owned(), "b".to_owned()]));
        let html = Block::Form(Form::filter("/x", vec![field])).render().expect("rendered");
        for part in ["list=\"cargo-values\"", "<datalist id=\"cargo-values\">", "<option value=\"b\">"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
    }

    #[test]
    fn tables_stay_tables_on_narrow_screens() {
        let rows = vec![vec![Cell::text(""), Cell::text("x")]];
        let columns = vec!["a".to_owned(), "b".to_owned()];
        let html = Block::Table(Table { columns, rows, ..Table::default() }).render().expect("rendered");
        for role in ["table", "rowgroup", "row", "columnheader", "cell"] {
            assert!(html.contains(&format!("role=\"{role}\"")), "{role}: {html}");
        }
        assert!(html.contains("<span class=\"none\">"), "no cell is blank: {html}");
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
