//! Keys of settings files, and what the engines do with each.
//!
//! A setting that decides an answer and is passed over makes every answer wrong without an error. So the files of this module are read against a
//! table: a key is used, known to have no effect, or refused with the file, the key and its value. The tables follow the pinned versions of the
//! reference libraries; `docs/settings.md` is made of them.

use serde_json::Value;

use crate::error::{EngineError, invalid_model};

mod generation;
mod image_processor;

pub use generation::GENERATION;
pub use image_processor::IMAGE_PROCESSOR;

/// What engines do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is used as the reference library uses it.
    Used,
    /// It has no effect on answers.
    None,
    /// It is refused unless it has one of these values, as JSON, with which it has no effect.
    Only(&'static [&'static str]),
}

/// What happens to keys that are not in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// They are refused: all keys of the reference library are in the table, so this one is of another version.
    Refused,
    /// They describe the network, which the graph contains.
    Ignored,
}

/// The keys of one kind of file.
#[derive(Debug)]
pub struct Table {
    /// The file's name.
    pub file: &'static str,
    /// What it decides, in a sentence.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [(&'static str, Effect)],
    /// All other keys.
    pub others: Others,
}

impl Table {
    /// Refuses settings that would change answers and are not used. A key that is null counts as absent.
    pub fn check(&self, settings: &Value) -> Result<(), EngineError> {
        self.check_by(self.file, self.others, settings)
    }

    /// The same for settings that are among others in another file.
    pub fn check_among(&self, file: &str, settings: &Value) -> Result<(), EngineError> {
        self.check_by(file, Others::Ignored, settings)
    }

    fn check_by(&self, file: &str, others: Others, settings: &Value) -> Result<(), EngineError> {
        let present = settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        for (key, value) in present {
            match self.effect(key) {
                Some(Effect::Used | Effect::None) => {}
                Some(Effect::Only(values)) if values.iter().any(|allowed| is(allowed, value)) => {}
                None if others == Others::Ignored => {}
                Some(Effect::Only(_)) | None => return Err(unsupported(file, key, value)),
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
    const MAX_VALUE: usize = 200;
    let value: String = value.to_string().chars().take(MAX_VALUE).collect();
    invalid_model(format!("{file}: {key} = {value} is not supported"))
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

    const TABLES: [&Table; 2] = [&GENERATION, &IMAGE_PROCESSOR];

    #[test]
    fn a_key_is_listed_once_and_its_values_are_json() {
        for table in TABLES {
            let names: BTreeSet<&str> = table.keys.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), table.keys.len(), "{}", table.file);
            for (name, effect) in table.keys {
                if let Effect::Only(values) = effect {
                    values
                        .iter()
                        .for_each(|value| assert!(is(value, &serde_json::from_str(value).expect(name))));
                }
            }
        }
    }

    #[test]
    fn the_document_lists_every_key() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
        let written = document();
        if std::env::var_os("UPDATE_SETTINGS").is_some() {
            fs::write(&path, &written).expect("write");
        }
        let stored = fs::read_to_string(&path).expect("docs/settings.md");
        assert_eq!(stored, written, "UPDATE_SETTINGS=1 writes it anew");
    }

    fn document() -> String {
        let mut text = INTRODUCTION.to_owned();
        for table in TABLES {
            let others = match table.others {
                Others::Refused => "Other keys are refused.",
                Others::Ignored => "Other keys describe the network, which the graph contains.",
            };
            let Table { file, about, .. } = table;
            write!(text, "\n## `{file}`\n\n{about} {others}\n\n| key | effect |\n| --- | --- |\n")
                .expect("text");
            for (key, effect) in table.keys {
                let effect = match effect {
                    Effect::Used => "used".to_owned(),
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
with an error that names file, key and value; nothing is charged. The tables are in `runtimes/kit/src/keys`; decision 0095 has the reasons.
";

    #[test]
    fn what_is_not_supported_is_refused_by_file_key_and_value() {
        let refused = |settings: Value| GENERATION.check(&settings).expect_err("refused").message();
        assert_eq!(
            refused(json!({"num_beams": 4, "num_beam_groups": 2})),
            "generation_config.json: num_beam_groups = 2 is not supported"
        );
        assert!(refused(json!({"a_key_of_tomorrow": [1]})).contains("a_key_of_tomorrow = [1]"));
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
