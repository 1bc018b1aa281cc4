//! SpeechT5: an encoder reads the text, a decoder generates a spectrogram step by step until it signals the end, and a graph of the
//! postnet and the vocoder computes the samples.
//!
//! The decoder was trained with a dropout that stays active at inference: without it, it never changes its output. The published graphs contain
//! it with its own random numbers, so nothing is added here, and a text sounds slightly different each time.

use island_runtimes_graph::{Feed, Feeds, Graph, Results, filled};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job},
    keys::{CONFIG, FEATURE_EXTRACTOR},
    pipeline::{Pipeline, TEXT},
    speech::features,
    values::{count, read, sampling_rate},
};
use ndarray::{Array2, Array3, ArrayD};
use ort::value::DynValue;
use serde_json::{Value, json};

use super::{characters::Characters, speaker};
use crate::{
    seq2seq::{Cache, Seq2Seq},
    task::Loader,
};

/// The vocoder: in the repository, or as a repository of its own in a folder.
const VOCODERS: [&str; 4] = ["decoder_postnet_and_vocoder", "vocoder", "vocoder/onnx/model", "vocoder/model"];
/// Inputs of the decoder beside the cache.
const FED: [&str; 5] = [
    "speaker_embeddings",
    "encoder_hidden_states",
    "encoder_attention_mask",
    "output_sequence",
    "use_cache_branch",
];
/// The settings of such a repository.
const VOCODER: &str = "vocoder/config.json";

/// A loaded model.
#[derive(Debug)]
pub struct SpeechT5 {
    encoder: Graph,
    decoder: Seq2Seq,
    vocoder: Graph,
    characters: Characters,
    speaker: Option<Vec<f32>>,
    sizes: Sizes,
    bounds: Bounds,
    rate: u32,
}

/// Settings of `config.json`.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Mel bands of a spectrogram.
    bands: usize,
    /// Frames of one step.
    frames: usize,
    /// Maximum number of steps of the decoder.
    steps: usize,
    /// Length of a speaker embedding.
    speaker: usize,
}

/// When generation ends.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The sum that the end probabilities of one step must reach.
    threshold: f64,
    /// Minimum and maximum number of frames per character.
    least: f64,
    most: f64,
}

impl SpeechT5 {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let config = &loader.repository.config;
        let number = |name: &str, otherwise: usize, most: usize| {
            let within = |value: &Value| count(value).filter(|number| (1..=most).contains(number));
            let stated = read(CONFIG.file, config, name, within);
            let stated = stated.map_err(|refused| refused.followed_by(format!("1 to {most}")))?;
            Ok::<_, EngineError>(stated.unwrap_or(otherwise))
        };
        let sizes = Sizes {
            bands: number("num_mel_bins", 80, 1024)?,
            frames: number("reduction_factor", 2, 64)?,
            steps: number("max_speech_positions", 4000, 16_384)?,
            speaker: number("speaker_embedding_dim", 512, 1 << 16)?,
        };
        let graph = |stems: &[&str], what: &str, fed: &[&str]| {
            let found = stems.iter().find_map(|stem| loader.file(stem));
            let missing = || {
                invalid_model(format!(
                    "the repository has no {what}: none of its files is the graph {}",
                    stems.join(" or ")
                ))
            };
            let graph = loader.load(&found.ok_or_else(missing)?)?;
            graph.require_fed(fed)?;
            Ok::<_, EngineError>(graph)
        };
        let decoder = Seq2Seq::load(loader, &FED)?;
        if decoder.steps().is_none() {
            return Err(invalid_model(
                "SpeechT5 needs a cache: decoder_model_merged, or decoder_model with decoder_with_past_model, is missing",
            ));
        }
        let settings = features(&loader.repository)?;
        let of_vocoder = loader.repository.json(VOCODER)?.unwrap_or_default();
        let rate = match sampling_rate(VOCODER, &of_vocoder)? {
            None => sampling_rate(FEATURE_EXTRACTOR.file, &settings)?,
            stated => stated,
        };
        Ok(Self {
            encoder: graph(&["encoder_model"], "encoder", &["input_ids"])?,
            decoder,
            vocoder: graph(&VOCODERS, "vocoder", &["spectrogram"])?,
            characters: Characters::load(loader)?,
            speaker: speaker::of_cargo(loader, sizes.speaker)?,
            bounds: Bounds::of(&loader.settings, sizes)?,
            sizes,
            rate: rate.unwrap_or(16_000),
        })
    }

    /// The spectrogram of a text, `[frames, bands]`, before the postnet.
    fn spectrogram(&self, ids: &[i64], speaker: &[f32], job: &Job) -> Result<Array2<f32>, EngineError> {
        let Sizes { bands, frames, .. } = self.sizes;
        let text = Array2::from_shape_fn((1, ids.len()), |(_, place)| ids[place]);
        let encoded = self.encoder.run(Feeds::new().ints("input_ids", text.into_dyn()))?;
        let names = ["encoder_outputs", "last_hidden_state"];
        let length = encoded.first_floats(&names)?.shape().get(1).copied().unwrap_or(0);
        let states = names.iter().find_map(|name| encoded.get(name));
        let states =
            states.ok_or_else(|| invalid_model(format!("{} gives no states", self.encoder.name())))?;
        let speaker = Array2::from_shape_fn((1, speaker.len()), |(_, place)| speaker[place]).into_dyn();
        let (least, most) = self.bounds.steps(length, self.sizes);
        let (first, rest) =
            self.decoder.steps().ok_or_else(|| invalid_model("the decoder takes no cache"))?;
        let mut cache = Cache::default();
        let mut written: Option<DynValue> = None;
        let mut spectrogram: Vec<f32> = Vec::new();
        for step in 1..=most {
            job.step()?;
            let graph = if step == 1 { first } else { rest };
            let mut feeds = Feeds::new()
                .floats("speaker_embeddings", speaker.clone())
                .held("encoder_hidden_states", states)
                .with("use_cache_branch", Feed::Bools(filled(&[1], step > 1)));
            feeds = match encoded.get("encoder_attention_mask") {
                Some(mask) => feeds.held("encoder_attention_mask", mask),
                None => feeds.ints("encoder_attention_mask", filled(&[1, length], 1)),
            };
            feeds = match &written {
                Some(written) => feeds.held("output_sequence", written),
                // Decoding begins with a frame of zeros.
                None => feeds.floats("output_sequence", Array3::zeros((1, 1, bands)).into_dyn()),
            };
            let results = graph.run(cache.feed(feeds, graph))?;
            spectrogram.extend(finite(&results, "spectrum", frames * bands, graph)?);
            let ends: f64 = results.floats("prob")?.iter().map(|&share| f64::from(share)).sum();
            if step >= least && ends >= self.bounds.threshold {
                break;
            }
            let mut others = cache.keep(results.into_values(), step == 1);
            let place = others.iter().position(|(name, _)| name == "output_sequence_out");
            let place = place
                .ok_or_else(|| invalid_model(format!("{} gives no output_sequence_out", graph.name())))?;
            written = Some(others.swap_remove(place).1);
        }
        Array2::from_shape_vec((spectrogram.len() / bands, bands), spectrogram)
            .map_err(|error| invalid_model("the decoder's frames have different shapes").because(error))
    }
}

impl Bounds {
    fn of(settings: &Value, sizes: Sizes) -> Result<Self, EngineError> {
        let number = |name: &str, otherwise: f64, most: f64| {
            let number = settings.get(name).map_or(Some(otherwise), Value::as_f64);
            let fits = number.filter(|number| (0.0..=most).contains(number));
            fits.ok_or_else(|| {
                invalid_model(format!("{name} of the Cargo's settings is not a number from 0 to {most}"))
            })
        };
        Ok(Self {
            threshold: number("threshold", 0.5, sizes.frames as f64)?,
            least: number("minlenratio", 0.0, 100.0)?,
            most: number("maxlenratio", 20.0, 100.0)?,
        })
    }

    /// Minimum and maximum number of steps for a text of this length, within the maximum of the decoder.
    fn steps(&self, length: usize, sizes: Sizes) -> (usize, usize) {
        let steps = |ratio: f64| (length as f64 * ratio / sizes.frames as f64) as usize;
        let least = steps(self.least).clamp(1, sizes.steps);
        (least, steps(self.most).clamp(least, sizes.steps))
    }
}

impl Pipeline for SpeechT5 {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let input = super::parse(input)?;
        let speaker = match input.speaker_embeddings {
            Some(numbers) => speaker::of_input(numbers, self.sizes.speaker)?,
            None => self.speaker.clone().ok_or_else(|| {
                invalid_input("speaker_embeddings are missing: this Cargo has no speaker of its own")
            })?,
        };
        let ids = self.characters.read(&input.text)?;
        let spectrogram = self.spectrogram(&ids, &speaker, job)?;
        job.step()?;
        let on_token = self.vocoder.run(Feeds::new().floats("spectrogram", spectrogram.into_dyn()))?;
        let samples: Vec<f32> = on_token.floats("waveform")?.into_iter().collect();
        Ok(Answer::of(super::spoken(&samples, self.rate), ids.len() as u64))
    }

    /// The vocoder comes after more frames than a trial has.
    fn try_rest(&self) -> Result<(), EngineError> {
        let silence = Array2::zeros((self.sizes.frames, self.sizes.bands));
        self.vocoder.run(Feeds::new().floats("spectrogram", silence.into_dyn()))?.floats("waveform").map(drop)
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "text": TEXT, "speaker_embeddings": vec![1.0; self.sizes.speaker] }))
    }

    fn graphs(&self) -> Vec<String> {
        let own = |graph: &Graph| graph.name().to_owned();
        [vec![own(&self.encoder)], self.decoder.names(), vec![own(&self.vocoder)]].concat()
    }
}

/// `count` numbers of an output. An error if one is not finite.
fn finite(results: &Results, name: &str, count: usize, graph: &Graph) -> Result<ArrayD<f32>, EngineError> {
    let array = results.floats(name)?;
    if array.len() != count {
        return Err(invalid_model(format!(
            "{name} of {} has {} numbers, not {count}",
            graph.name(),
            array.len()
        )));
    }
    if array.iter().any(|number| !number.is_finite()) {
        return Err(invalid_model(format!(
            "{name} of {} is not finite: its weights are broken",
            graph.name()
        )));
    }
    Ok(array)
}
