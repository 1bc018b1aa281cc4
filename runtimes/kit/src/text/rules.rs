//! Checks of a `tokenizer.json` that the library does not do.
//!
//! Rules by which SentencePiece normalizes texts are a table of 32-bit units behind its length, and texts. The library allocates the length that
//! the first bytes state, before it compares it with what is there. Words of a Unigram model are a tree of their bytes, which the library frees by
//! recursion: a long word overflows the stack.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use crate::error::{EngineError, invalid_model};

/// Name of the field in `tokenizer.json`, in base64.
const FIELD: &str = "precompiled_charsmap";
/// Characters of base64 that contain the length of the table.
const START: usize = 8;
/// Maximum bytes of a word of a Unigram model. Those of known models have less than a hundred.
const MAX_WORD_BYTES: usize = 4 << 10;

/// What is checked. The words are checked while they are read, and not kept.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default, rename = "model")]
    _model: Model,
}

#[derive(Default, Deserialize)]
struct Model {
    #[serde(default, rename = "vocab")]
    _vocabulary: Vocabulary,
}

/// A vocabulary whose words are short enough, if it is the list of a Unigram model. Other models have a map.
#[derive(Default)]
struct Vocabulary;

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Words)
    }
}

/// Reads a vocabulary and keeps nothing of it.
struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("words with numbers, as a list or a map")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Vocabulary, A::Error> {
        while let Some((word, _)) = words.next_element::<(String, IgnoredAny)>()? {
            if word.len() > MAX_WORD_BYTES {
                let bytes = word.len();
                return Err(A::Error::custom(format_args!(
                    "a word of {bytes} bytes is over the limit of {MAX_WORD_BYTES}"
                )));
            }
        }
        Ok(Vocabulary)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut words: A) -> Result<Vocabulary, A::Error> {
        while words.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Vocabulary)
    }
}

/// Checks that rules contain the table that they state.
pub fn check(rules: &[u8]) -> Result<(), EngineError> {
    check_start(rules, rules.len())
}

/// Checks all rules and words of a `tokenizer.json`. One that is not JSON to its end is refused: the library reads the rules before it finds out.
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

    #[test]
    fn a_word_that_would_overflow_the_stack_is_refused() {
        let with = |vocabulary: Value| {
            check_all(serde_json::json!({ "model": { "vocab": vocabulary } }).to_string().as_bytes())
        };
        let word = |bytes: usize| "a".repeat(bytes);
        with(serde_json::json!([["b", 0.0], [word(MAX_WORD_BYTES), -1.5]]))
            .expect("words of a Unigram model");
        with(serde_json::json!([["b", 0.0], [word(MAX_WORD_BYTES + 1), -1.5]])).expect_err("a long word");
        with(serde_json::json!({ word(MAX_WORD_BYTES + 1): 0 })).expect("no tree is made of other models");
        with(serde_json::json!([["b"]])).expect_err("a word without a number");
        check_all(b"{\"model\": {}, \"model\": {}}").expect_err("of two models the library uses one");
    }
}
