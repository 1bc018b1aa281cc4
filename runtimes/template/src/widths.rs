//! Filters and methods whose result is not limited by the size of their operands: they pad to any width, or repeat a text. The result is
//! allocated at once, so that neither fuel nor the checks of values limit it.

use minijinja::{
    Error, ErrorKind, State, Value, filters,
    value::{Kwargs, Rest, StringInput, ValueOrKwargs},
};

use crate::{MAX_ADDED_BYTES, MAX_PRODUCED_BYTES};

/// Maximum indentation of JSON, for each level of each line.
const MAX_INDENT: i128 = 64;

/// Python's methods of values.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let text = |place: usize| args.get(place).and_then(Value::as_str).unwrap_or_default();
    match (name, value.as_str()) {
        ("format", Some(format)) => check_format(format, args)?,
        ("replace", Some(whole)) => check_replace(whole, text(0), text(1))?,
        ("join", Some(separator)) => check_join(args.first().unwrap_or(value), separator.len())?,
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// The filter `format`.
pub(super) fn format(state: &mut State, text: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let given: Vec<Value> = args.iter().cloned().map(ValueOrKwargs::into_value).collect();
    check_format(text.as_str().unwrap_or_default(), &given)?;
    filters::format(state, text, args)
}

/// The filter `indent`.
pub(super) fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    others: Kwargs,
) -> Result<Value, Error> {
    let named = others.peek::<Option<usize>>("width").unwrap_or_default();
    let lines = text.as_str().lines().count();
    check(width.or(named).unwrap_or(0) as u64, lines)?;
    filters::indent(text, width, first, blank, others)
}

/// The filter `tojson`.
pub(super) fn tojson(value: &Value, indent: Option<Value>, others: Kwargs) -> Result<Value, Error> {
    let named = others.peek::<Option<Value>>("indent").unwrap_or_default();
    let indent = indent.filter(|indent| !indent.is_none());
    let width = indent.clone().or(named).and_then(|indent| i128::try_from(indent).ok()).unwrap_or(0);
    if width > MAX_INDENT {
        return Err(too_wide());
    }
    filters::tojson(value, indent, others)
}

/// The filter `join`.
pub(super) fn join(
    state: &mut State,
    value: &Value,
    separator: Option<StringInput<'_>>,
    attribute: Option<&str>,
    others: Kwargs,
) -> Result<Value, Error> {
    let named = others.args().filter_map(|name| others.peek::<&str>(name).ok()).map(str::len).max();
    let own = separator.as_ref().map(|separator| separator.as_str().len());
    check_join(value, own.max(named).unwrap_or(0))?;
    filters::join(state, value, separator, attribute, others)
}

/// The filter `replace`.
pub(super) fn replace(
    state: &mut State,
    value: StringInput<'_>,
    from: StringInput<'_>,
    to: StringInput<'_>,
) -> Result<Value, Error> {
    check_replace(value.as_str(), from.as_str(), to.as_str())?;
    filters::replace(state, value, from, to)
}

/// The filter `batch`.
pub(super) fn batch(state: &State, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    check(count as u64, 1)?;
    filters::batch(state, value, count, fill)
}

/// The filter `slice`.
pub(super) fn slice(state: &State, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    check(count as u64, 1)?;
    filters::slice(state, value, count, fill)
}

fn check_join(value: &Value, separator: usize) -> Result<(), Error> {
    check_repeated(separator, value.len().unwrap_or(0))
}

fn check_replace(text: &str, from: &str, to: &str) -> Result<(), Error> {
    check_repeated(to.len(), text.matches(from).count())
}

/// A text that occurs `times` times in the result.
fn check_repeated(length: usize, times: usize) -> Result<(), Error> {
    if length.saturating_mul(times) > MAX_PRODUCED_BYTES {
        return Err(Error::new(
            ErrorKind::OutOfFuel,
            "a text is repeated more often than a prompt may have it",
        ));
    }
    Ok(())
}

/// Widths are numbers in the text, or arguments: all numbers count, because padding is all that they can be used for at such a size.
fn check_format(text: &str, args: &[Value]) -> Result<(), Error> {
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let written = digits.map(|digits| digits.parse().unwrap_or(u64::MAX));
    let is_given = text.contains('*') || text.contains(":{") || text.contains(".{");
    let given = args.iter().filter(|_| is_given).filter_map(|arg| i128::try_from(arg.clone()).ok());
    let given = given.map(|number| number.unsigned_abs().try_into().unwrap_or(u64::MAX));
    let places = text.bytes().filter(|byte| b"%{".contains(byte)).count();
    let longest = args.iter().filter_map(Value::as_str).map(str::len).max();
    check_repeated(longest.unwrap_or(0), places)?;
    check(written.chain(given).max().unwrap_or(0), places)
}

fn check(width: u64, times: usize) -> Result<(), Error> {
    if width.saturating_mul(times as u64) > MAX_ADDED_BYTES as u64 {
        return Err(too_wide());
    }
    Ok(())
}

fn too_wide() -> Error {
    Error::new(ErrorKind::OutOfFuel, "a text is padded to more than a prompt may have")
}
