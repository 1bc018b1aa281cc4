//! Answers as CSV (RFC 4180).

use axum::http::{HeaderName, HeaderValue, header};
use csv::Writer;
use island_protocol_api::problem::Code;

use crate::{ApiError, http::query::Query};

/// Whether the query requests CSV instead of JSON.
pub(crate) fn is_requested(query: &Query) -> Result<bool, ApiError> {
    match query.get("format") {
        None | Some("json") => Ok(false),
        Some("csv") => Ok(true),
        Some(_) => Err(ApiError::field(Code::ValidationError, "format", "format must be json or csv")),
    }
}

/// The headers of an answer.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 2] {
    [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"island.csv\"")),
    ]
}

/// Lines of CSV.
pub(crate) fn lines<const N: usize>(
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<Vec<u8>, csv::Error> {
    let mut writer = Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row)?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

/// Text from outside, which a spreadsheet must not execute as a formula.
pub(crate) fn text(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_quoted_and_is_no_formula() {
        let written =
            lines([[text("=1+1"), text("a, \"b\"\n")], ["-0.5".to_owned(), text("")]]).expect("written");
        assert_eq!(String::from_utf8(written).expect("text"), "'=1+1,\"a, \"\"b\"\"\n\"\n-0.5,\n");
    }
}
