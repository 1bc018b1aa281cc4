//! Arguments of calls in a conversation. Templates need an object; clients send the text that they received, which is not JSON where a limit cut the call or
//! where the model wrote it so.

use serde_json::{Value, json};

/// The arguments that a text has. One that was cut is completed; any other text that is not JSON becomes the value of a name that states so.
pub(crate) fn arguments(text: &str) -> Value {
    let text = text.trim();
    // Of a function without parameters.
    if text.is_empty() || text == "null" {
        return json!({});
    }
    let whole = serde_json::from_str(text).ok();
    whole.or_else(|| completed(text)).unwrap_or_else(|| json!({ "invalid_json": text }))
}

/// The value of which a text is the beginning.
fn completed(text: &str) -> Option<Value> {
    let mut closing = Vec::new();
    let (mut in_text, mut is_escaped) = (false, false);
    for character in text.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            '{' if !in_text => closing.push('}'),
            '[' if !in_text => closing.push(']'),
            '}' | ']' if !in_text => {
                closing.pop();
            }
            _ => {}
        }
    }
    let mut begun = text.to_owned();
    if is_escaped {
        begun.pop();
    }
    if in_text {
        begun.push('"');
    }
    let begun = begun.trim_end().trim_end_matches(',');
    let closing: String = closing.iter().rev().collect();
    // It may end behind a value, behind the colon before one, or behind a name.
    let ends = ["", "null", ":null"];
    ends.iter().find_map(|end| serde_json::from_str(&format!("{begun}{end}{closing}")).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_become_objects() {
        for (text, expected) in [
            ("", json!({})),
            (" null ", json!({})),
            ("{\"a\": 1}", json!({"a": 1})),
            ("{\"a\": \"x y", json!({"a": "x y"})),
            ("{\"a\": \"x\\", json!({"a": "x"})),
            ("{\"a\": [1, {\"b\": 2},", json!({"a": [1, {"b": 2}]})),
            ("{\"a\":", json!({"a": null})),
            ("{\"a\"", json!({"a": null})),
            ("{\"a\": 1, \"b", json!({"a": 1, "b": null})),
            ("{\"path\": /tmp}", json!({"invalid_json": "{\"path\": /tmp}"})),
            ("not json", json!({"invalid_json": "not json"})),
        ] {
            assert_eq!(arguments(text), expected, "{text}");
        }
    }

    proptest! {
        /// Whatever a limit cuts off, the template gets an object, and a text in it is a beginning of the one that was meant.
        #[test]
        fn a_cut_call_is_an_object(value in "[a-z \"\\\\{}\\[\\],:é]{0,20}", cut in 0_usize..60) {
            let whole = json!({"name": value, "list": [1, [true, null]]}).to_string();
            let cut = (0..=cut.min(whole.len())).rev().find(|&cut| whole.is_char_boundary(cut)).unwrap_or(0);
            let found = arguments(&whole[..cut]);
            prop_assert!(found.is_object(), "{found}");
            if let Some(text) = found.get("name").and_then(Value::as_str) {
                prop_assert!(value.starts_with(text), "{text}");
            }
        }
    }
}
