//! Keys of settings files, and what the engines do with each.
//!
//! A setting that decides an answer and is passed over makes every answer wrong without an error. So the files of this module are read against a
//! table: a key is used, known to have no effect, or refused with the file, the key and its value. The tables follow the pinned versions of the
//! reference libraries; `docs/settings.md` is made of them.

use serde_json::Value;

use crate::{
    error::{EngineError, invalid_model},
    values::check_object,
};

mod config;
mod coreml;
mod diffusers;
mod generation;
mod gliner;
mod image_processor;
mod processor;
mod sentence;
mod sound;
mod tokenizer;

pub use config::CONFIG;
pub use coreml::{COMPILED, NOTES};
pub use diffusers::{AUTOENCODER, PIPELINE, SCHEDULER, TEXT_ENCODER, UNET};
pub use generation::GENERATION;
pub use gliner::GLINER;
pub use image_processor::IMAGE_PROCESSOR;
pub use processor::PROCESSOR;
pub use sentence::{
    DENSE, DROPOUT, LAYER_NORM, MODULE, NORMALIZE, POOLING, RANKING, RANKING_TRANSFORMER,
    SENTENCE_TRANSFORMERS, TRANSFORMER,
};
pub use sound::FEATURE_EXTRACTOR;
pub use tokenizer::{SPECIAL_TOKENS, TOKENIZER};

/// All tables, in the order of the document.
pub const TABLES: [&Table; 25] = [
    &CONFIG,
    &GENERATION,
    &TOKENIZER,
    &SPECIAL_TOKENS,
    &IMAGE_PROCESSOR,
    &FEATURE_EXTRACTOR,
    &PROCESSOR,
    &GLINER,
    &MODULE,
    &TRANSFORMER,
    &POOLING,
    &DENSE,
    &LAYER_NORM,
    &NORMALIZE,
    &DROPOUT,
    &SENTENCE_TRANSFORMERS,
    &RANKING_TRANSFORMER,
    &RANKING,
    &PIPELINE,
    &SCHEDULER,
    &UNET,
    &AUTOENCODER,
    &TEXT_ENCODER,
    &NOTES,
    &COMPILED,
];

/// What engines do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is used as the reference library uses it.
    Used,
    /// It is used, and refused unless it has one of these values, as JSON: classes, and names of ways to compute.
    OneOf(&'static [&'static str]),
    /// It has no effect on answers.
    None,
    /// It is refused unless it has one of these values, as JSON, with which it has no effect.
    Only(&'static [&'static str]),
}

/// The values of a setting that is on or off. Another value, such as a number, would be passed over.
const FLAG: &[&str] = &["true", "false"];

/// What happens to keys that are not in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// They are refused: all keys of the reference library are in the table, so this one is of another version.
    Refused,
    /// They have no effect, for this reason.
    Ignored(&'static str),
}

/// The keys of one kind of file.
#[derive(Debug)]
pub struct Table {
    /// The file's name.
    pub file: &'static str,
    /// Whose file it is, if several kinds have its name; empty otherwise.
    pub of: &'static str,
    /// What it decides, in a sentence.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [(&'static str, Effect)],
    /// All other keys.
    pub others: Others,
}

impl Table {
    /// Refuses settings that would change answers and are not used, and a file that is not an object. A key that is null counts as absent.
    pub fn check(&self, settings: &Value) -> Result<(), EngineError> {
        self.check_at(self.file, settings)
    }

    /// The same for a file at another path.
    pub fn check_at(&self, file: &str, settings: &Value) -> Result<(), EngineError> {
        self.check_by(file, self.others == Others::Refused, settings)
    }

    /// The same for settings that are among others in another file.
    pub fn check_among(&self, file: &str, settings: &Value) -> Result<(), EngineError> {
        self.check_by(file, false, settings)
    }

    fn check_by(&self, file: &str, refuses_others: bool, settings: &Value) -> Result<(), EngineError> {
        check_object(file, settings)?;
        let present = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        for (key, value) in present {
            let is_known = match self.effect(key) {
                Some(Effect::Used | Effect::None) => true,
                Some(Effect::Only(values) | Effect::OneOf(values)) => {
                    values.iter().any(|allowed| is(allowed, value))
                }
                None => !refuses_others,
            };
            if !is_known {
                return Err(unsupported(file, key, value));
            }
        }
        Ok(())
    }

    fn effect(&self, key: &str) -> Option<Effect> {
        self.keys.iter().find(|(name, _)| *name == key).map(|(_, effect)| *effect)
    }
}

/// The error of a setting that is not supported.
pub fn unsupported(file: &str, key: &str, value: &Value) -> EngineError {
    invalid_model(format!("{file}: {key} = {} is not supported", shown(value)))
}

/// A value as a message shows it: its beginning, if it is long.
pub(crate) fn shown(value: &Value) -> String {
    const MAX_VALUE: usize = 200;
    value.to_string().chars().take(MAX_VALUE).collect()
}

/// Keys of `[engine]` that coordinators and agents read, whatever the engine is.
const OF_ALL_ENGINES: [&str; 5] = ["task", "moderation", "reasoning", "continues", "egress"];

/// What a key of `[engine]` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A text.
    Text,
    /// On or off.
    Flag,
    /// A number.
    Number,
    /// A list.
    List,
    /// A table.
    Table,
    /// A number, or a list of them.
    Numbers,
}

impl Form {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::List => value.is_array(),
            Self::Table => value.is_object(),
            Self::Numbers => value.is_number() || value.is_array(),
        }
    }
}

/// Rejects keys of a Cargo's `[engine]` table that its engine does not have, and values of another form: a misspelt key would be passed over, and
/// such a value would count as absent.
pub fn check_engine(settings: &Value, keys: &[(&str, Form)]) -> Result<(), EngineError> {
    let fits = |key: &str, value: &Value| match keys.iter().find(|(known, _)| *known == key) {
        Some((_, form)) => value.is_null() || form.fits(value),
        None => OF_ALL_ENGINES.contains(&key),
    };
    let mut present = settings.as_object().into_iter().flatten();
    let refused = present.find(|(key, value)| !fits(key.as_str(), value));
    refused.map_or(Ok(()), |(key, value)| Err(unsupported("[engine]", key, value)))
}

/// Whether a value equals one that is written as JSON. Numbers are compared by value: `1` is `1.0`.
fn is(allowed: &str, value: &Value) -> bool {
    let allowed: Value = serde_json::from_str(allowed).expect("the tables contain JSON");
    match (allowed.as_f64(), value.as_f64()) {
        (Some(allowed), Some(value)) => (allowed - value).abs() < f64::EPSILON,
        _ => allowed == *value,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_listed_once_and_its_values_are_json() {
        for table in TABLES {
            let names: BTreeSet<&str> = table.keys.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), table.keys.len(), "{}", table.file);
            for (name, effect) in table.keys {
                if let Effect::Only(values) | Effect::OneOf(values) = effect {
                    values
                        .iter()
                        .for_each(|value| assert!(is(value, &serde_json::from_str(value).expect(name))));
                }
            }
        }
    }

    #[test]
    fn the_document_lists_every_key() {
        let path = Path::new("../../docs/settings.md");
        let written = document();
        if std::env::var_os("UPDATE_SETTINGS").is_some() {
            fs::write(path, &written).expect("write");
        }
        let stored = fs::read_to_string(path).expect("docs/settings.md");
        assert_eq!(stored, written, "UPDATE_SETTINGS=1 writes it anew");
    }

    fn document() -> String {
        let mut text = INTRODUCTION.to_owned();
        for table in TABLES {
            let others = match table.others {
                Others::Refused => "Other keys are refused.",
                Others::Ignored(reason) => reason,
            };
            let Table { file, of, about, .. } = table;
            let of = if of.is_empty() { String::new() } else { format!(" of {of}") };
            write!(text, "\n## `{file}`{of}\n\n{about} {others}\n\n").expect("text");
            if table.keys.is_empty() {
                continue;
            }
            text.push_str("| key | effect |\n| --- | --- |\n");
            for (key, effect) in table.keys {
                let effect = match effect {
                    Effect::Used => "used".to_owned(),
                    Effect::OneOf(values) => format!("used: `{}`", values.join("`, `")),
                    Effect::None => "none".to_owned(),
                    Effect::Only([]) => "refused".to_owned(),
                    Effect::Only(values) => format!("refused, except for `{}`", values.join("`, `")),
                };
                writeln!(text, "| `{key}` | {effect} |").expect("text");
            }
        }
        text
    }

    const INTRODUCTION: &str = "\
# Settings of repositories

What the engines do with each key of the files below. A key that is null counts as absent. A setting that is refused ends the load of the model
with an error that names file, key and value; nothing is charged. `island-coordinator catalogue check` loads models in the same way, trial job (0167) included.
A value of another kind than the reference library reads, such as a number in quotes or a list in place of an object, is refused where the key is used.
The tables are in `runtimes/kit/src/keys`; decisions 0095 and 0096 have the reasons.

**used**: as the reference library does; with values: it has one of them, and is refused otherwise. **none**: no effect on answers.
**refused**: unless it has one of the values named.
";

    #[test]
    fn every_restricted_key_refuses_another_value() {
        let other = json!("another value");
        for table in TABLES {
            for (key, effect) in table.keys {
                let refused = table.check(&json!({ *key: other })).map_err(|error| error.message());
                match effect {
                    Effect::Used | Effect::None => assert_eq!(refused, Ok(()), "{key}"),
                    Effect::OneOf(_) | Effect::Only(_) => {
                        let expected = format!("{}: {key} = \"another value\" is not supported", table.file);
                        assert_eq!(refused, Err(expected));
                    }
                }
            }
            let unknown = table.check(&json!({"a_key_of_tomorrow": 1}));
            assert_eq!(unknown.is_err(), table.others == Others::Refused, "{}", table.file);
        }
    }

    #[test]
    fn keys_that_an_engine_does_not_have_are_refused() {
        let keys = [("pooling", Form::Text), ("normalize", Form::Flag), ("image_mean", Form::Numbers)];
        let check = |settings: Value| check_engine(&settings, &keys).map_err(|error| error.message());
        assert_eq!(check(Value::Null), Ok(()));
        assert_eq!(check(json!({"pooling": "cls", "task": "feature-extraction"})), Ok(()));
        let refused = check(json!({"pooling": "cls", "pool": true})).expect_err("misspelt");
        assert_eq!(refused, "[engine]: pool = true is not supported");
        assert_eq!(check(json!({"normalize": false, "image_mean": [0.5, 0.5, 0.5]})), Ok(()));
        let refused = check(json!({"normalize": 1})).expect_err("neither on nor off");
        assert_eq!(refused, "[engine]: normalize = 1 is not supported");
        assert!(check(json!({"pooling": ["cls"]})).is_err());
    }

    #[test]
    fn what_is_not_supported_is_refused_by_file_key_and_value() {
        let refused = |settings: Value| GENERATION.check(&settings).expect_err("refused").message();
        assert_eq!(
            refused(json!({"num_beams": 4, "num_beam_groups": 2})),
            "generation_config.json: num_beam_groups = 2 is not supported"
        );
        assert!(refused(json!({"a_key_of_tomorrow": [1]})).contains("a_key_of_tomorrow = [1]"));
        let number = TOKENIZER.check(&json!({"do_lower_case": 0})).expect_err("neither on nor off");
        assert_eq!(number.message(), "tokenizer_config.json: do_lower_case = 0 is not supported");
        let name = IMAGE_PROCESSOR.check(&json!({"resample": "bicubic"})).expect_err("no number");
        assert_eq!(name.message(), "preprocessor_config.json: resample = \"bicubic\" is not supported");
        let list = TOKENIZER.check(&json!([{"do_lower_case": true}])).expect_err("no keys").message();
        assert_eq!(list, "tokenizer_config.json: [{\"do_lower_case\":true}] is not a JSON object");
        for neutral in [
            json!({"num_beam_groups": 1}),
            json!({"diversity_penalty": 0}),
            json!({"constraints": null}),
            json!(null),
        ] {
            GENERATION.check(&neutral).expect("no effect");
        }
    }
}
