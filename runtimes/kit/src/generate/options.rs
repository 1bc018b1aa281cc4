//! How to write, in the words of `generation_config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::{EngineError, invalid_input, invalid_model},
    repository::Repository,
};

/// Most beams of one job.
const MAX_BEAMS: usize = 16;

/// Settings of a generation; the names are those of `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Most tokens in all, those that begin the reply included.
    #[serde(deserialize_with = "or_default::max_length")]
    pub max_length: usize,
    /// Most tokens written; goes before `max_length`.
    pub max_new_tokens: Option<usize>,
    /// No end before so many tokens in all.
    #[serde(deserialize_with = "or_default::number")]
    pub min_length: usize,
    /// No end before so many tokens are written.
    pub min_new_tokens: Option<usize>,
    /// Beams; 1 for none.
    #[serde(deserialize_with = "or_default::one")]
    pub num_beams: usize,
    /// Whether tokens are drawn by chance.
    #[serde(deserialize_with = "or_default::flag")]
    pub do_sample: bool,
    /// Randomness.
    #[serde(deserialize_with = "or_default::unit")]
    pub temperature: f32,
    /// Likeliest tokens to draw from; 0 for all.
    pub top_k: Option<usize>,
    /// Share of probability to draw from.
    #[serde(deserialize_with = "or_default::unit")]
    pub top_p: f32,
    /// Above 1, tokens that were written are less likely.
    #[serde(deserialize_with = "or_default::unit")]
    pub repetition_penalty: f32,
    /// No sequence of so many tokens twice; 0 for any.
    #[serde(deserialize_with = "or_default::number")]
    pub no_repeat_ngram_size: usize,
    /// None of so many tokens of the input; 0 for any.
    #[serde(deserialize_with = "or_default::number")]
    pub encoder_no_repeat_ngram_size: usize,
    /// Above 0, beams prefer long texts.
    #[serde(deserialize_with = "or_default::unit")]
    pub length_penalty: f32,
    /// When beams stop.
    #[serde(deserialize_with = "or_default::stopping")]
    pub early_stopping: EarlyStopping,
    /// Sequences that must not be written.
    pub bad_words_ids: Option<Vec<Vec<u32>>>,
    /// Tokens that must not be written.
    pub suppress_tokens: Option<Vec<i64>>,
    /// Tokens that must not be written first.
    pub begin_suppress_tokens: Option<Vec<i64>>,
    /// What is written first.
    pub forced_bos_token_id: Option<u32>,
    /// What is written last, where the length ends the text.
    pub forced_eos_token_id: Option<Ids>,
    /// What decoding begins with.
    pub decoder_start_token_id: Option<Ids>,
    /// What begins a text, where nothing says how decoding begins.
    pub bos_token_id: Option<u32>,
    /// What ends a text.
    pub eos_token_id: Option<Ids>,
    /// What fills rows that have ended.
    pub pad_token_id: Option<u32>,
    /// Makes sampling repeatable.
    pub seed: Option<u64>,
}

/// One id or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ids {
    /// One.
    One(u32),
    /// Any of these.
    Many(Vec<u32>),
}

impl Ids {
    /// All of them.
    pub fn all(&self) -> &[u32] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

/// When beams stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EarlyStopping {
    /// As soon as there are as many texts as beams.
    #[serde(rename = "true")]
    Full,
    /// When no beam is likely to become better.
    #[default]
    #[serde(rename = "false")]
    Likely,
    /// When no beam can become better.
    #[serde(rename = "never")]
    Never,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_length: 20,
            max_new_tokens: None,
            min_length: 0,
            min_new_tokens: None,
            num_beams: 1,
            do_sample: false,
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
            encoder_no_repeat_ngram_size: 0,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Likely,
            bad_words_ids: None,
            suppress_tokens: None,
            begin_suppress_tokens: None,
            forced_bos_token_id: None,
            forced_eos_token_id: None,
            decoder_start_token_id: None,
            bos_token_id: None,
            eos_token_id: None,
            pad_token_id: None,
            seed: None,
        }
    }
}

/// Settings may be null, which means that nothing is said.
mod or_default {
    use serde::{Deserialize, Deserializer};
    use serde_json::Value;

    use super::EarlyStopping;

    fn or<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
        otherwise: T,
    ) -> Result<T, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.unwrap_or(otherwise))
    }

    pub(super) fn max_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        or(deserializer, 20)
    }

    pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        or(deserializer, 0)
    }

    pub(super) fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        or(deserializer, 1)
    }

    pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        or(deserializer, false)
    }

    pub(super) fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
        or(deserializer, 1.0)
    }

    pub(super) fn stopping<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EarlyStopping, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::Bool(true) => EarlyStopping::Full,
            Value::String(word) if word == "never" => EarlyStopping::Never,
            _ => EarlyStopping::Likely,
        })
    }
}

/// What a job may set, by the names it has in an input.
pub const USER_OPTIONS: [&str; 15] = [
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "num_beams",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "length_penalty",
    "early_stopping",
    "seed",
    "encoder_no_repeat_ngram_size",
];

/// A repository's settings, before a job has said anything.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings(Map<String, Value>);

impl Settings {
    /// Of `generation_config.json`; repositories from before there was one have them in `config.json`.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        let mut settings = Map::new();
        let decoder = repository.config.get("decoder").and_then(Value::as_object);
        let old = [repository.config.as_object(), decoder];
        let file = repository.json("generation_config.json")?;
        let known = serde_json::to_value(Options::default()).unwrap_or_default();
        for source in old.into_iter().flatten().chain(file.as_ref().and_then(Value::as_object)) {
            for name in known.as_object().into_iter().flat_map(Map::keys) {
                if let Some(value) = source.get(name).filter(|value| !value.is_null()) {
                    settings.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(Self(settings))
    }

    /// The same, with what the repository says of one task: that goes before what it says in general.
    #[must_use]
    pub fn over(mut self, specific: &Value) -> Self {
        for (name, value) in specific.as_object().into_iter().flatten() {
            self.0.insert(name.clone(), value.clone());
        }
        self
    }

    /// The same, with what the reference's pipelines of a task do where the repository says nothing.
    #[must_use]
    pub fn by_default(mut self, num_beams: usize) -> Self {
        if !self.0.contains_key("max_length") {
            self.0.entry("max_new_tokens").or_insert(256.into());
        }
        self.0.entry("num_beams").or_insert(num_beams.into());
        self
    }

    /// With the wishes of a job, which must make sense.
    pub fn with(&self, input: &Value) -> Result<Options, EngineError> {
        let mut all = self.0.clone();
        for name in USER_OPTIONS {
            if let Some(wish) = input.get(name).filter(|wish| !wish.is_null()) {
                all.insert(name.to_owned(), wish.clone());
            }
        }
        // A wish for a length goes before a setting of the other kind.
        if input.get("max_length").is_some_and(|wish| !wish.is_null())
            && input.get("max_new_tokens").is_none()
        {
            all.remove("max_new_tokens");
        }
        let options: Options = serde_json::from_value(Value::Object(all))
            .map_err(|error| invalid_model("the settings of the generation").because(error))?;
        options.check()?;
        Ok(options)
    }
}

impl Options {
    fn check(&self) -> Result<(), EngineError> {
        let fits = [
            ((1..=MAX_BEAMS).contains(&self.num_beams), format!("num_beams must be 1 to {MAX_BEAMS}")),
            (!self.do_sample || self.temperature > 0.0, "temperature must be above 0".to_owned()),
            (self.top_p > 0.0 && self.top_p <= 1.0, "top_p must be above 0 and at most 1".to_owned()),
            (self.repetition_penalty > 0.0, "repetition_penalty must be above 0".to_owned()),
            (self.length_penalty.is_finite(), "length_penalty must be a number".to_owned()),
            (!self.do_sample || self.num_beams == 1, "do_sample goes with one beam only".to_owned()),
        ];
        match fits.into_iter().find(|(fits, _)| !fits) {
            Some((_, why)) => Err(invalid_input(why)),
            None => Ok(()),
        }
    }

    /// What ends a text.
    pub fn ends(&self) -> &[u32] {
        self.eos_token_id.as_ref().map_or(&[], Ids::all)
    }

    /// Most tokens in all behind a beginning of `begun` tokens, where the model takes `bound`.
    pub fn longest(&self, begun: usize, bound: usize) -> usize {
        self.max_new_tokens.map_or(self.max_length, |new| begun + new).min(bound)
    }
}
