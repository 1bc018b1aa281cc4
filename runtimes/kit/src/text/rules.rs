//! Rules by which SentencePiece normalizes texts: a table of 32-bit units behind its length, and texts.
//!
//! The library that reads them allocates the length that the first bytes state, before it compares it with what is there.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{EngineError, invalid_model};

/// Name of the field in `tokenizer.json`, in base64.
const FIELD: &str = "precompiled_charsmap";
/// Characters of base64 that contain the length of the table.
const START: usize = 8;

#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    normalizer: Value,
}

/// Checks that rules contain the table that they state.
pub fn check(rules: &[u8]) -> Result<(), EngineError> {
    check_start(rules, rules.len())
}

/// Checks all rules of a `tokenizer.json`. One that is not JSON to its end is refused: the library reads the rules before it finds out.
pub(crate) fn check_all(tokenizer: &[u8]) -> Result<(), EngineError> {
    let outline = serde_json::from_slice::<Outline>(tokenizer);
    check_inside(&outline.map_err(|error| invalid_model("invalid tokenizer.json").because(error))?.normalizer)
}

fn check_inside(value: &Value) -> Result<(), EngineError> {
    match value {
        Value::Array(values) => values.iter().try_for_each(check_inside),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match value.as_str() {
            Some(text) if name == FIELD => {
                let start = text.get(..START).and_then(|start| BASE64.decode(start).ok()).unwrap_or_default();
                check_start(&start, text.len() / 4 * 3)
            }
            _ => check_inside(value),
        }),
        _ => Ok(()),
    }
}

fn check_start(start: &[u8], length: usize) -> Result<(), EngineError> {
    let Some(&bytes) = start.first_chunk() else { return Ok(()) };
    let stated = u32::from_le_bytes(bytes);
    if stated as usize > length - bytes.len() {
        return Err(invalid_model(format!("rules of {length} bytes state a table of {stated} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_there_is_refused() {
        let mut rules = 8_u32.to_le_bytes().to_vec();
        rules.extend([0; 8]);
        check(&rules).expect("the table is there");
        check(b"").expect("no rules");
        rules[3] = 0x80;
        check(&rules).expect_err("two gigabytes");
        let inside = |rules: &[u8]| {
            let one = serde_json::json!({ "type": "Precompiled", FIELD: BASE64.encode(rules) });
            check_all(serde_json::json!({ "normalizer": { "normalizers": [one] } }).to_string().as_bytes())
        };
        inside(&rules).expect_err("two gigabytes");
        check_all(b"{\"normalizer\":null").expect_err("it is cut off");
        rules[3] = 0;
        inside(&rules).expect("the table is there");
    }
}
