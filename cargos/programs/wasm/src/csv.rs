//! Reads, filters, sorts and writes tables.

use std::process::ExitCode;

use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[path = "csv/select.rs"]
mod select;
#[path = "csv/table.rs"]
mod table;

use select::{Condition, Order};
use table::Table;

#[derive(Deserialize)]
struct Input {
    csv: Option<String>,
    rows: Option<Vec<Map<String, Value>>>,
    #[serde(default = "comma")]
    delimiter: char,
    /// Whether the first line names the columns; otherwise they are called column1, column2, ...
    #[serde(default = "yes")]
    header: bool,
    #[serde(default, rename = "where")]
    conditions: Vec<Condition>,
    sort: Option<Order>,
    select: Option<Vec<String>>,
    limit: Option<usize>,
    #[serde(default)]
    to: Format,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Csv,
}

#[derive(Serialize)]
struct Answer {
    columns: Vec<String>,
    count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    csv: Option<String>,
}

fn comma() -> char {
    ','
}

fn yes() -> bool {
    true
}

fn work(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let delimiter = u8::try_from(input.delimiter).ok().filter(u8::is_ascii);
    let delimiter = delimiter.ok_or_else(|| Error::invalid("delimiter is one ASCII character"))?;
    let mut table = match (input.csv, input.rows) {
        (Some(csv), None) => Table::read(&csv, delimiter, input.header)?,
        (None, Some(rows)) => Table::from_rows(&rows),
        _ => return Err(Error::invalid("give either csv or rows")),
    };
    for condition in &input.conditions {
        condition.keep(&mut table)?;
    }
    if let Some(order) = &input.sort {
        order.sort(&mut table)?;
    }
    table.rows.truncate(input.limit.unwrap_or(usize::MAX));
    if let Some(columns) = &input.select {
        table.select(columns)?;
    }
    let (rows, csv) = match input.to {
        Format::Json => (Some(table.to_rows()), None),
        Format::Csv => (None, Some(table.write(delimiter)?)),
    };
    Ok(Answer { count: table.rows.len(), columns: table.columns, rows, csv })
}

fn main() -> ExitCode {
    run(work)
}
