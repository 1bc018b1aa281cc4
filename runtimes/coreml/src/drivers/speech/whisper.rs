//! Whisper in three models, as WhisperKit publishes it: `MelSpectrogram` hears samples, `AudioEncoder` listens to what it heard,
//! `TextDecoder` writes.

use std::sync::Arc;

use island_protocol::job::Failure;
use island_runtimes_onnx::{
    generate::Decoder,
    repository::Repository,
    run::invalid_model,
    speech::{
        mel::Ear,
        whisper::{Networks, Windows},
    },
};
use ndarray::{ArrayD, IxDyn};

use super::{SPECTROGRAM, Stage, cached::Shape, ear, model};
use crate::{drivers::Models, model::Model};

/// What the model that listens is called.
pub(super) const ENCODER: &str = "AudioEncoder";
/// What the model that writes is called.
pub(super) const DECODER: &str = "TextDecoder";

/// The three models.
#[derive(Debug)]
pub struct WhisperKit {
    ear: Ear,
    /// Absent where the repository leaves hearing to the host.
    spectrogram: Option<Stage>,
    encoder: Stage,
    decoder: Arc<dyn Model>,
    shape: Shape,
}

impl WhisperKit {
    /// Loads the models of a folder, which must fit one another.
    pub fn load(models: &Models, folder: &str, repository: &Repository) -> Result<Self, Failure> {
        let wanted = |name: &str| {
            model(models, folder, name)?.ok_or_else(|| {
                invalid_model(format!("the repository lacks {name}, one of the models of Whisper"))
            })
        };
        let encoder = Stage::of(wanted(ENCODER)?)?;
        let decoder = wanted(DECODER)?;
        let spectrogram = model(models, folder, SPECTROGRAM)?.map(Stage::of).transpose()?;
        let (&[1, pitches, 1, moments] | &[1, pitches, moments]) = encoder.takes.as_slice() else {
            return Err(invalid_model(format!(
                "{} takes {:?}, where [1, pitches, 1, moments] is known",
                encoder.model.name(),
                encoder.takes
            )));
        };
        let ear = ear(repository, encoder.model.as_ref(), (pitches, moments))?;
        if let Some(spectrogram) = &spectrogram
            && spectrogram.takes.iter().product::<usize>() != ear.window
        {
            return Err(invalid_model(format!(
                "{} takes {:?}, a window has {} samples",
                spectrogram.model.name(),
                spectrogram.takes,
                ear.window
            )));
        }
        let shape = Shape::of(decoder.as_ref())?;
        Ok(Self { ear, spectrogram, encoder, decoder, shape })
    }
}

impl Networks for WhisperKit {
    fn ear(&self) -> &Ear {
        &self.ear
    }

    fn longest(&self) -> Option<usize> {
        Some(self.shape.length)
    }

    fn names(&self) -> Vec<String> {
        let first = self.spectrogram.as_ref().map(|stage| &stage.model);
        let all = first.into_iter().chain([&self.encoder.model, &self.decoder]);
        all.map(|model| model.name().to_owned()).collect()
    }

    fn hear(&self, samples: Vec<f32>) -> Windows<'_> {
        let Some(spectrogram) = &self.spectrogram else {
            let heard = self.ear.hear(&samples);
            return Box::new(move |begin| self.encoder.run(self.ear.window_of(&heard, begin).into_dyn()));
        };
        Box::new(move |begin| {
            let begin = begin * self.ear.hop;
            let window = ArrayD::from_shape_fn(IxDyn(&[self.ear.window]), |place| {
                samples.get(begin + place[0]).copied().unwrap_or(0.0)
            });
            self.encoder.run(spectrogram.run(window)?)
        })
    }

    fn decoder(&self, states: ArrayD<f32>) -> Box<dyn Decoder + '_> {
        Box::new(self.shape.begin(self.decoder.as_ref(), states))
    }
}
