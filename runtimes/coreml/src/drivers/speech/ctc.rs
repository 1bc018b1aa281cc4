//! Models that label every frame, of samples or of features.

use std::sync::Arc;

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::CONFIG,
    repository::Repository,
    speech::{self, ctc::AcousticModel, mel::LogMel},
    values::{count, read},
};
use ndarray::{Array1, Array2, ArrayD, Axis, Ix2, IxDyn, Slice};
use serde_json::Value;

use super::{SPECTROGRAM, Stage, are_numbers, fixed, given_as, log_mel, model, tensor};
use crate::{
    drivers::Models,
    model::{Model, Tensor},
    package::interface::{Feature, Kind, Sizes},
    program::types::Class,
};

/// Maximum number of samples of a run.
const MAX_SAMPLES: usize = 1 << 24;

/// A model of labels.
#[derive(Debug)]
pub struct CtcModel {
    model: Arc<dyn Model>,
    input: String,
    frontend: Frontend,
    /// A mask of valid samples, with its element class.
    mask: Option<(String, Class)>,
    output: String,
    /// Widths and strides of the convolutions of samples.
    convolutions: Vec<(usize, usize)>,
}

/// What a model reads.
#[derive(Debug)]
enum Frontend {
    /// Samples, in these dimensions, the last of which is time.
    Samples(Sizes),
    /// Features of the package's own extractor.
    Spectrogram(Stage, Features),
    /// Log-mel features, computed here.
    LogMel(Box<LogMel>, Features),
}

/// Features of a window, and its number of samples.
#[derive(Debug)]
struct Features {
    class: Class,
    takes: Vec<usize>,
    window: usize,
    /// Samples of one label.
    stride: usize,
}

impl CtcModel {
    /// Loads a model, with the package's feature extractor if it needs one.
    pub fn load(
        models: &Models,
        path: &str,
        folder: &str,
        repository: &Repository,
    ) -> Result<Self, EngineError> {
        let model = models.load(path)?;
        let interface = model.interface();
        let (masks, inputs): (Vec<&Feature>, Vec<&Feature>) =
            interface.inputs.iter().partition(|input| input.name.contains("mask"));
        let [input] = inputs.as_slice() else {
            return Err(invalid_model(format!(
                "{} takes {} inputs, where one of audio is supported",
                model.name(),
                inputs.len()
            )));
        };
        let output = interface.outputs.iter().find(|output| output.name.to_lowercase().contains("logits"));
        let output = output.or_else(|| interface.outputs.first().filter(|_| interface.outputs.len() == 1));
        let output = output.ok_or_else(|| invalid_model(format!("{} gives no logits", model.name())))?;
        let Kind::Array { class, sizes } = &input.kind else {
            return Err(invalid_model(format!("{} takes {}, which is not audio", model.name(), input.name)));
        };
        let is_time_alone = (0..sizes.rank().saturating_sub(1)).all(|axis| sizes.holding(axis, 1) == Some(1));
        let frontend = if is_time_alone && *class == Class::Float {
            Frontend::Samples(sizes.clone())
        } else {
            let (class, takes) = fixed(input).ok_or_else(|| unknown(model.as_ref(), input))?;
            Self::features(models, folder, repository, model.as_ref(), (class, takes), output)?
        };
        let mask = match masks.as_slice() {
            [] => None,
            [mask] => match &mask.kind {
                Kind::Array { class, .. } => Some((mask.name.clone(), *class)),
                _ => return Err(unknown(model.as_ref(), mask)),
            },
            [_, other, ..] => return Err(unknown(model.as_ref(), other)),
        };
        let list = |name: &str| {
            let counts = |all: &Value| all.as_array()?.iter().map(count).collect::<Option<Vec<usize>>>();
            Ok::<_, EngineError>(read(CONFIG.file, &repository.config, name, counts)?.unwrap_or_default())
        };
        let convolutions = list("conv_kernel")?.into_iter().zip(list("conv_stride")?).collect();
        let (input, output) = (input.name.clone(), output.name.clone());
        Ok(Self { model, input, frontend, mask, output, convolutions })
    }

    fn features(
        models: &Models,
        folder: &str,
        repository: &Repository,
        own: &dyn Model,
        (class, takes): (Class, Vec<usize>),
        output: &Feature,
    ) -> Result<Frontend, EngineError> {
        let (&[1, bands, 1, frames] | &[1, bands, frames]) = takes.as_slice() else {
            return Err(invalid_model(format!(
                "{} takes {takes:?}, where [1, bands, frames] is supported",
                own.name()
            )));
        };
        let labels = fixed(output).and_then(|(_, sizes)| sizes.get(sizes.len().checked_sub(2)?).copied());
        let labels = labels.filter(|&labels| (1..=frames).contains(&labels));
        let labels =
            labels.ok_or_else(|| invalid_model(format!("{} has no fixed number of labels", own.name())))?;
        let stride = |samples: usize| (samples as f64 / labels as f64).round().max(1.0) as usize;
        let features =
            |window: usize| Features { class, takes: takes.clone(), window, stride: stride(window) };
        if let Some(spectrogram) = model(models, folder, SPECTROGRAM)? {
            let stage = Stage::of(spectrogram)?;
            let window = stage.takes.iter().product();
            return Ok(Frontend::Spectrogram(stage, features(window)));
        }
        let settings = speech::features(repository)?;
        if settings.get("feature_extractor_type").and_then(Value::as_str) != Some("WhisperFeatureExtractor") {
            return Err(invalid_model(format!(
                "{} takes features, and neither a model {SPECTROGRAM} nor preprocessor_config.json defines them",
                own.name()
            )));
        }
        let log_mel = log_mel(repository, own, (bands, frames))?;
        let window = log_mel.window;
        Ok(Frontend::LogMel(Box::new(log_mel), features(window)))
    }

    /// The number of samples of the input for `count` samples, padded with silence.
    fn window(&self, count: usize) -> Result<usize, EngineError> {
        match &self.frontend {
            Frontend::Spectrogram(_, features) | Frontend::LogMel(_, features) => Ok(features.window),
            Frontend::Samples(sizes) => {
                let length = sizes.holding(sizes.rank() - 1, count as u64);
                let length = length.and_then(|length| usize::try_from(length).ok());
                length.filter(|&length| length <= MAX_SAMPLES).ok_or_else(|| {
                    invalid_model(format!(
                        "{} takes no audio of {count} samples: {sizes:?}",
                        self.model.name()
                    ))
                })
            }
        }
    }

    /// The number of labels of `count` samples, of `rows` for a padded window.
    fn count(&self, samples: usize, window: usize, rows: usize) -> usize {
        if samples >= window {
            return rows;
        }
        let of = |samples: usize| {
            self.convolutions.iter().fold(samples, |length, &(width, step)| {
                length.checked_sub(width).map_or(0, |rest| rest / step.max(1) + 1)
            })
        };
        let exact = of(samples);
        let count = if !self.convolutions.is_empty() && of(window) == rows {
            exact
        } else {
            (samples * rows).div_ceil(window.max(1))
        };
        count.clamp(1, rows)
    }

    /// The input of the model.
    fn sound(&self, samples: Vec<f32>) -> Result<Tensor, EngineError> {
        let flat = |samples: Vec<f32>| Array1::from_vec(samples).into_dyn();
        let (features, class, takes) = match &self.frontend {
            Frontend::Samples(sizes) => {
                let mut takes = vec![1; sizes.rank()];
                takes[sizes.rank() - 1] = samples.len();
                (flat(samples), Class::Float, takes)
            }
            Frontend::Spectrogram(stage, features) => {
                (stage.run(flat(samples))?, features.class, features.takes.clone())
            }
            Frontend::LogMel(log_mel, features) => {
                (log_mel.extract(&samples).into_dyn(), features.class, features.takes.clone())
            }
        };
        let count = features.len();
        let features = features.into_shape_with_order(IxDyn(&takes)).map_err(|_| {
            invalid_model(format!(
                "{} takes {takes:?} as {}, not {count} numbers",
                self.model.name(),
                self.input
            ))
        })?;
        Ok(tensor(class, features))
    }
}

fn unknown(model: &dyn Model, input: &Feature) -> EngineError {
    invalid_model(format!("{} needs the unknown input {}", model.name(), input.name))
}

impl AcousticModel for CtcModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn longest(&self) -> Option<usize> {
        match &self.frontend {
            Frontend::Samples(sizes) => {
                sizes.most(sizes.rank() - 1).and_then(|most| usize::try_from(most).ok())
            }
            Frontend::Spectrogram(_, features) | Frontend::LogMel(_, features) => Some(features.window),
        }
    }

    fn of_features(&self) -> Option<usize> {
        match &self.frontend {
            Frontend::Samples(_) => None,
            Frontend::Spectrogram(_, features) | Frontend::LogMel(_, features) => Some(features.stride),
        }
    }

    fn logits(&self, samples: &[f32]) -> Result<Array2<f32>, EngineError> {
        let (model, window) = (self.model.as_ref(), self.window(samples.len())?);
        let mut padded = samples.to_vec();
        padded.resize(window, 0.0);
        let mut inputs = vec![(self.input.clone(), self.sound(padded)?)];
        if let Some((name, class)) = &self.mask {
            let counts = |place: IxDyn| f32::from(u8::from(place[1] < samples.len()));
            inputs.push((name.clone(), tensor(*class, ArrayD::from_shape_fn(IxDyn(&[1, window]), counts))));
        }
        let mut outputs = model.run(inputs, &mut model.start()?)?;
        let mut logits = given_as(model, &mut outputs, &self.output)?;
        let shape = logits.shape().to_vec();
        while logits.ndim() > 2 && logits.shape()[0] == 1 {
            logits.index_axis_inplace(Axis(0), 0);
        }
        let logits = logits.into_dimensionality::<Ix2>().ok().filter(|logits| !logits.is_empty());
        let logits = logits.ok_or_else(|| {
            invalid_model(format!("{} gives {} {shape:?}, not one row per frame", model.name(), self.output))
        })?;
        are_numbers(model, logits.iter())?;
        let count = self.count(samples.len(), window, logits.nrows());
        Ok(logits.slice_axis(Axis(0), Slice::from(..count)).to_owned())
    }
}
