//! A table of texts.

use csv::{ReaderBuilder, WriterBuilder};
use island_cargo::{Error, OrInvalid};
use serde_json::{Map, Value};

/// Columns, and as many cells in each row.
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn read(csv: &str, delimiter: u8, header: bool) -> Result<Self, Error> {
        let mut reader =
            ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(csv.as_bytes());
        let records: Result<Vec<_>, _> = reader.records().collect();
        let mut rows: Vec<Vec<String>> =
            records.or_invalid("csv")?.iter().map(|row| row.iter().map(str::to_owned).collect()).collect();
        let columns = if header && !rows.is_empty() {
            rows.remove(0)
        } else {
            (1..=rows.first().map_or(0, Vec::len)).map(|number| format!("column{number}")).collect()
        };
        Ok(Self { columns, rows })
    }

    /// The columns are the keys of all rows, in the order in which they appear.
    pub(crate) fn from_rows(rows: &[Map<String, Value>]) -> Self {
        let mut columns = Map::new();
        for key in rows.iter().flat_map(Map::keys) {
            columns.insert(key.clone(), Value::Null);
        }
        let columns: Vec<String> = columns.into_iter().map(|(key, _)| key).collect();
        let cell = |value: Option<&Value>| match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let rows = rows.iter().map(|row| columns.iter().map(|key| cell(row.get(key))).collect()).collect();
        Self { columns, rows }
    }

    pub(crate) fn column(&self, name: &str) -> Result<usize, Error> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            Error::invalid(format!("there is no column {name:?}, only {}", self.columns.join(", ")))
        })
    }

    pub(crate) fn select(&mut self, names: &[String]) -> Result<(), Error> {
        let places = names.iter().map(|name| self.column(name)).collect::<Result<Vec<usize>, Error>>()?;
        for row in &mut self.rows {
            *row = places.iter().map(|place| row[*place].clone()).collect();
        }
        self.columns = names.to_vec();
        Ok(())
    }

    pub(crate) fn to_rows(&self) -> Vec<Map<String, Value>> {
        let pairs = |row: &Vec<String>| {
            self.columns.iter().cloned().zip(row.iter().map(|cell| Value::from(cell.as_str()))).collect()
        };
        self.rows.iter().map(pairs).collect()
    }

    pub(crate) fn write(&self, delimiter: u8) -> Result<String, Error> {
        let mut writer = WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            writer.write_record(row)?;
        }
        let bytes = writer.into_inner().map_err(|error| Error::failed(error.error()))?;
        Ok(String::from_utf8(bytes)?)
    }
}
