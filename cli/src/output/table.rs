//! Tables and lists of fields.

use std::cmp::Reverse;

use comfy_table::{Attribute, Cell, Color, Table, presets};

use super::text::{StatusColor, on_one_line, status_color};

/// Shortest form of a column that may be cut.
const CUT: u16 = 16;
/// Shortest form of any column.
const LEAST: u16 = 8;
/// Lengths of an id's beginnings that end at a dash. The first holds the milliseconds of a time-ordered id.
const BEGINNINGS: [usize; 3] = [13, 18, 23];

/// A column, and how it shrinks on a narrow terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    name: &'static str,
    is_id: bool,
    is_cut: bool,
    /// Left out where the terminal is too narrow, the highest number first.
    drop: Option<u8>,
}

impl Column {
    /// A column that stays.
    pub(crate) const fn of(name: &'static str) -> Self {
        Self { name, is_id: false, is_cut: false, drop: None }
    }

    /// Holds ids: on a terminal their unique beginnings are shown.
    pub(crate) const fn id(self) -> Self {
        Self { is_id: true, ..self }
    }

    /// Is shortened before any column is left out.
    pub(crate) const fn cut(self) -> Self {
        Self { is_cut: true, ..self }
    }

    /// Is left out where the terminal is too narrow, the highest number first.
    pub(crate) const fn drop(self, rank: u8) -> Self {
        Self { drop: Some(rank), ..self }
    }
}

/// Columns of a terminal on standard output.
pub(super) fn terminal_width() -> Option<u16> {
    Table::new().width().filter(|width| *width > 0)
}

/// The lines of a table, for a terminal of `width` columns or, without, in full.
pub(super) fn lines(
    columns: &[Column],
    rows: Vec<Vec<String>>,
    width: Option<u16>,
    colour: bool,
) -> Vec<String> {
    let header = columns.iter().map(|column| column.name.to_uppercase()).collect();
    let clean = |row: Vec<String>| row.iter().map(|cell| on_one_line(cell)).collect();
    let cells: Vec<Vec<String>> = std::iter::once(header).chain(rows.into_iter().map(clean)).collect();
    let cells = match width {
        Some(width) => fitted(columns, cells, width),
        None => cells,
    };
    draw(&cells, colour).lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The table of these cells, the first row being its header.
fn draw(cells: &[Vec<String>], colour: bool) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let mut rows = cells.iter();
    if let Some(header) = rows.next() {
        table.set_header(header.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| match status_color(cell) {
            StatusColor::Good => Cell::new(cell).fg(Color::Green),
            StatusColor::Bad => Cell::new(cell).fg(Color::Red),
            StatusColor::Busy => Cell::new(cell).fg(Color::Yellow),
            StatusColor::Neutral => Cell::new(cell),
        }));
    }
    // Only between columns: inside a colored cell it could not be cut off later.
    let last = cells.first().map_or(0, Vec::len).saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { 2 }));
    }
    table
}

/// Width of each column's content.
fn widths(cells: &[Vec<String>]) -> Vec<u16> {
    draw(cells, false).column_max_content_widths()
}

/// Width of the table, without the padding of the last column.
fn total(widths: &[u16]) -> u16 {
    widths.iter().sum::<u16>() + 2 * u16::try_from(widths.len().saturating_sub(1)).unwrap_or(u16::MAX / 4)
}

/// The cells as they fit `width` columns, as far as that is possible.
fn fitted(columns: &[Column], mut cells: Vec<Vec<String>>, width: u16) -> Vec<Vec<String>> {
    let mut columns = columns.to_vec();
    for at in (0..columns.len()).filter(|at| columns[*at].is_id) {
        shorten_ids(&mut cells, at);
    }
    let over = |cells: &[Vec<String>]| total(&widths(cells)).saturating_sub(width);
    for at in (0..columns.len()).filter(|at| columns[*at].is_cut) {
        let (now, over) = (widths(&cells)[at], over(&cells));
        cut(&mut cells, at, now.saturating_sub(over).max(CUT));
    }
    while over(&cells) > 0
        && let Some(at) = least_wanted(&columns)
    {
        columns.remove(at);
        for row in &mut cells {
            row.remove(at);
        }
    }
    // The widest first, but the first column last: it is what commands take.
    let mut order: Vec<usize> = (1..columns.len()).collect();
    order.sort_by_key(|at| Reverse(widths(&cells)[*at]));
    for at in order.into_iter().chain([0]) {
        let (now, over) = (widths(&cells)[at], over(&cells));
        if over > 0 {
            cut(&mut cells, at, now.saturating_sub(over).max(LEAST));
        }
    }
    cells
}

/// Which column is left out next.
fn least_wanted(columns: &[Column]) -> Option<usize> {
    let ranks = columns.iter().enumerate().filter_map(|(at, column)| Some((column.drop?, at)));
    ranks.max().map(|(_, at)| at)
}

/// Shortens the ids of a column to the shortest prefix length at which they differ.
fn shorten_ids(cells: &mut [Vec<String>], at: usize) {
    let mut ids: Vec<&str> = cells.iter().skip(1).map(|row| &*row[at]).filter(|id| id.len() == 36).collect();
    ids.sort_unstable();
    ids.dedup();
    let tells_apart = |length: &usize| {
        let beginnings: Vec<Option<&str>> = ids.iter().map(|id| id.get(..*length)).collect();
        beginnings.iter().all(Option::is_some) && beginnings.windows(2).all(|pair| pair[0] != pair[1])
    };
    let Some(length) = BEGINNINGS.into_iter().find(tells_apart) else { return };
    for row in cells.iter_mut().skip(1).filter(|row| row[at].len() == 36) {
        row[at].truncate(length);
    }
}

/// Cuts the cells of a column to `width` columns.
fn cut(cells: &mut [Vec<String>], at: usize, width: u16) {
    let is_wide = |text: &str| widths(&[vec![text.to_owned()]])[0] > width;
    for row in cells {
        if is_wide(&row[at]) {
            let mut text = std::mem::take(&mut row[at]);
            while text.pop().is_some() && is_wide(&format!("{text}…")) {}
            row[at] = format!("{}…", text.trim_end());
        }
    }
}

/// Names and values, aligned, one a line.
pub(super) fn fields(fields: &[(&str, String)], colour: bool) -> Vec<String> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        let bold = if colour { format!("\x1b[1m{name}\x1b[0m") } else { (*name).to_owned() };
        format!("{bold}{}  {}", " ".repeat(width - name.len()), on_one_line(value)).trim_end().to_owned()
    };
    fields.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [Column; 5] = [
        Column::of("id").id(),
        Column::of("status"),
        Column::of("name").cut(),
        Column::of("duration").drop(2),
        Column::of("created").drop(1),
    ];

    fn row(id: u32, name: &str) -> Vec<String> {
        let id = format!("0190f3f0-0000-7000-8000-{id:012}");
        vec![id, "completed".into(), name.into(), "10 min 10 s".into(), "59 min ago".into()]
    }

    fn bare(line: &str) -> String {
        let mut inside = false;
        line.chars()
            .filter(|c| match (inside, c) {
                (false, '\x1b') => {
                    inside = true;
                    false
                }
                (true, 'm') => {
                    inside = false;
                    false
                }
                (inside, _) => !inside,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn every_line_fits_and_columns_stay_aligned(
            width in 40_u16..200, colour in any::<bool>(),
            names in prop::collection::vec("[a-z ]{0,60}|[界ü]{0,30}", 1..5)
        ) {
            // Distinct in the last group alone, so that ids cannot be shortened.
            let rows = names.iter().zip(0..).map(|(name, id)| row(id, name)).collect();
            let lines: Vec<String> = lines(&COLUMNS, rows, Some(width), colour).iter().map(|line| bare(line)).collect();
            let cells: Vec<Vec<String>> = lines.iter().map(|line| vec![line.clone()]).collect();
            prop_assert!(widths(&cells)[0] <= width, "{lines:#?}");
            prop_assert!(lines[0].starts_with("ID"));
            let status = lines[0].find("STATUS").expect("it stays");
            prop_assert!(lines[1..].iter().all(|line| line.is_char_boundary(status)));
        }
    }

    #[test]
    fn a_narrow_terminal_gets_less() {
        let mut rows = vec![row(1, "a quite long name of something"), row(2, "b")];
        rows[0][0] = "0190f3f1-0000-7000-8000-000000000001".into();
        let at = |width| lines(&COLUMNS, rows.clone(), Some(width), false);
        assert_eq!(
            at(80),
            [
                "ID             STATUS     NAME                           DURATION     CREATED",
                "0190f3f1-0000  completed  a quite long name of somethi…  10 min 10 s  59 min ago",
                "0190f3f0-0000  completed  b                              10 min 10 s  59 min ago",
            ]
        );
        assert_eq!(
            at(43),
            [
                "ID             STATUS     NAME",
                "0190f3f1-0000  completed  a quite long na…",
                "0190f3f0-0000  completed  b",
            ]
        );
    }

    #[test]
    fn the_widest_column_is_cut_first() {
        let columns = [Column::of("id"), Column::of("status"), Column::of("cargo")];
        let rows = vec![vec!["1".to_owned(), "completed".into(), "qwen2.5-0.5b-instruct".into()]];
        let narrow = lines(&columns, rows, Some(30), false);
        assert_eq!(narrow, ["ID  STATUS     CARGO", "1   completed  qwen2.5-0.5b-i…"]);
    }

    #[test]
    fn no_name_forges_a_row() {
        let rows = vec![vec!["x\nforged  row".to_owned(), "\x1b[2Jy".to_owned()]];
        let columns = [Column::of("a"), Column::of("b")];
        assert_eq!(lines(&columns, rows, None, false), ["A             B", "x forged row  [2Jy"]);
        assert_eq!(fields(&[("Name", "x\nId  forged".to_owned())], false), ["Name  x Id forged"]);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = vec![vec!["1".to_owned(), "failed".to_owned(), "z".to_owned()]];
        let columns = [Column::of("id"), Column::of("status"), Column::of("last")];
        let colored = lines(&columns, rows.clone(), None, true);
        assert!(colored[1].contains("\x1b["), "{colored:?}");
        let stripped: Vec<String> = colored.iter().map(|line| bare(line).trim_end().to_owned()).collect();
        assert_eq!(stripped, lines(&columns, rows, None, false));
    }
}
