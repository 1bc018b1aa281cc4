//! A model's files: found among a Cargo's, parsed into a program.
//!
//! | module | content |
//! | --- | --- |
//! | [`find`] | finding the model among a repository's files, in any of its forms |
//! | [`interface`] | a model's inputs, outputs and states |
//! | [`weights`] | files of weights, read blob by blob |
//! | [`elements`] | stored elements to numbers |

pub mod elements;
pub mod find;
pub mod interface;
mod labels;
pub mod weights;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use find::{Form, Found};
use interface::Interface;
use island_runtimes_kit::error::{EngineError, ErrorKind, invalid_model};
use weights::Weights;

use crate::{
    program::Program,
    proto::{self, model::Older},
    text,
};

/// Maximum size of a program file in bytes: weights are separate files, or else small.
const MAX_PROGRAM_BYTES: u64 = 128 << 20;

/// A parsed model, with its weights still in their files.
#[derive(Debug)]
pub struct Package {
    /// Its path in the repository.
    pub name: String,
    /// Its program.
    pub program: Program,
    /// Its default function.
    pub default_function: String,
    /// Its weights.
    pub weights: Weights,
    /// Names of its classes, from its metadata.
    pub labels: Option<Vec<String>>,
    interfaces: BTreeMap<String, Interface>,
}

impl Package {
    /// Parses the model among these files; `wanted` is its path if there are several.
    pub fn open(files: &BTreeMap<String, PathBuf>, wanted: Option<&str>) -> Result<Self, EngineError> {
        let found = find::find(files, wanted)?;
        match found.form {
            Form::Package => Self::of_protobuf(found, files),
            Form::Compiled => Self::of_text(found, files),
        }
    }

    fn of_protobuf(found: Found, files: &BTreeMap<String, PathBuf>) -> Result<Self, EngineError> {
        let model = proto::read::model(&read(&found.program, &found.name)?)?;
        if let Some(older) = &model.older {
            return Err(invalid_model(refusal(&found.name, older)));
        }
        let program = model.program.ok_or_else(|| {
            invalid_model(format!(
                "{} has no ML program, the only supported kind of Core ML model",
                found.name
            ))
        })?;
        let program = proto::read::program(program)?;
        let description = model.description.unwrap_or_default();
        let default_function = match description.default_function_name.as_str() {
            "" => default_of(&program),
            name => name.to_owned(),
        };
        let interfaces = interface::of_description(&description, &default_function);
        let labels = description.metadata.as_ref().and_then(|notes| labels::of_notes(&notes.user_defined));
        Ok(Self {
            weights: Weights::new(found.folder, files),
            name: found.name,
            program,
            default_function,
            labels,
            interfaces,
        })
    }

    fn of_text(found: Found, files: &BTreeMap<String, PathBuf>) -> Result<Self, EngineError> {
        let bytes = read(&found.program, &found.name)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| invalid_model(format!("model.mil of {} is not text", found.name)))?;
        let program = text::parse(&text).map_err(|error| {
            invalid_model(format!("model.mil of {} cannot be read", found.name)).because(error)
        })?;
        let default_function = default_of(&program);
        let metadata = found.metadata.as_ref().map(|path| read(path, &found.name)).transpose()?;
        let interfaces = match &metadata {
            Some(bytes) => interface::of_metadata(bytes, &default_function)
                .map_err(|why| invalid_model(format!("metadata.json of {}: {why}", found.name)))?,
            None => BTreeMap::new(),
        };
        let labels = metadata.as_deref().and_then(labels::of_metadata);
        Ok(Self {
            weights: Weights::new(found.folder, files),
            name: found.name,
            program,
            default_function,
            labels,
            interfaces,
        })
    }

    /// The interface of a function: from the model's description, or else from its program.
    pub fn interface(&self, function: &str) -> Result<Interface, EngineError> {
        let Some(declared) = self.program.functions.get(function) else {
            let known: Vec<&str> = self.program.functions.keys().map(String::as_str).collect();
            let message = format!("{} has no function {function:?}; it has: {}", self.name, known.join(", "));
            return Err(invalid_model(message));
        };
        let described = self.interfaces.get(function).cloned();
        Ok(described.unwrap_or_else(|| interface::of_function(declared)))
    }
}

fn default_of(program: &Program) -> String {
    let main = program.functions.keys().find(|name| *name == "main");
    main.or_else(|| program.functions.keys().next()).cloned().unwrap_or_default()
}

fn refusal(name: &str, older: &Older) -> String {
    let kind = match older {
        Older::NeuralNetwork(_) | Older::NeuralNetworkClassifier(_) | Older::NeuralNetworkRegressor(_) => {
            "a NeuralNetwork, the form from before ML programs"
        }
        Older::Pipeline(_) | Older::PipelineClassifier(_) | Older::PipelineRegressor(_) => {
            "a pipeline of models"
        }
        Older::TreeEnsembleClassifier(_) | Older::TreeEnsembleRegressor(_) => "an ensemble of trees",
        Older::CustomModel(_) => "a custom model, whose code is not in it",
        Older::LinkedModel(_) => "a link to another model",
        Older::SerializedModel(_) => "a model in a form that only Apple's library reads",
    };
    format!(
        "{name} is {kind}; only ML programs are supported: convert it again with minimum_deployment_target iOS15 or later"
    )
}

/// The content of a program file.
fn read(path: &Path, name: &str) -> Result<Vec<u8>, EngineError> {
    let unreadable =
        |error| EngineError::new(ErrorKind::ModelUnavailable, format!("read {name}")).because(error);
    let length = fs::metadata(path).map_err(unreadable)?.len();
    if length > MAX_PROGRAM_BYTES {
        return Err(invalid_model(format!(
            "the program of {name} has {length} bytes, more than {MAX_PROGRAM_BYTES}"
        )));
    }
    fs::read(path).map_err(unreadable)
}
