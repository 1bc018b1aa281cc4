//! Whisper in three models, as WhisperKit publishes it: `MelSpectrogram` computes features of samples, `AudioEncoder` encodes them,
//! `TextDecoder` generates text.

use std::sync::Arc;

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    generate::Decoder,
    repository::Repository,
    speech::{
        alignment::Head,
        mel::LogMel,
        whisper::{Networks, Windows},
    },
};
use ndarray::{ArrayD, IxDyn};

use super::{SPECTROGRAM, Stage, cached::Shape, log_mel, model};
use crate::{drivers::Models, model::Model};

/// Name of the encoder.
pub(super) const ENCODER: &str = "AudioEncoder";
/// Name of the decoder.
pub(super) const DECODER: &str = "TextDecoder";

/// The three models.
#[derive(Debug)]
pub struct WhisperKit {
    features: LogMel,
    /// Absent if the repository leaves features to the host.
    spectrogram: Option<Stage>,
    encoder: Stage,
    decoder: Arc<dyn Model>,
    shape: Shape,
}

impl WhisperKit {
    /// Loads the models of a folder. An error if they do not match.
    pub fn load(models: &Models, folder: &str, repository: &Repository) -> Result<Self, EngineError> {
        let wanted = |name: &str| {
            model(models, folder, name)?.ok_or_else(|| {
                invalid_model(format!("the repository lacks {name}, one of the models of Whisper"))
            })
        };
        let encoder = Stage::of(wanted(ENCODER)?)?;
        let decoder = wanted(DECODER)?;
        let spectrogram = model(models, folder, SPECTROGRAM)?.map(Stage::of).transpose()?;
        let (&[1, bands, 1, frames] | &[1, bands, frames]) = encoder.takes.as_slice() else {
            return Err(invalid_model(format!(
                "{} takes {:?}, where [1, bands, 1, frames] is supported",
                encoder.model.name(),
                encoder.takes
            )));
        };
        let features = log_mel(repository, encoder.model.as_ref(), (bands, frames))?;
        if let Some(spectrogram) = &spectrogram
            && spectrogram.takes.iter().product::<usize>() != features.window
        {
            return Err(invalid_model(format!(
                "{} takes {:?}, a window has {} samples",
                spectrogram.model.name(),
                spectrogram.takes,
                features.window
            )));
        }
        let shape = Shape::of(decoder.as_ref())?;
        Ok(Self { features, spectrogram, encoder, decoder, shape })
    }
}

impl Networks for WhisperKit {
    fn features(&self) -> &LogMel {
        &self.features
    }

    fn longest(&self) -> Option<usize> {
        Some(self.shape.length)
    }

    fn names(&self) -> Vec<String> {
        let first = self.spectrogram.as_ref().map(|stage| &stage.model);
        let all = first.into_iter().chain([&self.encoder.model, &self.decoder]);
        all.map(|model| model.name().to_owned()).collect()
    }

    fn windows(&self, samples: Vec<f32>) -> Windows<'_> {
        let Some(spectrogram) = &self.spectrogram else {
            let log_mel = self.features.extract(&samples);
            return Box::new(move |begin| {
                self.encoder.run(self.features.window_of(&log_mel, begin).into_dyn())
            });
        };
        Box::new(move |begin| {
            let begin = begin * self.features.hop;
            let window = ArrayD::from_shape_fn(IxDyn(&[self.features.window]), |place| {
                samples.get(begin + place[0]).copied().unwrap_or(0.0)
            });
            self.encoder.run(spectrogram.run(window)?)
        })
    }

    fn decoder(&self, states: ArrayD<f32>, _heads: &[Head]) -> Box<dyn Decoder + '_> {
        Box::new(self.shape.begin(self.decoder.as_ref(), states))
    }

    fn without_attention(&self, _heads: &[Head]) -> Option<String> {
        Some(format!("the attention of {} is not read", self.decoder.name()))
    }
}
