//! Drivers: the tasks of models, from an input to an output.
//!
//! | module | task |
//! | --- | --- |
//! | [`classifier`] | image classification |
//! | [`embedding`] | text embeddings |
//! | [`picture`] | images to the inputs of models |
//! | [`plane`] | depth maps, segments, images |
//! | [`tensors`] | any inputs and outputs, as JSON |
//! | [`language`] | text generation |
//! | [`speech`] | speech to text |

pub mod classifier;
pub mod embedding;
pub mod language;
pub mod picture;
pub mod plane;
pub mod speech;
pub mod tensors;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use island_runtimes_kit::{
    error::{EngineError, ErrorKind, invalid_model},
    keys::{self, Form, unsupported},
    pipeline::Pipeline,
    repository::Repository,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    backend::{self, LoadRequest},
    model::Model,
    package::{Package, find},
};

/// The files of a Cargo, and the models among them, loaded on request.
#[derive(Debug)]
pub struct Models {
    files: BTreeMap<String, PathBuf>,
    threads: usize,
    uses_gpu: bool,
    /// The `[engine]` table of the entry: settings that the files lack.
    settings: Value,
    /// The back ends of the loaded models.
    engines: Mutex<BTreeSet<String>>,
}

impl Models {
    /// The models of these files.
    pub fn new(files: BTreeMap<String, PathBuf>, settings: Value, threads: usize, uses_gpu: bool) -> Self {
        Self { files, threads, uses_gpu, settings, engines: Mutex::default() }
    }

    /// A string of the settings.
    fn text(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Value::as_str)
    }

    /// The paths of all models.
    pub fn names(&self) -> BTreeSet<&str> {
        find::names(&self.files)
    }

    /// The files as a repository, with those of a folder also at its root.
    pub fn repository(&self, folder: &str) -> Result<Repository, EngineError> {
        let mut files = self.files.clone();
        let inner = self.files.iter().filter_map(|(name, path)| Some((name.strip_prefix(folder)?, path)));
        files.extend(inner.map(|(name, path)| (name.to_owned(), path.clone())));
        Repository::open(files)
    }

    /// Loads the model at this path.
    pub fn load(&self, path: &str) -> Result<Arc<dyn Model>, EngineError> {
        self.run(&Package::open(&self.files, Some(path))?, Some(path))
    }

    fn run(&self, package: &Package, wanted: Option<&str>) -> Result<Arc<dyn Model>, EngineError> {
        let function = self.text("function").unwrap_or(&package.default_function);
        let request = LoadRequest {
            files: &self.files,
            wanted,
            package,
            function,
            threads: self.threads,
            uses_gpu: self.uses_gpu,
        };
        let loaded = backend::load(&request)?;
        self.engines.lock().insert(loaded.engine);
        Ok(loaded.model)
    }

    /// The only model, or the one that the settings name, with its repository.
    pub fn parts(&self) -> Result<Parts, EngineError> {
        let wanted = self.text("model");
        let package = Package::open(&self.files, wanted)?;
        let model = self.run(&package, wanted)?;
        let mut settings = self.settings.clone();
        if let (Some(labels), Value::Object(table)) = (package.labels, &mut settings) {
            table.entry("labels").or_insert_with(|| labels.into());
        }
        Ok(Parts { model, repository: self.repository("")?, settings })
    }

    /// The back ends of the loaded models.
    pub fn engine(&self) -> String {
        let engines = self.engines.lock();
        engines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

/// The parts of a driver with one model.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The files around it: a tokenizer, a chat template.
    pub repository: Repository,
    /// The `[engine]` table of the entry: settings that the files lack.
    pub settings: Value,
}

impl Parts {
    /// A string of the settings.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Value::as_str)
    }

    /// A flag of the settings.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.settings.get(name).and_then(Value::as_bool)
    }

    /// A number of the settings.
    pub fn number(&self, name: &str) -> Option<f32> {
        self.settings.get(name).and_then(Value::as_f64).map(|number| number as f32)
    }

    /// The name of an output in the settings. An error if the model has none of this name.
    pub fn output(&self) -> Result<Option<&str>, EngineError> {
        let Some(name) = self.text("output") else { return Ok(None) };
        let outputs = &self.model.interface().outputs;
        if outputs.iter().any(|output| output.name == name) {
            return Ok(Some(name));
        }
        let known: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        let refused = unsupported("[engine]", "output", &name.into());
        Err(refused.followed_by(format!("{} has: {}", self.model.name(), known.join(", "))))
    }

    /// Labels in the settings.
    pub fn labels(&self) -> Option<Vec<String>> {
        let labels = self.settings.get("labels")?.as_array()?;
        labels.iter().map(|label| label.as_str().map(str::to_owned)).collect()
    }
}

/// Loads a driver.
type Load = fn(&Models) -> Result<Box<dyn Pipeline>, EngineError>;

/// All tasks by their name in an entry: `[engine] task`.
const TASKS: [(&str, Load); 8] = [
    ("tensors", |models| tensors::load(models.parts()?)),
    ("image-classification", |models| classifier::load(models.parts()?)),
    ("feature-extraction", |models| embedding::load(models.parts()?)),
    ("depth-estimation", |models| plane::load_depth(models.parts()?)),
    ("image-segmentation", |models| plane::load_segments(models.parts()?)),
    ("image-to-image", |models| plane::load_picture(models.parts()?)),
    ("text-generation", |models| language::load(models.parts()?)),
    ("automatic-speech-recognition", speech::load),
];

/// Keys of `[engine]`, of all tasks.
const KEYS: [(&str, Form); 14] = [
    ("model", Form::Text),
    ("function", Form::Text),
    ("output", Form::Text),
    ("labels", Form::List),
    ("pooling", Form::Text),
    ("normalize", Form::Flag),
    ("context", Form::Number),
    ("softmax", Form::Flag),
    ("fit", Form::Text),
    ("color", Form::Text),
    ("image_mean", Form::Numbers),
    ("image_std", Form::Numbers),
    ("rescale_factor", Form::Number),
    ("output_scale", Form::Number),
];

/// Loads the driver of an entry's task.
pub fn load(models: &Models) -> Result<Box<dyn Pipeline>, EngineError> {
    let task = models.text("task").unwrap_or_default();
    let Some((_, load)) = TASKS.iter().find(|(name, _)| *name == task) else {
        let message = format!("unknown task {task:?}; known tasks: {}", names().join(", "));
        return Err(EngineError::new(ErrorKind::UnsupportedTask, message));
    };
    keys::check_engine(&models.settings, &KEYS)?;
    load(models)
}

/// The names of all tasks.
pub fn names() -> Vec<&'static str> {
    TASKS.iter().map(|(name, _)| *name).collect()
}

/// Refuses files whose settings would be passed over; `[engine]` has `instead` of them.
fn check_unread<'n>(
    mut names: impl Iterator<Item = &'n str>,
    unread: &[&str],
    instead: &str,
) -> Result<(), EngineError> {
    match names.find(|name| unread.contains(name)) {
        Some(name) => Err(invalid_model(format!(
            "{name} is not read for Core ML models: leave it out of the Cargo's files, and set {instead} in [engine]"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_whose_settings_would_be_passed_over_are_refused() {
        let check = |name: &str| {
            let names = ["Model.mlpackage/Manifest.json", name];
            check_unread(names.into_iter(), &["modules.json"], "pooling").map_err(|error| error.message())
        };
        assert_eq!(check("tokenizer.json"), Ok(()));
        let refused = check("modules.json").expect_err("not read");
        assert!(refused.starts_with("modules.json is not read"), "{refused}");
        assert!(refused.contains("set pooling in [engine]"), "{refused}");
    }
}
