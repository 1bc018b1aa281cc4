//! Which rows stay, and in which order.

use std::cmp::Ordering;

use island_cargo::Error;
use serde::Deserialize;

use super::table::Table;

/// What a cell must be.
#[derive(Deserialize)]
pub(crate) struct Condition {
    column: String,
    #[serde(rename = "is")]
    test: Test,
    value: String,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Test {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Contains,
    StartsWith,
    EndsWith,
}

/// By which column rows are sorted.
#[derive(Deserialize)]
pub(crate) struct Order {
    column: String,
    #[serde(default)]
    descending: bool,
}

/// Numbers as numbers, before texts, which are compared as such.
fn compare(a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| !number.is_nan());
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

impl Condition {
    pub(crate) fn keep(&self, table: &mut Table) -> Result<(), Error> {
        let place = table.column(&self.column)?;
        table.rows.retain(|row| self.holds(&row[place]));
        Ok(())
    }

    fn holds(&self, cell: &str) -> bool {
        let order = compare(cell, &self.value);
        match self.test {
            Test::Equal => order.is_eq(),
            Test::NotEqual => order.is_ne(),
            Test::Less => order.is_lt(),
            Test::AtMost => order.is_le(),
            Test::Greater => order.is_gt(),
            Test::AtLeast => order.is_ge(),
            Test::Contains => cell.contains(&self.value),
            Test::StartsWith => cell.starts_with(&self.value),
            Test::EndsWith => cell.ends_with(&self.value),
        }
    }
}

impl Order {
    pub(crate) fn sort(&self, table: &mut Table) -> Result<(), Error> {
        let place = table.column(&self.column)?;
        table.rows.sort_by(|a, b| {
            let order = compare(&a[place], &b[place]);
            if self.descending { order.reverse() } else { order }
        });
        Ok(())
    }
}
