//! Tables and lists of fields.

use comfy_table::{Attribute, Cell, Color, Table, presets};

use super::text::{Mood, mood, on_one_line};

/// The lines of a table.
pub(super) fn lines(header: &[&str], rows: Vec<Vec<String>>, colour: bool) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(header.iter().map(|name| Cell::new(name.to_uppercase()).add_attribute(Attribute::Bold)));
    for row in rows {
        table.add_row(row.iter().map(|cell| {
            let cell = on_one_line(cell);
            match mood(&cell) {
                Mood::Good => Cell::new(cell).fg(Color::Green),
                Mood::Bad => Cell::new(cell).fg(Color::Red),
                Mood::Busy => Cell::new(cell).fg(Color::Yellow),
                Mood::Neutral => Cell::new(cell),
            }
        }));
    }
    // The style pads every cell; the first needs none.
    table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect()
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

    #[test]
    fn no_name_forges_a_row() {
        let rows = vec![vec!["x\nforged  row".to_owned(), "\x1b[2Jy".to_owned()]];
        assert_eq!(lines(&["a", "b"], rows, false), ["A             B", "x forged row  [2Jy"]);
        assert_eq!(fields(&[("Name", "x\nId  forged".to_owned())], false), ["Name  x Id forged"]);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = vec![vec!["1".to_owned(), "failed".to_owned(), "z".to_owned()]];
        let coloured = lines(&["id", "status", "last"], rows.clone(), true);
        assert!(coloured[1].contains("\x1b["), "{coloured:?}");
        let bare = |line: &String| {
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
                .collect::<String>()
        };
        let stripped: Vec<String> = coloured.iter().map(|line| bare(line).trim().to_owned()).collect();
        assert_eq!(stripped, lines(&["id", "status", "last"], rows, false));
    }
}
