//! Speech to text: Core ML networks for the code of the kit.
//!
//! | module | content |
//! | --- | --- |
//! | [`whisper`] | Whisper in three models, as WhisperKit publishes it |
//! | [`cached`] | its decoder, whose cache is in host memory |
//! | [`ctc`] | models that label every frame |

pub mod cached;
pub mod ctc;
pub mod whisper;

use std::sync::Arc;

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    pipeline::Pipeline,
    repository::Repository,
    speech::{ctc::Ctc, mel::LogMel, transcribe::SpeechRecognition, whisper::Whisper},
};
use ndarray::{ArrayD, IxDyn};

use super::Models;
use crate::{
    model::{Model, Tensor, take},
    package::interface::{Feature, Kind},
    program::types::Class,
};
use ctc::CtcModel;
use whisper::{DECODER, ENCODER, WhisperKit};

/// Name of a package's feature extractor.
const SPECTROGRAM: &str = "MelSpectrogram";

/// Loads a model that transcribes speech, of any kind.
pub fn load(models: &Models) -> Result<Box<dyn Pipeline>, EngineError> {
    let wanted = models.text("model").map(|path| path.trim_end_matches('/'));
    if let Some(path) = wanted.filter(|path| models.names().contains(path)) {
        return labeller(models, path);
    }
    let inside = wanted.map_or_else(String::new, |folder| format!("{folder}/"));
    let either = found(models, &inside, ENCODER)?.or(found(models, &inside, DECODER)?);
    if let Some(path) = either {
        let folder = folder(path);
        let repository = models.repository(folder)?;
        let networks = WhisperKit::load(models, folder, &repository)?;
        let whisper = Whisper::of(&repository, Box::new(networks))?;
        return Ok(Box::new(SpeechRecognition(whisper)));
    }
    let others =
        models.names().into_iter().filter(|path| path.starts_with(&inside) && stem(path) != SPECTROGRAM);
    match others.collect::<Vec<_>>().as_slice() {
        [path] => labeller(models, path),
        several => Err(invalid_model(format!(
            "speech needs the models {ENCODER} and {DECODER}, or a single one; there are: {}",
            several.join(", ")
        ))),
    }
}

fn labeller(models: &Models, path: &str) -> Result<Box<dyn Pipeline>, EngineError> {
    let folder = folder(path);
    let repository = models.repository(folder)?;
    let labels = CtcModel::load(models, path, folder, &repository)?;
    Ok(Box::new(SpeechRecognition(Ctc::of(&repository, Box::new(labels))?)))
}

/// The name of a model without its folder and suffix.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The folder of a file, with its slash.
fn folder(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..=end])
}

/// The path of the model with this name in a folder or below it, if it exists.
fn found<'m>(models: &'m Models, folder: &str, name: &str) -> Result<Option<&'m str>, EngineError> {
    let mut called = models.names().into_iter().filter(|path| path.starts_with(folder) && stem(path) == name);
    let first = called.next();
    match (first, called.next()) {
        (Some(one), Some(other)) => Err(invalid_model(format!(
            "there are several models {name}: {one}, {other}; name their folder with the setting model"
        ))),
        _ => Ok(first),
    }
}

/// Loads the model with this name in a folder, if it exists.
fn model(models: &Models, folder: &str, name: &str) -> Result<Option<Arc<dyn Model>>, EngineError> {
    let found = found(models, folder, name)?;
    found.map(|path| models.load(path)).transpose()
}

/// Log-mel features for a model that takes this number of bands and frames.
fn log_mel(repository: &Repository, model: &dyn Model, takes: (usize, usize)) -> Result<LogMel, EngineError> {
    let features = LogMel::fitted(repository, Some(takes))?;
    let gives = (features.bands(), features.window / features.hop);
    if gives == takes {
        return Ok(features);
    }
    Err(invalid_model(format!(
        "preprocessor_config.json has {} mel bands and {} frames, {} takes {} and {}",
        gives.0,
        gives.1,
        model.name(),
        takes.0,
        takes.1
    )))
}

/// Rejects logits that contain NaN.
fn are_numbers<'l>(model: &dyn Model, mut logits: impl Iterator<Item = &'l f32>) -> Result<(), EngineError> {
    if logits.any(|logit| logit.is_nan()) {
        return Err(invalid_model(format!(
            "the logits of {} are not numbers: its weights are broken",
            model.name()
        )));
    }
    Ok(())
}

/// The dimensions of an input or output, if all are fixed.
fn fixed(feature: &Feature) -> Option<(Class, Vec<usize>)> {
    let Kind::Array { class, sizes } = &feature.kind else { return None };
    let rank = sizes.rank();
    let size = |axis| sizes.most(axis).filter(|&most| sizes.holding(axis, 1) == Some(most));
    let sizes = (0..rank).map(|axis| usize::try_from(size(axis)?).ok()).collect::<Option<Vec<usize>>>();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| (*class, sizes))
}

/// A tensor with the element class of an input.
fn tensor(class: Class, numbers: ArrayD<f32>) -> Tensor {
    match class {
        Class::Float => Tensor::Floats(numbers),
        _ => Tensor::Ints(numbers.mapv(|number| number as i64)),
    }
}

/// A model of one input and one output.
#[derive(Debug)]
struct Stage {
    model: Arc<dyn Model>,
    input: String,
    class: Class,
    /// Dimensions of the input.
    takes: Vec<usize>,
    output: String,
}

impl Stage {
    fn of(model: Arc<dyn Model>) -> Result<Self, EngineError> {
        let interface = model.interface();
        let ([input], [output]) = (interface.inputs.as_slice(), interface.outputs.as_slice()) else {
            let count = |features: &[Feature]| features.len();
            return Err(invalid_model(format!(
                "{} has {} inputs and {} outputs, where one of each is supported",
                model.name(),
                count(&interface.inputs),
                count(&interface.outputs)
            )));
        };
        let (class, takes) = fixed(input)
            .ok_or_else(|| invalid_model(format!("{} has no fixed size of {}", model.name(), input.name)))?;
        let (input, output) = (input.name.clone(), output.name.clone());
        Ok(Self { model, input, class, takes, output })
    }

    /// The output for an array, which is reshaped to the input's dimensions.
    fn run(&self, numbers: ArrayD<f32>) -> Result<ArrayD<f32>, EngineError> {
        let shape = numbers.shape().to_vec();
        let numbers = numbers.into_shape_with_order(IxDyn(&self.takes)).map_err(|_| {
            invalid_model(format!(
                "{} takes {:?} as {}, not {shape:?}",
                self.model.name(),
                self.takes,
                self.input
            ))
        })?;
        through(self.model.as_ref(), &self.input, tensor(self.class, numbers), &self.output)
    }
}

/// The output for one tensor.
fn through(model: &dyn Model, input: &str, given: Tensor, output: &str) -> Result<ArrayD<f32>, EngineError> {
    let mut outputs = model.run(vec![(input.to_owned(), given)], &mut model.start()?)?;
    let output = given_as(model, &mut outputs, output)?;
    if output.iter().any(|number| number.is_nan()) {
        return Err(invalid_model(format!("{} gives NaN: its weights are broken", model.name())));
    }
    Ok(output)
}

/// A required output.
fn given_as(
    model: &dyn Model,
    outputs: &mut Vec<(String, Tensor)>,
    name: &str,
) -> Result<ArrayD<f32>, EngineError> {
    let tensor =
        take(outputs, name).ok_or_else(|| invalid_model(format!("{} gives no {name}", model.name())))?;
    Ok(tensor.into_floats())
}
