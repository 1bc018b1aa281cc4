//! Reads JSON text of which the end may be missing.

use std::fmt::Write as _;

/// A value at the beginning of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned<'t> {
    /// The value without white space outside strings, as far as it was read. More text only extends it.
    pub compact: String,
    /// What follows the value; `None` if its end is missing.
    pub rest: Option<&'t str>,
}

/// Reads the value at the beginning of a text. Brackets are matched; names and numbers are not checked. Control characters in strings, which
/// models write although JSON does not allow them, are escaped. A bracket that does not match ends the reading as a missing end does.
pub(super) fn scan(text: &str) -> Scanned<'_> {
    let text = text.trim_start();
    let mut compact = String::new();
    let mut open = Vec::new();
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if in_string {
            let ends = c == '"' && !is_escaped;
            push_in_string(&mut compact, c, is_escaped);
            is_escaped = c == '\\' && !is_escaped;
            in_string = !ends;
            if ends && open.is_empty() {
                return Scanned { compact, rest: Some(&text[at + 1..]) };
            }
            continue;
        }
        let ends_scalar = matches!(c, ',' | '}' | ']') || c.is_whitespace();
        if open.is_empty() && ends_scalar {
            let rest = (!compact.is_empty()).then(|| &text[at..]);
            return Scanned { compact, rest };
        }
        match c {
            '{' => open.push('}'),
            '[' => open.push(']'),
            '"' => in_string = true,
            '}' | ']' if open.pop() != Some(c) => return Scanned { compact, rest: None },
            _ => {}
        }
        if !c.is_whitespace() {
            compact.push(c);
        }
        if open.is_empty() && matches!(c, '}' | ']') {
            return Scanned { compact, rest: Some(&text[at + 1..]) };
        }
    }
    Scanned { compact, rest: None }
}

fn push_in_string(compact: &mut String, c: char, is_escaped: bool) {
    match c {
        '\n' if is_escaped => compact.push('n'),
        '\n' => compact.push_str("\\n"),
        '\t' => compact.push_str("\\t"),
        // Writing to a string cannot fail.
        c if c.is_control() => {
            let _ = write!(compact, "\\u{:04x}", u32::from(c));
        }
        c => compact.push(c),
    }
}

/// The members of an object at the beginning of a text, which begins with its bracket.
pub(super) struct Members<'t> {
    rest: &'t str,
    /// What follows the object, once its end was read.
    after: Option<&'t str>,
}

impl<'t> Members<'t> {
    /// `None` if the text is not an object.
    pub(super) fn of(text: &'t str) -> Option<Self> {
        Some(Self { rest: text.trim_start().strip_prefix('{')?, after: None })
    }

    /// What follows the object; `None` if its end was not read.
    pub(super) fn after(self) -> Option<&'t str> {
        self.after
    }
}

impl<'t> Iterator for Members<'t> {
    /// The name, as JSON, and the value, whose end may be missing.
    type Item = (String, Scanned<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest).trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            self.after = Some(after);
            return None;
        }
        let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        if !rest.starts_with('"') {
            return None;
        }
        let name = scan(rest);
        let value = scan(name.rest?.trim_start().strip_prefix(':')?);
        self.rest = value.rest.unwrap_or_default();
        Some((name.compact, value))
    }
}

/// A text as a JSON string, without the last quote.
pub(super) fn open_string(text: &str) -> String {
    let mut string = serde_json::Value::from(text).to_string();
    string.pop();
    string
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn values_end_where_their_brackets_close() {
        let done = |text: &str| {
            let scanned = scan(text);
            (scanned.compact, scanned.rest.map(str::to_owned))
        };
        assert_eq!(
            done(" {\"a\" : [1, \"b \\\" }\"]} x"),
            ("{\"a\":[1,\"b \\\" }\"]}".into(), Some(" x".into()))
        );
        assert_eq!(done("12, 3"), ("12".into(), Some(", 3".into())));
        assert_eq!(done("\"a\\\\\"b"), ("\"a\\\\\"".into(), Some("b".into())));
        assert_eq!(done("{\"a\": tr"), ("{\"a\":tr".into(), None));
        assert_eq!(done("{\"a\": ]}"), ("{\"a\":".into(), None));
        assert_eq!(done("\"a\nb\tc\u{1}\""), ("\"a\\nb\\tc\\u0001\"".into(), Some(String::new())));
        assert_eq!(done("}"), (String::new(), None));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~é\\n\\t\"\\\\]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\" ]{0,4}", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_compacted_and_every_beginning_extends_to_it(value in any_json()) {
            let pretty = format!("{value:#} ");
            let whole = scan(&pretty);
            prop_assert_eq!(whole.rest.map(str::trim), Some(""));
            prop_assert_eq!(serde_json::from_str::<Value>(&whole.compact).expect("JSON"), value.clone());
            prop_assert_eq!(&whole.compact, &value.to_string());
            for (at, _) in pretty.char_indices() {
                prop_assert!(whole.compact.starts_with(&scan(&pretty[..at]).compact));
            }
        }
    }
}
