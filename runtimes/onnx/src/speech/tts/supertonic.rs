//! Supertonic: graphs predict how long a text takes, encode it, remove noise from a latent sound in some steps, and decode the sound.
//!
//! | module | content |
//! | --- | --- |
//! | [`letters`] | a text as ids of its characters |
//! | [`sentences`] | a long text as the parts that are spoken one after the other |
//! | [`voices`] | the style vectors of the voices |
//!
//! It reads characters: no phonemizer is needed. The noise depends on the seed alone, so the same text has the same sound.

mod letters;
mod sentences;
mod voices;

use std::collections::BTreeMap;

use island_runtimes_graph::{Feeds, Graph, filled};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    noise,
    pipeline::{Pipeline, TEXT},
    repository::Repository,
    values::read,
};
use ndarray::{Array2, Array3};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::task::Loader;
use letters::Letters;
use voices::Voice;

/// Its settings, in the folder of the graphs or beside it.
const SETTINGS: [&str; 2] = ["onnx/tts.json", "tts.json"];
/// The language of texts whose language is unknown.
const UNKNOWN: &str = "na";
/// Maximum number of characters that are spoken at once.
const PART: usize = 300;
/// The same for Korean, whose characters are syllables.
const KOREAN_PART: usize = 120;
/// Silence between parts, seconds.
const PAUSE: f32 = 0.3;
/// Maximum length of a part, seconds. Longer ones are the fault of the weights.
const MAX_SECONDS: f32 = 120.0;
/// Maximum number of numbers of the latent sound of a part. The published model has a quarter of a million for the longest.
const MAX_NUMBERS: usize = 1 << 26;
/// How fast the model speaks, how fast it may, and the steps that it was published with.
const SPEED: f32 = 1.05;
const SPEEDS: std::ops::RangeInclusive<f32> = 0.7..=2.0;
const STEPS: usize = 8;
const MAX_STEPS: usize = 100;

/// A loaded model.
#[derive(Debug)]
pub struct Supertonic {
    duration: Graph,
    encoder: Graph,
    estimator: Graph,
    vocoder: Graph,
    letters: Letters,
    voices: BTreeMap<String, Voice>,
    sizes: Sizes,
    /// Languages that texts may have. Empty for models of one language, whose texts are not marked.
    languages: Vec<String>,
}

/// Settings of `tts.json`.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Samples per second.
    rate: u32,
    /// Samples of one latent vector.
    chunk: usize,
    /// Numbers of one latent vector.
    width: usize,
}

#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    voice: Option<String>,
    language: Option<String>,
    speed: Option<f32>,
    steps: Option<usize>,
    #[serde(default)]
    seed: u64,
}

/// A checked request.
struct Manner<'s> {
    voice: &'s Voice,
    language: Option<&'s str>,
    speed: f32,
    steps: usize,
    seed: u64,
}

/// Inputs of each step from noise to sound.
const OF_STEPS: [&str; 7] =
    ["noisy_latent", "text_emb", "style_ttl", "text_mask", "latent_mask", "current_step", "total_step"];

/// Whether a repository holds such a model.
pub(super) fn is_here(repository: &Repository) -> bool {
    SETTINGS.iter().any(|name| repository.path(name).is_some())
}

/// The languages that a Cargo's entry names.
fn languages(settings: &Value) -> Result<Vec<String>, EngineError> {
    let codes = |listed: &Value| {
        let codes = listed.as_array()?.iter().map(|code| code.as_str().map(str::to_owned));
        codes.collect::<Option<Vec<String>>>()
    };
    Ok(read("[engine]", settings, "languages", codes)?.unwrap_or_default())
}

impl Supertonic {
    /// Loads a repository.
    pub fn load(loader: &Loader<'_>) -> Result<Self, EngineError> {
        let repository = &loader.repository;
        let languages = languages(&loader.settings)?;
        Ok(Self {
            duration: loader.graph(&["duration_predictor"], &["text_ids", "style_dp", "text_mask"])?,
            encoder: loader.graph(&["text_encoder"], &["text_ids", "style_ttl", "text_mask"])?,
            estimator: loader.graph(&["vector_estimator"], &OF_STEPS)?,
            vocoder: loader.graph(&["vocoder"], &["latent"])?,
            letters: Letters::load(repository, &languages)?,
            voices: voices::load(repository)?,
            sizes: Sizes::load(repository)?,
            languages,
        })
    }

    fn manner<'s>(&'s self, input: &'s Input) -> Result<Manner<'s>, EngineError> {
        let names = || self.voices.keys().cloned().collect::<Vec<_>>().join(", ");
        let voice = match &input.voice {
            Some(name) => self
                .voices
                .get(name)
                .ok_or_else(|| invalid_input(format!("there is no voice {name:?}; there are {}", names())))?,
            None => {
                self.voices.values().next().ok_or_else(|| invalid_model("the repository has no voice"))?
            }
        };
        let known = |code: &str| self.languages.iter().find(|known| *known == code).map(String::as_str);
        let language = match input.language.as_deref() {
            None => known(UNKNOWN).or(self.languages.first().map(String::as_str)),
            Some(code) if self.languages.is_empty() => {
                return Err(invalid_input(format!(
                    "this model has one language: leave out language, {code:?}"
                )));
            }
            Some(code) => Some(known(code).ok_or_else(|| {
                invalid_input(format!(
                    "the language {code:?} is unknown; known: {}",
                    self.languages.join(", ")
                ))
            })?),
        };
        let speed = input.speed.unwrap_or(SPEED);
        if !SPEEDS.contains(&speed) {
            let (least, most) = SPEEDS.into_inner();
            return Err(invalid_input(format!("speed is {speed}, it must be between {least} and {most}")));
        }
        let steps = input.steps.unwrap_or(STEPS);
        if !(1..=MAX_STEPS).contains(&steps) {
            return Err(invalid_input(format!("steps is {steps}, it must be between 1 and {MAX_STEPS}")));
        }
        Ok(Manner { voice, language, speed, steps, seed: input.seed })
    }

    /// The samples of a part of a text.
    fn speak(
        &self,
        ids: &[i64],
        part: usize,
        manner: &Manner<'_>,
        job: &Job,
    ) -> Result<Vec<f32>, EngineError> {
        let width = self.sizes.width;
        let text = Array2::from_shape_fn((1, ids.len()), |(_, place)| ids[place]).into_dyn();
        let text_mask = filled(&[1, 1, ids.len()], 1.0_f32);
        let style = &manner.voice.speech;
        let feeds = Feeds::new()
            .ints("text_ids", text.clone())
            .floats("style_dp", manner.voice.duration.clone())
            .floats("text_mask", text_mask.clone());
        let seconds = first(&self.duration, feeds)?.into_iter().next().unwrap_or(0.0) / manner.speed;
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            let name = self.duration.name();
            return Err(invalid_model(format!(
                "{name} gives {seconds} seconds for {} characters",
                ids.len()
            )));
        }
        let length = self.sizes.vectors(seconds)?;
        job.step()?;
        let feeds = Feeds::new()
            .ints("text_ids", text)
            .floats("style_ttl", style.clone())
            .floats("text_mask", text_mask.clone());
        let encoded = first(&self.encoder, feeds)?;
        let latent_mask = filled(&[1, 1, length], 1.0_f32);
        let noise = noise::normal([manner.seed, part as u64, 0, 0], width * length);
        let mut latent =
            Array3::from_shape_fn((1, width, length), |(_, row, at)| noise[row * length + at]).into_dyn();
        let count = |steps: usize| filled(&[1], steps as f32);
        for step in 0..manner.steps {
            job.step()?;
            let feeds = Feeds::new()
                .floats("noisy_latent", latent)
                .floats("text_emb", encoded.clone())
                .floats("style_ttl", style.clone())
                .floats("text_mask", text_mask.clone())
                .floats("latent_mask", latent_mask.clone())
                .floats("current_step", count(step))
                .floats("total_step", count(manner.steps));
            latent = first(&self.estimator, feeds)?;
        }
        job.step()?;
        Ok(first(&self.vocoder, Feeds::new().floats("latent", latent))?.into_iter().collect())
    }
}

/// The first output of a graph, which is the only one that counts here, whatever its name is.
fn first(graph: &Graph, feeds: Feeds<'_>) -> Result<ndarray::ArrayD<f32>, EngineError> {
    graph.run(feeds)?.floats(graph.first_output()?)
}

impl Sizes {
    /// The number of latent vectors of a part that takes these seconds. An error if the settings make it larger than a sound is.
    fn vectors(&self, seconds: f32) -> Result<usize, EngineError> {
        let length = ((seconds * self.rate as f32) as usize).div_ceil(self.chunk).max(1);
        if length.saturating_mul(self.width) > MAX_NUMBERS {
            let Self { rate, chunk, width } = self;
            return Err(invalid_model(format!(
                "{seconds} seconds at {rate} Hz are {length} vectors of {width} numbers, one for {chunk} samples: {} states \
                 sizes of no sound",
                SETTINGS[0]
            )));
        }
        Ok(length)
    }

    fn load(repository: &Repository) -> Result<Self, EngineError> {
        let name = SETTINGS.iter().find(|name| repository.path(name).is_some()).unwrap_or(&SETTINGS[0]);
        let settings = repository.json(name)?.unwrap_or_default();
        let number = |pointer: &str, most: u64| {
            let number = settings.pointer(pointer).and_then(Value::as_u64);
            number.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
                invalid_model(format!("{pointer} of {name} must be a number from 1 to {most}"))
            })
        };
        let factor = number("/ttl/chunk_compress_factor", 64)?;
        Ok(Self {
            rate: number("/ae/sample_rate", 192_000)? as u32,
            chunk: (number("/ae/base_chunk_size", 1 << 16)? * factor) as usize,
            width: (number("/ttl/latent_dim", 1 << 12)? * factor) as usize,
        })
    }
}

impl Pipeline for Supertonic {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let input: Input = parse_input(input)?;
        super::check(&input.text)?;
        let manner = self.manner(&input)?;
        let most = if manner.language == Some("ko") { KOREAN_PART } else { PART };
        let parts = sentences::of(&input.text, most);
        let parts: Vec<Vec<i64>> =
            parts.iter().filter_map(|part| self.letters.read(part, manner.language)).collect();
        if parts.is_empty() {
            return Err(invalid_input("text has no character of this voice"));
        }
        let pause = (PAUSE * self.sizes.rate as f32) as usize;
        let (mut samples, mut read) = (Vec::new(), 0);
        for (index, ids) in parts.iter().enumerate() {
            if index > 0 {
                samples.resize(samples.len() + pause, 0.0);
            }
            samples.extend(self.speak(ids, index, &manner, job)?);
            read += ids.len() as u64;
            job.progress("speak", index as u64 + 1, parts.len() as u64);
        }
        Ok(Answer::of(super::spoken(&samples, self.sizes.rate), read))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "text": TEXT }))
    }

    fn graphs(&self) -> Vec<String> {
        let graphs = [&self.duration, &self.encoder, &self.estimator, &self.vocoder];
        graphs.iter().map(|graph| graph.name().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn sizes_of_no_sound_are_refused() {
        let published = Sizes { rate: 44_100, chunk: 512 * 6, width: 24 * 6 };
        assert_eq!(published.vectors(MAX_SECONDS).expect("a sound"), 1723);
        assert_eq!(published.vectors(0.0).expect("a sound"), 1);
        let endless = Sizes { rate: 192_000, chunk: 64, width: 1 << 18 };
        let refused = endless.vectors(MAX_SECONDS).expect_err("a terabyte").message();
        assert!(refused.contains("360000 vectors of 262144 numbers"), "{refused}");
    }

    #[test]
    fn languages_that_are_no_texts_are_refused() {
        let of = |listed: Value| languages(&json!({"languages": listed})).map_err(|error| error.message());
        assert_eq!(of(json!(["en", "de"])), Ok(vec!["en".to_owned(), "de".to_owned()]));
        assert_eq!(of(Value::Null), Ok(Vec::new()));
        let refused = of(json!(["en", 5])).expect_err("no code");
        assert_eq!(refused, "[engine]: languages = [\"en\",5] is not supported");
    }
}
