//! Replies that must match a JSON Schema: the schema is converted to a grammar, and only tokens that it allows are chosen.

use island_protocol::job::{Failure, FailureCode};
use llama_cpp_2::{json_schema_to_grammar, sampling::LlamaSampler, token::LlamaToken};
use serde_json::{Value, json};

use crate::model::Model;

/// Maximum bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Maximum levels of nesting: llama.cpp's converter and its grammar both recurse.
const MAX_DEPTH: usize = 32;
/// Maximum bytes of the name of a property, and of a reference: the converter matches them with regular expressions that recurse for each character,
/// some 300 bytes of the stack each.
const MAX_NAME_BYTES: usize = 1 << 10;
/// Maximum bytes of the grammar; a few bounded repetitions can make it large.
const MAX_GRAMMAR_BYTES: usize = 1 << 20;

/// A schema that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The schema, a name in it or its grammar is too long, or it is nested too deeply.
    #[error("the JSON Schema is too large")]
    Limit,
    /// llama.cpp cannot convert it.
    #[error(
        "no grammar can be made of the JSON Schema; remote references and some patterns are not supported"
    )]
    Unsupported,
    /// The text that an earlier attempt delivered is not the beginning of a reply that the grammar allows.
    #[error("the delivered text does not have the required form")]
    Delivered,
}

impl From<GrammarError> for Failure {
    fn from(error: GrammarError) -> Self {
        let message = error.to_string();
        match error {
            GrammarError::Limit | GrammarError::Unsupported => {
                Self::of_job(FailureCode::InvalidInput, message)
            }
            // An Island is at fault, not who asked.
            GrammarError::Delivered => Self::of_host(FailureCode::InternalError, message),
        }
    }
}

/// Creates a sampler that allows only replies which match `schema`.
pub fn for_schema(model: &Model, schema: &Value) -> Result<LlamaSampler, GrammarError> {
    let grammar = grammar(schema)?;
    LlamaSampler::grammar(&model.llama, &grammar, "root").map_err(|_| GrammarError::Unsupported)
}

/// Moves a grammar behind a text that was delivered, so that it allows only what completes that text.
///
/// The text is taken byte by byte: other tokens may have written it than those into which a tokenizer divides it, which may even begin with a space.
pub fn advance(grammar: &mut LlamaSampler, model: &Model, text: &str) -> Result<(), GrammarError> {
    if text.is_empty() {
        return Ok(());
    }
    let tokens = byte_tokens(model);
    for byte in text.bytes() {
        let token = tokens[usize::from(byte)].ok_or(GrammarError::Delivered)?;
        grammar.try_accept(token).map_err(|_| GrammarError::Delivered)?;
    }
    Ok(())
}

/// A token for each byte. Vocabularies have all of them, so that any text can be written.
fn byte_tokens(model: &Model) -> [Option<LlamaToken>; 256] {
    let vocab = model.llama.vocab();
    let mut tokens = [None; 256];
    for (token, piece) in model.llama.tokens(false) {
        if let &[byte] = piece.as_slice()
            && !vocab.is_eog(token)
        {
            tokens[usize::from(byte)].get_or_insert(token);
        }
    }
    tokens
}

/// The grammar of all texts that match `schema`, in llama.cpp's form of GBNF, at most 1 MiB.
pub fn grammar(schema: &Value) -> Result<String, GrammarError> {
    let text = schema.to_string();
    if text.len() > MAX_SCHEMA_BYTES || depth(schema) > MAX_DEPTH || longest_name(schema) > MAX_NAME_BYTES {
        return Err(GrammarError::Limit);
    }
    if !patterns(schema).all(is_supported) {
        return Err(GrammarError::Unsupported);
    }
    let grammar = json_schema_to_grammar(&text).map_err(|_| GrammarError::Unsupported)?;
    if grammar.len() > MAX_GRAMMAR_BYTES {
        return Err(GrammarError::Limit);
    }
    Ok(tight(&grammar))
}

/// The grammar with at most one space where JSON allows any number: weak models would fill the reply with spaces.
fn tight(grammar: &str) -> String {
    let rule = |line| if str::starts_with(line, "space ::=") { "space ::= | \" \"" } else { line };
    grammar.lines().map(rule).collect::<Vec<_>>().join("\n")
}

fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        match value {
            Value::Array(list) => open.extend(list.iter().map(|value| (value, level + 1))),
            Value::Object(map) => open.extend(map.values().map(|value| (value, level + 1))),
            _ => {}
        }
    }
    deepest
}

/// The regular expressions of a schema.
fn patterns(schema: &Value) -> impl Iterator<Item = &str> {
    let mut open = vec![schema];
    std::iter::from_fn(move || {
        loop {
            match open.pop()? {
                Value::Array(list) => open.extend(list),
                Value::Object(map) => {
                    open.extend(map.values().filter(|value| !value.is_string()));
                    if let Some(Value::String(pattern)) = map.get("pattern") {
                        return Some(pattern.as_str());
                    }
                }
                _ => {}
            }
        }
    })
}

/// Whether a regular expression can be a grammar. In a schema the converter replaces one that cannot by any text, without an error.
fn is_supported(pattern: &str) -> bool {
    let alone = json!({ "type": "string", "pattern": pattern }).to_string();
    json_schema_to_grammar(&alone).is_ok_and(|grammar| !grammar.lines().any(|line| line == "root ::= string"))
}

/// Bytes of the longest name of a property, or reference.
fn longest_name(value: &Value) -> usize {
    let mut longest = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(list) => open.extend(list),
            Value::Object(map) => {
                for (name, value) in map {
                    longest = longest.max(name.len());
                    if name == "$ref" {
                        longest = longest.max(value.as_str().map_or(0, str::len));
                    }
                    open.push(value);
                }
            }
            _ => {}
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_would_not_be_enforced_are_rejected() {
        let of = |pattern: &str| json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": pattern } } });
        for good in ["^a+$", "^[A-Z]{2,4}-(x|y)?$"] {
            assert!(grammar(&of(good)).is_ok(), "{good}");
        }
        for bad in ["a+", r"^\d+$", "^(?=a)b$", "^a{18446744073709551615,4}$"] {
            assert_eq!(grammar(&of(bad)), Err(GrammarError::Unsupported), "{bad}");
        }
    }

    #[test]
    fn long_names_are_rejected_before_the_converter_recurses() {
        let of = |name: String| json!({ "type": "object", "properties": { name: { "type": "string" } } });
        for (length, is_accepted) in [(MAX_NAME_BYTES, true), (MAX_NAME_BYTES + 1, false), (30_000, false)] {
            assert_eq!(grammar(&of("{".repeat(length))).is_ok(), is_accepted, "{length}");
        }
        let reference = json!({ "$ref": format!("#/{}", "{".repeat(30_000)) });
        assert_eq!(grammar(&reference), Err(GrammarError::Limit));
        let mut nested = json!({ "type": "string" });
        for _ in 0..(MAX_DEPTH / 2 - 1) {
            nested = json!({ "type": "object", "properties": { "{".repeat(MAX_NAME_BYTES): nested } });
        }
        grammar(&nested).expect("each name is short enough");
    }

    #[test]
    fn white_space_is_limited() {
        let grammar = json_schema_to_grammar(r#"{"type": "object"}"#).expect("a grammar");
        assert_eq!(grammar.matches("\nspace ::=").count(), 1, "{grammar}");
        assert!(tight(&grammar).lines().any(|line| line == "space ::= | \" \""));
    }

    #[test]
    fn depth_counts_levels() {
        assert_eq!(depth(&json!(1)), 1);
        assert_eq!(depth(&json!({"a": [{"b": 1}], "c": 2})), 4);
    }
}
