//! Whisper as ONNX graphs.

use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::EngineError,
    generate::Decoder,
    speech::{
        alignment::Head,
        mel::LogMel,
        whisper::{Networks, Whisper, Windows},
    },
};
use ndarray::ArrayD;

use super::transcribe::refuse_words;
use crate::{
    seq2seq::{self, Encoded, Seq2Seq},
    task::Loader,
};

/// The encoder's input.
const FEATURES: &str = "input_features";

/// Networks as ONNX graphs.
#[derive(Debug)]
struct Graphs {
    features: LogMel,
    encoder: Graph,
    decoder: Seq2Seq,
}

impl Networks for Graphs {
    fn features(&self) -> &LogMel {
        &self.features
    }

    fn longest(&self) -> Option<usize> {
        None
    }

    fn names(&self) -> Vec<String> {
        std::iter::once(self.encoder.name().to_owned()).chain(self.decoder.names()).collect()
    }

    fn windows(&self, samples: Vec<f32>) -> Windows<'_> {
        let spectrogram = self.features.extract(&samples);
        Box::new(move |begin| {
            let feeds =
                Feeds::new().floats(FEATURES, self.features.window_of(&spectrogram, begin).into_dyn());
            self.encoder.run(feeds)?.floats("last_hidden_state")
        })
    }

    fn decoder(&self, states: ArrayD<f32>, heads: &[Head]) -> Box<dyn Decoder + '_> {
        Box::new(self.decoder.begin(Encoded { states, mask: None }).keeping(heads))
    }

    fn without_attention(&self, heads: &[Head]) -> Option<String> {
        self.decoder.without_attention(heads)
    }
}

/// Loads a repository.
pub fn load(loader: &Loader<'_>) -> Result<Whisper, EngineError> {
    let networks = Graphs {
        features: LogMel::load(&loader.repository)?,
        encoder: loader.graph(&["encoder_model"], &[FEATURES])?,
        decoder: Seq2Seq::load(loader, &seq2seq::FED)?,
    };
    let whisper = Whisper::of(&loader.repository, Box::new(networks))?;
    if let Err(why) = whisper.alignment() {
        refuse_words(loader, why)?;
    }
    Ok(whisper)
}
