//! The filter `tojson`, as the library that templates are written for defines it: Python's `json.dumps` without escapes for HTML.
//!
//! The renderer's own filter escapes `<`, `>`, `&` and `'`, so that a schema with such a character would differ from what a model was trained with.

use std::fmt::Write as _;

use minijinja::{
    Error, ErrorKind, Value,
    value::{Kwargs, ObjectRepr, Serde, ValueKind},
};

use crate::{bounds::MAX_DEPTH, widths};

/// How values are separated.
struct Style {
    /// Whether characters outside of ASCII are escaped.
    is_ascii: bool,
    /// Text of one level of indentation; `None` writes one line.
    indent: Option<String>,
    /// Text between items.
    between: String,
    /// Text between a key and its value.
    after_key: String,
    /// Whether keys are sorted.
    is_sorted: bool,
}

/// The filter.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let or_named = |given: Option<Value>, name| match given {
        Some(value) => Ok::<_, Error>(Some(value)),
        None => named.get::<Option<Value>>(name),
    };
    let is_ascii = or_named(ensure_ascii, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = or_named(indent, "indent")?.filter(|indent| !indent.is_none());
    let separators = or_named(separators, "separators")?.filter(|separators| !separators.is_none());
    let is_sorted = named.get::<Option<Value>>("sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let indent = indent.map(|indent| level(&indent)).transpose()?;
    let (between, after_key) = match separators {
        Some(pair) => (separator(&pair, 0)?, separator(&pair, 1)?),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = Style { is_ascii, indent, between, after_key, is_sorted };
    let mut text = String::new();
    write(&mut text, &style, value, 0)?;
    Ok(text)
}

/// JSON as the filter writes it without options.
pub(super) fn spaced(value: &serde_json::Value) -> String {
    let style = Style {
        is_ascii: false,
        indent: None,
        between: ", ".to_owned(),
        after_key: ": ".to_owned(),
        is_sorted: false,
    };
    let mut text = String::new();
    match write(&mut text, &style, &Value::from(Serde(value)), 0) {
        Ok(()) => text,
        // Nested more deeply than templates may print.
        Err(_) => value.to_string(),
    }
}

/// The text of one level, given as a text or a number of spaces.
fn level(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        widths::check_indent(text.len() as i128)?;
        return Ok(text.to_owned());
    }
    // `True` is 1 in Python.
    let width = match bool::try_from(indent.clone()) {
        Ok(one) if indent.kind() == ValueKind::Bool => i128::from(one),
        _ => i128::try_from(indent.clone())?,
    };
    widths::check_indent(width)?;
    Ok(" ".repeat(width.max(0) as usize))
}

fn separator(pair: &Value, place: usize) -> Result<String, Error> {
    let item = pair.get_item(&Value::from(place))?;
    let text = item.as_str().ok_or_else(|| unserializable("separators that are not two texts"))?;
    widths::check_indent(text.len() as i128)?;
    Ok(text.to_owned())
}

fn write(text: &mut String, style: &Style, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::OutOfFuel, "a value is nested too deeply"));
    }
    if let Some(string) = value.as_str() {
        write_string(text, style, string);
        return Ok(());
    }
    if let Some(scalar) = scalar(value) {
        text.push_str(&scalar);
        return Ok(());
    }
    let object =
        value.as_object().ok_or_else(|| unserializable("a value that is neither JSON nor a text"))?;
    match object.repr() {
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            let mut is_empty = true;
            text.push('[');
            for item in value.try_iter()? {
                begin_item(text, style, depth + 1, is_empty);
                is_empty = false;
                write(text, style, &item, depth + 1)?;
            }
            end(text, style, depth, is_empty);
            text.push(']');
        }
        ObjectRepr::Map => {
            let pairs = object.try_iter_pairs().into_iter().flatten();
            let mut pairs =
                pairs.map(|(name, item)| Ok((key(&name)?, item))).collect::<Result<Vec<_>, Error>>()?;
            if style.is_sorted {
                pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            text.push('{');
            for (place, (name, item)) in pairs.iter().enumerate() {
                begin_item(text, style, depth + 1, place == 0);
                write_string(text, style, name);
                text.push_str(&style.after_key);
                write(text, style, item, depth + 1)?;
            }
            end(text, style, depth, pairs.is_empty());
            text.push('}');
        }
        _ => return Err(unserializable("a function or a namespace")),
    }
    Ok(())
}

/// A value that has no parts. An undefined one is `null`: the library refuses it, and with it a conversation that other renderers accept.
fn scalar(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Some("null".to_owned()),
        ValueKind::Bool => Some(value.is_true().to_string()),
        ValueKind::Number if value.is_integer() => Some(value.to_string()),
        ValueKind::Number => f64::try_from(value.clone()).ok().map(float),
        _ => None,
    }
}

fn key(name: &Value) -> Result<String, Error> {
    let text = name.as_str().map(str::to_owned).or_else(|| scalar(name));
    text.ok_or_else(|| unserializable("a key that is not a text or a number"))
}

/// A number as Python writes it: the shortest digits that give it again, with an exponent below 0.0001 and from 10^16 on.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{number:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn begin_item(text: &mut String, style: &Style, depth: usize, is_first: bool) {
    if !is_first {
        text.push_str(&style.between);
    }
    new_line(text, style, depth);
}

fn end(text: &mut String, style: &Style, depth: usize, is_empty: bool) {
    if !is_empty {
        new_line(text, style, depth);
    }
}

fn new_line(text: &mut String, style: &Style, depth: usize) {
    if let Some(indent) = &style.indent {
        text.push('\n');
        text.extend(std::iter::repeat_n(indent.as_str(), depth));
    }
}

fn write_string(text: &mut String, style: &Style, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            control if control < ' ' => escape(text, control),
            other if style.is_ascii && !(' '..='~').contains(&other) => escape(text, other),
            other => text.push(other),
        }
    }
    text.push('"');
}

fn escape(text: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        write!(text, "\\u{unit:04x}").expect("a String takes everything");
    }
}

fn unserializable(what: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("tojson does not support {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
