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
        ("title", Some(whole)) if args.is_empty() => return Ok(title(whole).into()),
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// Every letter that follows another is lower case, all others are upper case. The renderer's method begins words at white space only.
fn title(text: &str) -> String {
    let mut in_word = false;
    let mut titled = String::new();
    for letter in text.chars() {
        if in_word {
            titled.extend(letter.to_lowercase());
        } else {
            titled.extend(letter.to_uppercase());
        }
        in_word = letter.is_lowercase() || letter.is_uppercase();
    }
    titled
}

/// The filter `format`.
pub(super) fn format(state: &mut State, text: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let given: Vec<Value> = args.iter().cloned().map(ValueOrKwargs::into_value).collect();
    check_format(text.as_str().unwrap_or_default(), &given)?;
    filters::format(state, text, args)
}

/// The filter `indent`. Unlike the renderer's own, it keeps a line break at the end, as the library does.
pub(super) fn indent(
    text: StringInput<'_>,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<String, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => named.get::<Option<Value>>("width")?,
    };
    let first = first.or(named.get("first")?).unwrap_or(false);
    let blank = blank.or(named.get("blank")?).unwrap_or(false);
    named.assert_all_used()?;
    let lines: Vec<&str> =
        text.as_str().split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let indentation = match width {
        None => "    ".to_owned(),
        Some(width) => {
            if let Some(indentation) = width.as_str() {
                indentation.to_owned()
            } else {
                let width = u64::try_from(i128::try_from(width)?.max(0)).unwrap_or(u64::MAX);
                check(width, lines.len())?;
                " ".repeat(width as usize)
            }
        }
    };
    check(indentation.len() as u64, lines.len())?;
    let mut indented = String::new();
    for (place, line) in lines.iter().enumerate() {
        let is_first = place == 0;
        if !is_first {
            indented.push('\n');
        }
        if if is_first { first } else { blank || !line.is_empty() } {
            indented.push_str(&indentation);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Checks the indentation of JSON, or the length of what separates its values.
pub(super) fn check_indent(width: i128) -> Result<(), Error> {
    if width > MAX_INDENT { Err(too_wide()) } else { Ok(()) }
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
