//! Evaluation of schemas whose authors are not trusted: in linear time, and in a limited number of steps.
//!
//! Patterns have no backtracking. The steps of an evaluation are counted beforehand, on the schema and the value alone, so
//! the same value is refused on every machine.

use jsonschema::{PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

/// Maximum steps of the evaluation of an input or an example, and of an output, which is checked between messages of Islands.
pub(crate) const INPUT_STEPS: u64 = 8_000_000;
pub(crate) const OUTPUT_STEPS: u64 = 2_000_000;
/// Maximum steps of an evaluation whose errors are collected: each takes memory.
const EXPLAINED_STEPS: u64 = 200_000;
/// Maximum patterns of a published schema, and bytes of each after it was compiled and of the states that it remembers.
const MAX_PATTERNS: usize = 32;
const PATTERN_BYTES: usize = 16 << 10;
const CACHE_BYTES: usize = 256 << 10;
/// Steps of a pattern for each byte of a text, all of whose states may be active: the largest pattern takes about 1.3 µs for each.
const STEPS_PER_BYTE: usize = 16;
/// Bytes that are counted or hashed in one step.
const BYTES_PER_STEP: usize = 16;
/// Keywords that refer to other schemas, or evaluate others again. The time of those that do it twice doubles with each.
const REPEATING: [&str; 5] =
    ["$ref", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"];

/// Compiles a schema of the operator. The error is why it cannot be.
pub(super) fn compiled(schema: &Value) -> Result<Validator, String> {
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| reason(&error))
}

/// Compiles a schema of an account. The error is why it cannot be.
pub(super) fn compiled_bounded(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(CACHE_BYTES);
    // Drafts differ in whether formats are checked, and some of these take long.
    let options = jsonschema::options().with_pattern_options(patterns).should_validate_formats(false);
    options.build(schema).map_err(|error| reason(&error))
}

fn reason(error: &ValidationError<'_>) -> String {
    let why = match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => {
            "; a pattern has no look-around and no back-references, and long repetitions belong in maxLength"
        }
        _ => "",
    };
    format!("{error}{why}")
}

/// Why a schema of an account cannot be evaluated in a limited number of steps.
pub(super) fn unbounded(schema: &Value) -> Option<String> {
    if let Some(keyword) = repeating(schema) {
        return Some(format!("has {keyword}: write the schema out"));
    }
    let patterns = patterns(schema);
    (patterns > MAX_PATTERNS).then(|| format!("has {patterns} patterns, and may have {MAX_PATTERNS}"))
}

fn repeating(schema: &Value) -> Option<&'static str> {
    match schema {
        Value::Array(items) => items.iter().find_map(repeating),
        Value::Object(fields) => {
            let own = REPEATING.into_iter().find(|keyword| fields.contains_key(*keyword));
            own.or_else(|| fields.values().find_map(repeating))
        }
        _ => None,
    }
}

fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Object(fields) => {
            // A property may have the name of a keyword: its value is a schema, not a text.
            let own = fields.get("pattern").is_some_and(Value::is_string);
            let of_names =
                fields.get("patternProperties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
            usize::from(own) + of_names + fields.values().map(patterns).sum::<usize>()
        }
        _ => 0,
    }
}

/// Whether the errors of an evaluation of this number of steps may be collected.
pub(super) fn is_explained(steps: u64) -> bool {
    steps <= EXPLAINED_STEPS
}

/// The number of steps that the evaluation of a value takes at most; `None` if it is above `limit`.
pub(super) fn steps(schema: &Value, value: &Value, limit: u64) -> Option<u64> {
    let mut counter = Counter { left: limit };
    counter.schema(schema, value)?;
    Some(limit - counter.left)
}

struct Counter {
    left: u64,
}

impl Counter {
    fn take(&mut self, steps: usize) -> Option<()> {
        self.left = self.left.checked_sub(steps as u64)?;
        Some(())
    }

    fn schema(&mut self, schema: &Value, value: &Value) -> Option<()> {
        self.take(1)?;
        schema
            .as_object()
            .into_iter()
            .flatten()
            .try_for_each(|(name, argument)| self.keyword(name, argument, value))
    }

    /// Every branch counts, also those that an evaluation may leave out.
    fn keyword(&mut self, name: &str, argument: &Value, value: &Value) -> Option<()> {
        self.take(1 + length(argument))?;
        match (name, value) {
            ("allOf" | "anyOf" | "oneOf", _) => {
                argument.as_array().into_iter().flatten().try_for_each(|branch| self.schema(branch, value))
            }
            ("not" | "if" | "then" | "else", _) => self.schema(argument, value),
            ("dependentSchemas" | "dependencies", Value::Object(_)) => {
                let branches = argument.as_object().into_iter().flatten();
                branches.map(|(_, branch)| branch).try_for_each(|branch| self.schema(branch, value))
            }
            ("enum" | "const" | "uniqueItems", _) => self.whole(value),
            ("pattern", Value::String(text)) => self.take(text.len() * STEPS_PER_BYTE),
            ("minLength" | "maxLength" | "contentEncoding" | "contentMediaType", Value::String(text)) => {
                self.take(text.len() / BYTES_PER_STEP)
            }
            ("items" | "prefixItems" | "additionalItems" | "contains", Value::Array(items)) => match argument
            {
                Value::Array(schemas) => {
                    schemas.iter().zip(items).try_for_each(|(schema, item)| self.schema(schema, item))
                }
                schema => items.iter().try_for_each(|item| self.schema(schema, item)),
            },
            ("properties", Value::Object(fields)) => {
                let schemas = argument.as_object().into_iter().flatten();
                let mut both = schemas.filter_map(|(name, schema)| Some((schema, fields.get(name)?)));
                both.try_for_each(|(schema, field)| self.schema(schema, field))
            }
            ("additionalProperties", Value::Object(fields)) => {
                fields.values().try_for_each(|field| self.schema(argument, field))
            }
            ("patternProperties", Value::Object(fields)) => {
                let schemas = argument.as_object().into_iter().flatten();
                schemas.map(|(_, schema)| schema).try_for_each(|schema| {
                    fields.iter().try_for_each(|(name, field)| {
                        // Matched once more for `additionalProperties`.
                        self.take(2 * name.len() * STEPS_PER_BYTE)?;
                        self.schema(schema, field)
                    })
                })
            }
            ("propertyNames", Value::Object(fields)) => {
                fields.keys().try_for_each(|name| self.schema(argument, &Value::String(name.clone())))
            }
            _ => Some(()),
        }
    }

    /// A value that is compared or hashed as a whole.
    fn whole(&mut self, value: &Value) -> Option<()> {
        self.take(1)?;
        match value {
            Value::String(text) => self.take(text.len() / BYTES_PER_STEP),
            Value::Array(items) => items.iter().try_for_each(|item| self.whole(item)),
            Value::Object(fields) => fields.values().try_for_each(|field| self.whole(field)),
            _ => Some(()),
        }
    }
}

fn length(argument: &Value) -> usize {
    match argument {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_that_need_backtracking_are_refused() {
        for pattern in ["^(?:a|aa)+(?=c)", "(a)\\1", "(?<!a)b"] {
            let schema = json!({"pattern": pattern});
            for refusal in [compiled(&schema), compiled_bounded(&schema)] {
                let why = refusal.expect_err(pattern);
                assert!(why.contains("no look-around"), "{why}");
            }
        }
        for pattern in [
            "^[A-Za-z0-9_-]{1,64}$",
            r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$",
            r"^https?://\S+$",
            "^data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/]+=*$",
            "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        ] {
            assert!(compiled_bounded(&json!({"pattern": pattern})).is_ok(), "{pattern}");
        }
        assert!(compiled_bounded(&json!({"pattern": "(.{1,50}){1,50}"})).is_err(), "too large");
    }

    #[test]
    fn schemas_that_evaluate_others_again_are_unbounded() {
        let schema = |inner: Value| json!({"properties": {"a": {"items": [{"x": inner}]}}});
        for keyword in REPEATING {
            assert!(unbounded(&schema(json!({keyword: "#/$defs/a"}))).is_some(), "{keyword}");
        }
        assert_eq!(unbounded(&schema(json!({"type": "string"}))), None);
        let many = |count: usize| json!({"allOf": vec![json!({"pattern": "a"}); count]});
        assert_eq!(unbounded(&many(MAX_PATTERNS)), None);
        assert!(unbounded(&many(MAX_PATTERNS + 1)).is_some());
        let names = json!({"properties": {"pattern": {"type": "string"}}});
        assert_eq!(patterns(&names), 0, "a property of this name");
        assert_eq!(patterns(&json!({"patternProperties": {"a": {"pattern": "b"}, "c": {}}})), 3);
    }

    #[test]
    fn steps_grow_with_branches_times_items() {
        let schema = |branches: usize, keyword: Value| json!({"items": {"allOf": vec![json!({"contains": keyword}); branches]}});
        let of = |branches: usize, items: usize| {
            let value = json!(vec![vec!["a"; 10]; items]);
            steps(&schema(branches, json!({"type": "string"})), &value, u64::MAX).expect("no limit")
        };
        let (one, more) = (of(1, 1), of(20, 30));
        assert!(more > 30 * 20 * 10 && more < 30 * 20 * 10 * one, "{one} {more}");
        let text = "a".repeat(1_000);
        let bytes = |schema: Value| steps(&schema, &json!(text), u64::MAX).expect("no limit");
        assert!(bytes(json!({"pattern": "a"})) >= 16_000);
        assert!(bytes(json!({"maxLength": 5})) >= 1_000 / 16);
        assert!(bytes(json!({"enum": ["a", "b"]})) >= 1_000 / 16);
    }

    #[test]
    fn counting_stops_at_the_limit() {
        let schema = json!({"items": {"anyOf": vec![json!({"type": "string"}); 1_000]}});
        let value = json!(vec![0; 10_000]);
        assert_eq!(steps(&schema, &value, INPUT_STEPS), None);
        let exact = steps(&schema, &json!([0, 1]), INPUT_STEPS).expect("few");
        assert_eq!(steps(&schema, &json!([0, 1]), exact), Some(exact));
        assert_eq!(steps(&schema, &json!([0, 1]), exact - 1), None);
    }

    #[test]
    fn every_applied_keyword_counts_its_schema() {
        let inner = json!({"enum": vec![0; 1_000]});
        for (keyword, argument, value) in [
            ("allOf", json!([inner]), json!(1)),
            ("anyOf", json!([inner]), json!(1)),
            ("oneOf", json!([inner]), json!(1)),
            ("not", inner.clone(), json!(1)),
            ("if", inner.clone(), json!(1)),
            ("then", inner.clone(), json!(1)),
            ("else", inner.clone(), json!(1)),
            ("dependentSchemas", json!({"a": inner}), json!({"a": 1})),
            ("dependencies", json!({"a": inner}), json!({"a": 1})),
            ("items", inner.clone(), json!([1])),
            ("items", json!([inner]), json!([1])),
            ("prefixItems", json!([inner]), json!([1])),
            ("additionalItems", inner.clone(), json!([1])),
            ("contains", inner.clone(), json!([1])),
            ("properties", json!({"a": inner}), json!({"a": 1})),
            ("additionalProperties", inner.clone(), json!({"a": 1})),
            ("patternProperties", json!({"a": inner}), json!({"a": 1})),
            ("propertyNames", inner.clone(), json!({"a": 1})),
        ] {
            let counted = steps(&json!({keyword: argument}), &value, u64::MAX);
            assert!(counted.is_some_and(|steps| steps > 1_000), "{keyword}: {counted:?}");
        }
    }
}
