//! Spreadsheets as rows: xlsx, xls, xlsb, ods.

use std::io::Cursor;

use calamine::{Data, Range, Reader, open_workbook_auto_from_rs};
use island_cargo::{Blob, Error, OrInvalid, Output};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Deserialize)]
pub(crate) struct Input {
    xlsx: Blob,
    /// All where it is missing.
    sheet: Option<String>,
    /// Whether the first row names the columns.
    #[serde(default)]
    header: bool,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    sheets: Vec<Sheet>,
}

#[derive(Serialize)]
struct Sheet {
    name: String,
    /// Lists of cells, or objects where the first row names the columns.
    rows: Vec<Value>,
}

fn value(cell: &Data) -> Value {
    match cell {
        Data::Empty => Value::Null,
        Data::Bool(truth) => (*truth).into(),
        Data::Int(number) => (*number).into(),
        Data::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => (*number as i64).into(),
        Data::Float(number) => (*number).into(),
        // The number of a date has no meaning without the workbook's calendar.
        Data::DateTime(time) if time.is_datetime() => {
            let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}").into()
        }
        other => other.to_string().into(),
    }
}

fn rows(cells: &Range<Data>, header: bool) -> Vec<Value> {
    let mut rows = cells.rows().map(|row| row.iter().map(value).collect::<Vec<Value>>());
    if !header {
        return rows.map(Value::Array).collect();
    }
    let name = |(number, cell): (usize, &Value)| match cell {
        Value::String(name) if !name.is_empty() => name.clone(),
        Value::Null | Value::String(_) => format!("column{}", number + 1),
        other => other.to_string(),
    };
    let names: Vec<String> = rows.next().unwrap_or_default().iter().enumerate().map(name).collect();
    rows.map(|row| names.iter().cloned().zip(row).collect::<Map<_, _>>().into()).collect()
}

pub(crate) fn parse(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let mut book = open_workbook_auto_from_rs(Cursor::new(input.xlsx.0)).or_invalid("xlsx")?;
    let all = book.sheet_names();
    let names = match input.sheet {
        Some(name) if !all.contains(&name) => {
            return Err(Error::invalid(format!("there is no sheet {name:?}, only {}", all.join(", "))));
        }
        Some(name) => vec![name],
        None => all,
    };
    let mut sheets = Vec::new();
    for name in names {
        let cells = book.worksheet_range(&name).or_invalid("xlsx")?;
        sheets.push(Sheet { rows: rows(&cells, input.header), name });
    }
    Ok(Answer { sheets })
}
