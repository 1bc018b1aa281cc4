//! Finding the model among a repository's files, in any of its forms.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use island_runtimes_kit::error::{EngineError, ErrorKind, invalid_model};
use serde_json::Value;

/// Maximum size of a manifest in bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// A form of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// `.mlpackage` or `.mlmodel`: protobuf.
    Package,
    /// `.mlmodelc`: compiled, a program as text.
    Compiled,
}

/// A model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path in the repository.
    pub name: String,
    /// Its form.
    pub form: Form,
    /// The program's file.
    pub program: PathBuf,
    /// The metadata of a compiled model.
    pub metadata: Option<PathBuf>,
    /// The folder in the repository that paths in the program are relative to, with its slash.
    pub folder: String,
}

/// Finds the model among these files; `wanted` is its path if there are several.
pub fn find(files: &BTreeMap<String, PathBuf>, wanted: Option<&str>) -> Result<Found, EngineError> {
    let models = models(files);
    let wanted = wanted.map(|name| name.trim_end_matches('/'));
    let chosen: Vec<(&str, Form)> =
        models.iter().copied().filter(|(name, _)| wanted.is_none_or(|wanted| *name == wanted)).collect();
    match chosen.as_slice() {
        &[(name, form)] => locate(files, name, form),
        [] => Err(invalid_model(nothing(files, wanted))),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            let message =
                format!("there are several models, name one with the setting model: {}", names.join(", "));
            Err(invalid_model(message))
        }
    }
}

/// The paths of all models among these files.
pub fn names(files: &BTreeMap<String, PathBuf>) -> BTreeSet<&str> {
    models(files).into_iter().map(|(name, _)| name).collect()
}

fn models(files: &BTreeMap<String, PathBuf>) -> BTreeSet<(&str, Form)> {
    files.keys().filter_map(|path| model_of(path)).collect()
}

/// The model of a file. The repository itself can be one: its name is empty then.
fn model_of(path: &str) -> Option<(&str, Form)> {
    // Without its slash. A file whose name only ends so, such as `AppManifest.json`, belongs to no model.
    let folder_of = |file: &str| {
        let folder = path.strip_suffix(file)?;
        if folder.is_empty() { Some(folder) } else { folder.strip_suffix('/') }
    };
    if let Some(folder) = folder_of("Manifest.json") {
        return Some((folder, Form::Package));
    }
    if let Some(folder) = folder_of("model.mil") {
        return Some((folder, Form::Compiled));
    }
    // The source of a compiled model may be in its folder.
    let is_inside = path.contains("Data/com.apple.CoreML/") || path.contains(".mlmodelc/");
    (path.ends_with(".mlmodel") && !is_inside).then_some((path, Form::Package))
}

fn nothing(files: &BTreeMap<String, PathBuf>, wanted: Option<&str>) -> String {
    if files.keys().any(|path| path.contains(".aimodel")) {
        return "its model is an .aimodel, for Apple's Core AI; only .mlpackage and .mlmodelc are supported"
            .to_owned();
    }
    if files.keys().any(|path| path.contains(".mlmodelc/") && path.ends_with(".espresso.net")) {
        return "its model is a compiled NeuralNetwork, the form from before ML programs; only ML programs are supported".to_owned();
    }
    match wanted {
        Some(name) => format!("none of its files belong to the model {name:?}"),
        None => "none of its files is a Core ML model: a folder .mlpackage or .mlmodelc, or a file .mlmodel"
            .to_owned(),
    }
}

fn locate(files: &BTreeMap<String, PathBuf>, name: &str, form: Form) -> Result<Found, EngineError> {
    let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
    let shown = if name.is_empty() { "the repository" } else { name };
    let lacks = |what: &str| invalid_model(format!("{shown} lacks {what}"));
    if form == Form::Compiled {
        let at = |file: &str| files.get(&format!("{prefix}{file}")).cloned();
        return Ok(Found {
            program: at("model.mil").ok_or_else(|| lacks("model.mil"))?,
            metadata: at("metadata.json"),
            name: shown.to_owned(),
            form,
            folder: prefix,
        });
    }
    if let Some(path) = files.get(name) {
        let folder = name.rfind('/').map_or("", |end| &name[..=end]);
        return Ok(Found {
            name: shown.to_owned(),
            form,
            program: path.clone(),
            metadata: None,
            folder: folder.to_owned(),
        });
    }
    let manifest = files.get(&format!("{prefix}Manifest.json")).ok_or_else(|| lacks("Manifest.json"))?;
    let inside = root_model(manifest, shown)?;
    let path = format!("{prefix}Data/{inside}");
    let program =
        files.get(&path).cloned().ok_or_else(|| lacks(&format!("{path}, which its manifest names")))?;
    let folder = path.rfind('/').map_or("", |end| &path[..=end]).to_owned();
    Ok(Found { name: shown.to_owned(), form, program, metadata: None, folder })
}

/// The path in `Data` of the manifest's root item.
fn root_model(manifest: &PathBuf, name: &str) -> Result<String, EngineError> {
    let unreadable =
        |error| EngineError::new(ErrorKind::ModelUnavailable, format!("read {name}")).because(error);
    if fs::metadata(manifest).map_err(unreadable)?.len() > MAX_MANIFEST_BYTES {
        return Err(invalid_model(format!(
            "the manifest of {name} has more than {MAX_MANIFEST_BYTES} bytes"
        )));
    }
    let bytes = fs::read(manifest).map_err(unreadable)?;
    let manifest: Value = serde_json::from_slice(&bytes)
        .map_err(|error| invalid_model(format!("the manifest of {name} is not JSON")).because(error))?;
    let root = manifest.get("rootModelIdentifier").and_then(Value::as_str);
    let entry = root.and_then(|root| manifest.get("itemInfoEntries")?.get(root)?.get("path")?.as_str());
    let path = entry.ok_or_else(|| invalid_model(format!("the manifest of {name} names no model")))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> BTreeMap<String, PathBuf> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), PathBuf::from("/blobs").join(name.replace('/', "-"))))
            .collect()
    }

    #[test]
    fn compiled_model_is_its_folder() {
        let inside =
            ["model.mil", "model.mlmodel", "weights/weight.bin"].map(|file| format!("a/M.mlmodelc/{file}"));
        let files = files(&[&inside[0], &inside[1], &inside[2], "tokenizer.json"]);
        let found = find(&files, None).expect("found");
        assert_eq!((found.name.as_str(), found.form), ("a/M.mlmodelc", Form::Compiled));
        assert_eq!((found.folder.as_str(), found.metadata), ("a/M.mlmodelc/", None));
    }

    #[test]
    fn one_of_several_models_must_be_named() {
        let files = files(&["A.mlmodelc/model.mil", "B.mlmodelc/model.mil"]);
        assert!(find(&files, None).expect_err("two").message().contains("A.mlmodelc, B.mlmodelc"));
        assert_eq!(find(&files, Some("B.mlmodelc/")).expect("named").name, "B.mlmodelc");
        assert!(find(&files, Some("C")).expect_err("none").message().contains("\"C\""));
    }

    #[test]
    fn a_file_whose_name_ends_like_a_manifest_is_no_model() {
        let beside = files(&["AppManifest.json", "M.mlmodelc/model.mil"]);
        assert_eq!(find(&beside, None).expect("one model").name, "M.mlmodelc");
        for odd in ["AppManifest.json", "a/AppManifest.json", "Mymodel.mil"] {
            let refused = find(&files(&[odd]), None).expect_err(odd).message();
            assert!(refused.contains("none of its files"), "{odd}: {refused}");
        }
    }

    #[test]
    fn unsupported_forms_are_named() {
        let why = |names: &[&str]| find(&files(names), None).expect_err("refused").message();
        assert!(why(&["M.aimodel/main.bin"]).contains(".aimodel"));
        assert!(why(&["M.mlmodelc/model.espresso.net"]).contains("NeuralNetwork"));
        assert!(why(&["model.onnx"]).contains(".mlpackage"));
    }
}
