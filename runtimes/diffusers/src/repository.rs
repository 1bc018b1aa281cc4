//! The files of a Cargo as the diffusers repository they come from: a folder for each part, settings in JSON, weights as
//! safetensors. Artifacts are named by their path in the repository.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::Table,
    repository::Files,
    values::typed,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::weights::Element;

/// A repository's files on this Island.
#[derive(Debug, Clone, Default)]
pub struct Repository {
    files: Files,
}

impl Repository {
    /// The repository of these files.
    pub fn new(files: BTreeMap<String, PathBuf>) -> Self {
        Self { files: Files::new(files) }
    }

    /// Paths of all its files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.names()
    }

    /// The path of a file on this Island.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.files.path(name)
    }

    /// The content of a settings file. Returns `None` if the repository lacks it.
    pub fn json(&self, name: &str) -> Result<Option<Value>, EngineError> {
        let Some(bytes) = self.files.bytes(name)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|_| invalid_model(format!("{name} is not text")))?;
        let value: Value = serde_json::from_str(&without_infinities(&text))
            .map_err(|error| invalid_model(format!("{name} is not JSON")).because(error))?;
        // A list would be read as the settings in their order, and an empty one as the defaults.
        if !value.is_object() {
            return Err(invalid_model(format!("{name} is not a JSON object")));
        }
        Ok(Some(value))
    }

    /// A required settings file. An error if one of its settings is not supported.
    pub fn settings<T: DeserializeOwned>(&self, name: &str, table: &Table) -> Result<T, EngineError> {
        let value = self.json(name)?.ok_or_else(|| missing(name))?;
        table.check_at(name, &value)?;
        typed(name, &without_nulls(value))
    }

    /// A required file of names and numbers, such as a vocabulary.
    pub fn list<T: DeserializeOwned>(&self, name: &str) -> Result<T, EngineError> {
        read(name, self.json(name)?.ok_or_else(|| missing(name))?)
    }

    /// The text of a required file.
    pub fn text(&self, name: &str) -> Result<String, EngineError> {
        let bytes = self.files.bytes(name)?.ok_or_else(|| missing(name))?;
        String::from_utf8(bytes).map_err(|_| invalid_model(format!("{name} is not text")))
    }

    /// The files with the weights of a part. If there is a choice: for f32 those in f32, since f16 is exact in f32 but was rounded once, and
    /// for f16 those in f16, which need no conversion.
    pub fn weights(&self, folder: &str, element: Element) -> Result<Vec<(String, PathBuf)>, EngineError> {
        let variants = match element {
            Element::F32 => ["", ".fp16"],
            Element::F16 => [".fp16", ""],
        };
        for stem in ["diffusion_pytorch_model", "model"] {
            for variant in variants {
                let whole = format!("{folder}/{stem}{variant}.safetensors");
                if let Some(path) = self.path(&whole) {
                    let path = path.to_owned();
                    return Ok(vec![(whole, path)]);
                }
                let shards = self.shards(&format!("{folder}/{stem}{variant}-"))?;
                if !shards.is_empty() {
                    return Ok(shards);
                }
            }
        }
        let inside = |name: &&str| name.starts_with(&format!("{folder}/"));
        let is_pickle = |name: &&str| [".bin", ".ckpt", ".pt", ".pth"].iter().any(|end| name.ends_with(end));
        Err(match self.names().filter(inside).find(is_pickle) {
            Some(name) => invalid_model(format!("{name} may hold programs; only safetensors are loaded")),
            None => invalid_model(format!("{folder} has no weights: no file is called *.safetensors")),
        })
    }

    /// `…-00001-of-00003.safetensors` and its siblings.
    fn shards(&self, start: &str) -> Result<Vec<(String, PathBuf)>, EngineError> {
        let place = |name: &str| -> Option<(usize, usize)> {
            let (at, of) = name.strip_prefix(start)?.strip_suffix(".safetensors")?.split_once("-of-")?;
            Some((at.parse().ok()?, of.parse().ok()?))
        };
        let found: Vec<_> = self.names().filter_map(|name| Some((place(name)?, name))).collect();
        let is_whole =
            found.iter().enumerate().all(|(index, ((at, of), _))| *at == index + 1 && *of == found.len());
        if !is_whole {
            return Err(invalid_model(format!("some of the files {start}*.safetensors are missing")));
        }
        let path = |name: &str| Some((name.to_owned(), self.path(name)?.to_owned()));
        Ok(found.into_iter().filter_map(|(_, name)| path(name)).collect())
    }
}

fn read<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, EngineError> {
    let settings = T::deserialize(without_nulls(value));
    settings.map_err(|error| invalid_model(format!("invalid settings in {name}")).because(error))
}

fn missing(name: &str) -> EngineError {
    invalid_model(format!("the Cargo lacks the file {name}"))
}

/// Replaces Python's NaN and infinities, which JSON lacks.
fn without_infinities(text: &str) -> String {
    let (mut out, mut in_string, mut rest) = (String::with_capacity(text.len()), false, text);
    while let Some(letter) = rest.chars().next() {
        let word =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            out.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        if letter == '\\' && in_string {
            let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
            out.push_str(&rest[..=escaped]);
            rest = &rest[1 + escaped..];
            continue;
        }
        in_string ^= letter == '"';
        out.push(letter);
        rest = &rest[letter.len_utf8()..];
    }
    out
}

/// A null setting is absent.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(names: &[&str]) -> Repository {
        Repository::new(names.iter().map(|name| ((*name).to_owned(), PathBuf::from(*name))).collect())
    }

    fn chosen(names: &[&str]) -> Vec<String> {
        repository(names)
            .weights("unet", Element::F32)
            .expect("weights")
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn weights_in_the_wanted_precision_are_preferred_and_shards_stay_together() {
        let half = "unet/diffusion_pytorch_model.fp16.safetensors";
        let whole = "unet/diffusion_pytorch_model.safetensors";
        assert_eq!(chosen(&[half, whole, "unet/config.json"]), [whole]);
        assert_eq!(chosen(&[half]), [half]);
        let on_gpu = repository(&[half, whole]).weights("unet", Element::F16).expect("weights");
        assert_eq!(on_gpu[0].0, half);
        let shards = [
            "unet/diffusion_pytorch_model-00001-of-00002.safetensors",
            "unet/diffusion_pytorch_model-00002-of-00002.safetensors",
        ];
        assert_eq!(chosen(&shards), shards);
    }

    #[test]
    fn missing_shards_and_pickles_are_reported() {
        let why =
            |names: &[&str]| repository(names).weights("unet", Element::F32).expect_err("refused").message();
        assert!(why(&["unet/diffusion_pytorch_model-00002-of-00002.safetensors"]).contains("missing"));
        assert!(why(&["unet/diffusion_pytorch_model.bin"]).contains("may hold programs"));
        assert!(why(&["vae/diffusion_pytorch_model.safetensors"]).contains("no weights"));
    }

    #[test]
    fn nan_and_infinity_become_null() {
        let text = r#"{"a": -Infinity, "b": "NaN \" Infinity", "c": [1, NaN]}"#;
        assert_eq!(without_infinities(text), r#"{"a": null, "b": "NaN \" Infinity", "c": [1, null]}"#);
    }
}
