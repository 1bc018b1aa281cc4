//! The files of a Cargo as the Hugging Face repository they come from, read with size limits.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    error::{EngineError, ErrorKind, invalid_model},
    keys::{CONFIG, unsupported},
    values,
};

/// Maximum size of a settings file or tokenizer.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Files on this Island, by their path in the repository.
#[derive(Debug, Clone, Default)]
pub struct Files(BTreeMap<String, PathBuf>);

impl Files {
    /// These files.
    pub fn new(files: BTreeMap<String, PathBuf>) -> Self {
        Self(files)
    }

    /// The path of a file on this Island.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.0.get(name).map(PathBuf::as_path)
    }

    /// Paths of all files in the repository.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The content of a settings file or vocabulary. Returns `None` if the repository lacks it.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let Some(path) = self.path(name) else { return Ok(None) };
        let unreadable =
            |error| EngineError::new(ErrorKind::ModelUnavailable, format!("read {name}")).because(error);
        let length = fs::metadata(path).map_err(unreadable)?.len();
        if length > MAX_TEXT_BYTES {
            return Err(invalid_model(format!("{name} has {length} bytes, more than {MAX_TEXT_BYTES}")));
        }
        fs::read(path).map(Some).map_err(unreadable)
    }

    /// The content of a JSON file. Returns `None` if the repository lacks it.
    pub fn json(&self, name: &str) -> Result<Option<Value>, EngineError> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Some).map_err(|error| invalid_model(format!("{name} is not JSON")).because(error))
    }
}

/// A repository in the form of `transformers`: files, and `config.json`.
#[derive(Debug, Clone)]
pub struct Repository {
    files: Files,
    /// `config.json`; null if the repository lacks it.
    pub config: Arc<Value>,
}

impl Repository {
    /// The repository of these files. Reads `config.json`. An error if a key that every model has there is of another kind.
    pub fn open(files: BTreeMap<String, PathBuf>) -> Result<Self, EngineError> {
        let files = Files::new(files);
        let config = files.json(CONFIG.file)?.unwrap_or(Value::Null);
        check_kinds(&config)?;
        Ok(Self { files, config: Arc::new(config) })
    }

    /// The content of a JSON file. Returns `None` if the repository lacks it.
    pub fn json(&self, name: &str) -> Result<Option<Value>, EngineError> {
        self.files.json(name)
    }

    /// The content of a settings file or vocabulary. Returns `None` if the repository lacks it.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, EngineError> {
        self.files.bytes(name)
    }

    /// The path of a file on this Island.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.files.path(name)
    }

    /// Paths of all files in the repository.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.names()
    }
}

/// Refuses values of another kind than the base class of all models reads from `config.json`.
fn check_kinds(config: &Value) -> Result<(), EngineError> {
    values::check_object(CONFIG.file, config)?;
    for key in ["model_type", "tokenizer_class"] {
        values::read(CONFIG.file, config, key, Value::as_str)?;
    }
    for key in ["label2id", "task_specific_params"] {
        values::read(CONFIG.file, config, key, Value::as_object)?;
    }
    values::read(CONFIG.file, config, "num_labels", values::count)?;
    let names = values::read(CONFIG.file, config, "id2label", Value::as_object)?;
    // The reference takes any name; those of some published models are numbers.
    let is_known =
        |id: &str, name: &Value| id.parse::<i64>().is_ok() && (name.is_string() || name.is_number());
    match names.into_iter().flatten().find(|(id, name)| !is_known(id, name)) {
        Some((id, name)) => Err(unsupported(CONFIG.file, &format!("id2label.{id}"), name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_of_other_kinds_is_refused() {
        let opened = |config: &Value| {
            let folder = tempfile::tempdir().expect("temporary folder");
            let path = folder.path().join("config.json");
            fs::write(&path, config.to_string()).expect("write");
            Repository::open(BTreeMap::from([("config.json".to_owned(), path)]))
                .map(drop)
                .map_err(|error| error.message())
        };
        let known = json!({
            "model_type": "bert", "tokenizer_class": null, "num_labels": 2, "id2label": {"0": "A", "1": "B"},
            "label2id": {"A": 0, "B": 1}, "task_specific_params": {},
        });
        assert_eq!(opened(&known), Ok(()));
        assert_eq!(opened(&json!(["bert"])), Err("config.json: [\"bert\"] is not a JSON object".to_owned()));
        for (key, value) in [
            ("model_type", json!(5)),
            ("tokenizer_class", json!(["BertTokenizer"])),
            ("num_labels", json!("2")),
            ("num_labels", json!(-2)),
            ("id2label", json!(["A", "B"])),
            ("label2id", json!("A")),
            ("task_specific_params", json!([])),
        ] {
            let refused = opened(&json!({key: value})).expect_err("another kind");
            assert_eq!(refused, format!("config.json: {key} = {value} is not supported"));
        }
        assert_eq!(opened(&json!({"id2label": {"0": 0, "1": 1}, "label2id": {"0": 0, "1": 1}})), Ok(()));
        let list = opened(&json!({"id2label": {"0": ["A"]}})).expect_err("no name");
        assert_eq!(list, "config.json: id2label.0 = [\"A\"] is not supported");
        let name = opened(&json!({"id2label": {"A": "B"}})).expect_err("no class");
        assert_eq!(name, "config.json: id2label.A = \"B\" is not supported");
    }
}
