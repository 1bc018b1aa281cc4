//! Speech to text: everything but the networks is the ONNX engine's.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`whisper`] | Whisper in three models, as WhisperKit publishes it |
//! | [`cached`] | its decoder, whose cache lies here |
//! | [`ctc`] | models that label every moment |

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

/// What a package's own front end is called.
const SPECTROGRAM: &str = "MelSpectrogram";

/// Loads a recogniser of speech: whichever kind the models are.
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
            "speech is written by models called {ENCODER} and {DECODER}, or by one; here are: {}",
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

/// The name of a model without its folder and its form.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The folder that a file lies in, with its slash.
fn folder(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..=end])
}

/// The path of the model of this name in a folder or below it, if it is there.
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

/// The model of this name in a folder, if it is there.
fn model(models: &Models, folder: &str, name: &str) -> Result<Option<Arc<dyn Model>>, EngineError> {
    let found = found(models, folder, name)?;
    found.map(|path| models.load(path)).transpose()
}

/// Our front end for a model that takes so many pitches at so many moments.
fn log_mel(repository: &Repository, model: &dyn Model, takes: (usize, usize)) -> Result<LogMel, EngineError> {
    let features = LogMel::fitted(repository, Some(takes))?;
    let gives = (features.pitches(), features.window / features.hop);
    if gives == takes {
        return Ok(features);
    }
    Err(invalid_model(format!(
        "preprocessor_config.json speaks of {} pitches at {} moments, {} takes {} at {}",
        gives.0,
        gives.1,
        model.name(),
        takes.0,
        takes.1
    )))
}

/// Refuses logits that are not numbers.
fn are_numbers<'l>(model: &dyn Model, mut logits: impl Iterator<Item = &'l f32>) -> Result<(), EngineError> {
    if logits.any(|logit| logit.is_nan()) {
        return Err(invalid_model(format!(
            "the logits of {} are not numbers: its weights are broken",
            model.name()
        )));
    }
    Ok(())
}

/// The dimensions of an input or output, where a model fixes all of them.
fn fixed(feature: &Feature) -> Option<(Class, Vec<usize>)> {
    let Kind::Array { class, sizes } = &feature.kind else { return None };
    let rank = sizes.rank();
    let size = |axis| sizes.most(axis).filter(|&most| sizes.holding(axis, 1) == Some(most));
    let sizes = (0..rank).map(|axis| usize::try_from(size(axis)?).ok()).collect::<Option<Vec<usize>>>();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| (*class, sizes))
}

/// Numbers as an input wants them.
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
                "{} has {} inputs and {} outputs, where one of each is known",
                model.name(),
                count(&interface.inputs),
                count(&interface.outputs)
            )));
        };
        let (class, takes) = fixed(input).ok_or_else(|| {
            invalid_model(format!("{} does not say how large its {} is", model.name(), input.name))
        })?;
        let (input, output) = (input.name.clone(), output.name.clone());
        Ok(Self { model, input, class, takes, output })
    }

    /// What it makes of numbers, which it gets in its own dimensions.
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

/// What a model makes of one tensor.
fn through(model: &dyn Model, input: &str, given: Tensor, output: &str) -> Result<ArrayD<f32>, EngineError> {
    let mut outputs = model.run(vec![(input.to_owned(), given)], &mut model.start()?)?;
    let output = given_as(model, &mut outputs, output)?;
    if output.iter().any(|number| number.is_nan()) {
        return Err(invalid_model(format!(
            "{} gives what is not a number: its weights are broken",
            model.name()
        )));
    }
    Ok(output)
}

/// An output that must be there.
fn given_as(
    model: &dyn Model,
    outputs: &mut Vec<(String, Tensor)>,
    name: &str,
) -> Result<ArrayD<f32>, EngineError> {
    let tensor =
        take(outputs, name).ok_or_else(|| invalid_model(format!("{} gives no {name}", model.name())))?;
    Ok(tensor.into_floats())
}
