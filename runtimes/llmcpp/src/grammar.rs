//! Replies that must match a JSON Schema: the schema is converted to a grammar, and only tokens that it allows are chosen.

use island_protocol::job::{Failure, FailureCode};
use llama_cpp_2::{json_schema_to_grammar, sampling::LlamaSampler};
use serde_json::Value;

use crate::model::Model;

/// Maximum bytes of a schema.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Maximum levels of nesting: llama.cpp's converter and its grammar both recurse.
const MAX_DEPTH: usize = 32;
/// Maximum bytes of the grammar; a few bounded repetitions can make it large.
const MAX_GRAMMAR_BYTES: usize = 1 << 20;

/// A schema that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The schema or its grammar is too long or nested too deeply.
    #[error("the JSON Schema is too large")]
    Limit,
    /// llama.cpp cannot convert it.
    #[error(
        "no grammar can be made of the JSON Schema; remote references and some patterns are not supported"
    )]
    Unsupported,
}

impl From<GrammarError> for Failure {
    fn from(error: GrammarError) -> Self {
        Self::of_job(FailureCode::InvalidInput, error.to_string())
    }
}

/// Creates a sampler that allows only replies which match `schema`.
pub fn for_schema(model: &Model, schema: &Value) -> Result<LlamaSampler, GrammarError> {
    let text = schema.to_string();
    if text.len() > MAX_SCHEMA_BYTES || depth(schema) > MAX_DEPTH {
        return Err(GrammarError::Limit);
    }
    let grammar = json_schema_to_grammar(&text).map_err(|_| GrammarError::Unsupported)?;
    if grammar.len() > MAX_GRAMMAR_BYTES {
        return Err(GrammarError::Limit);
    }
    LlamaSampler::grammar(&model.llama, &tight(&grammar), "root").map_err(|_| GrammarError::Unsupported)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
