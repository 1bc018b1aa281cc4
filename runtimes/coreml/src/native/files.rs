//! A model's files as the folder that the system's library reads: an Island's cache stores each under its hash.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Component, Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use island_runtimes_kit::error::{EngineError, invalid_model};

use crate::package::find::{Form, Found};

/// Number of folders that this process created.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A folder, removed on drop.
#[derive(Debug)]
pub struct Laid {
    folder: PathBuf,
    model: PathBuf,
    /// A compiled model that could not be moved here.
    elsewhere: Option<PathBuf>,
}

impl Laid {
    /// Path of the model.
    pub fn model(&self) -> &Path {
        &self.model
    }

    /// Moves a compiled model into the folder, and returns its new path.
    pub fn take_in(&mut self, made: PathBuf) -> PathBuf {
        let kept = self.folder.join("Compiled.mlmodelc");
        // Not synced: only this process reads the folder, so that a power cut leaves nothing that anyone would use.
        if fs::rename(&made, &kept).is_ok() {
            return kept;
        }
        // On another file system, where it stays.
        self.elsewhere.insert(made).clone()
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        for folder in self.elsewhere.iter().chain([&self.folder]) {
            if let Err(error) = fs::remove_dir_all(folder) {
                tracing::warn!(folder = %folder.display(), %error, "cannot remove a model's folder");
            }
        }
    }
}

/// Creates a model's folder in the folder for temporary files. Files are copied: file systems with reflinks need neither time nor space for it,
/// and changes by the library never reach the cache.
pub fn lay_out(files: &BTreeMap<String, PathBuf>, found: &Found) -> Result<Laid, EngineError> {
    let inner = format!("{}/", found.name);
    let (prefix, name) = match found.form {
        Form::Compiled => (found.folder.as_str(), "Model.mlmodelc"),
        Form::Package if files.contains_key(&found.name) => (found.name.as_str(), "Model.mlmodel"),
        Form::Package if files.contains_key(&format!("{inner}Manifest.json")) => {
            (inner.as_str(), "Model.mlpackage")
        }
        Form::Package => ("", "Model.mlpackage"),
    };
    let unique = format!("coreml-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    // The agent sets this to the worker's own folder, which it removes in any case.
    let folder = env::temp_dir().join(unique);
    let laid = Laid { model: folder.join(name), folder, elsewhere: None };
    fs::create_dir_all(&laid.folder).map_err(|error| failed(&found.name, error))?;
    if let Some(file) = files.get(prefix) {
        fs::copy(file, &laid.model).map_err(|error| failed(prefix, error))?;
        return Ok(laid);
    }
    for (path, file) in files {
        let Some(inside) = path.strip_prefix(prefix) else { continue };
        let to = laid.model.join(checked(inside)?);
        let made = to.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::copy(file, &to)).map_err(|error| failed(path, error))?;
    }
    Ok(laid)
}

fn failed(path: &str, error: io::Error) -> EngineError {
    EngineError::host(format!("copy {path} to where the system's library reads it")).because(error)
}

/// A path without components that leave its folder.
fn checked(path: &str) -> Result<&Path, EngineError> {
    let path = Path::new(path);
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(path);
    }
    Err(invalid_model(format!("its file {} lies outside the model", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::find;

    fn laid(names: &[&str]) -> Result<Laid, EngineError> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let blob = folder.path().join(index.to_string());
            let manifest =
                r#"{"rootModelIdentifier":"1","itemInfoEntries":{"1":{"path":"com.apple.CoreML/m"}}}"#;
            fs::write(&blob, if name.ends_with("Manifest.json") { manifest } else { name }).expect("written");
            files.insert((*name).to_owned(), blob);
        }
        lay_out(&files, &find::find(&files, None)?)
    }

    fn all(laid: &Laid) -> Vec<String> {
        let (mut found, mut folders) = (Vec::new(), vec![laid.folder.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(&laid.folder).expect("inside").display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn every_form_is_laid_out_and_removed_on_drop() {
        let package =
            ["a/M.mlpackage/Manifest.json", "a/M.mlpackage/Data/com.apple.CoreML/m", "tokenizer.json"];
        let compiled = ["M.mlmodelc/model.mil", "M.mlmodelc/weights/weight.bin", "M.mlmodelc/coremldata.bin"];
        let whole = ["Manifest.json", "Data/com.apple.CoreML/m"];
        for (names, wanted) in [
            (&package[..], &["Model.mlpackage/Data/com.apple.CoreML/m", "Model.mlpackage/Manifest.json"][..]),
            (
                &compiled,
                &[
                    "Model.mlmodelc/coremldata.bin",
                    "Model.mlmodelc/model.mil",
                    "Model.mlmodelc/weights/weight.bin",
                ],
            ),
            (&whole, &["Model.mlpackage/Data/com.apple.CoreML/m", "Model.mlpackage/Manifest.json"]),
            (&["b/M.mlmodel", "b/M.mlmodel.md"], &["Model.mlmodel"]),
        ] {
            let laid = laid(names).expect("laid out");
            assert_eq!(all(&laid), wanted);
            assert!(laid.model().exists());
            let folder = laid.folder.clone();
            drop(laid);
            assert!(!folder.exists());
        }
    }

    #[test]
    fn compiled_model_is_removed_on_drop() {
        let mut laid = laid(&["b/M.mlmodel"]).expect("laid out");
        let made = tempfile::tempdir().expect("a folder").keep();
        let kept = laid.take_in(made.clone());
        assert!(kept.starts_with(&laid.folder) && kept.is_dir() && !made.exists());
        // Nothing can be moved over an existing folder that is not empty.
        fs::write(kept.join("x"), "").expect("written");
        let other = tempfile::tempdir().expect("a folder").keep();
        assert_eq!(laid.take_in(other.clone()), other);
        drop(laid);
        assert!(!kept.exists() && !other.exists());
    }

    #[test]
    fn files_outside_the_model_are_rejected() {
        let why = laid(&["M.mlmodelc/model.mil", "M.mlmodelc/../../x"]).expect_err("refused").message();
        assert!(why.contains("outside"), "{why}");
    }
}
