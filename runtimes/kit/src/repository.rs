//! The files of a Cargo as the Hugging Face repository they come from, read with size limits.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use crate::error::{EngineError, ErrorKind, invalid_model};

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
    /// The repository of these files. Reads `config.json`.
    pub fn open(files: BTreeMap<String, PathBuf>) -> Result<Self, EngineError> {
        let files = Files::new(files);
        let config = files.json("config.json")?.unwrap_or(Value::Null);
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
