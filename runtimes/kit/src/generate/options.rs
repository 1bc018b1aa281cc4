//! Generation settings, with the names of `generation_config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::class_defaults;
use crate::{
    error::{EngineError, invalid_input, invalid_model},
    keys::{CONFIG, GENERATION, unsupported},
    repository::Repository,
    values::{read, typed},
};

/// Maximum number of beams of one job.
const MAX_BEAMS: usize = 16;

/// Settings of a generation, with the names of `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Maximum number of tokens in total, with the prompt.
    #[serde(deserialize_with = "or_default::max_length")]
    pub max_length: usize,
    /// Maximum number of generated tokens; overrides `max_length`.
    pub max_new_tokens: Option<usize>,
    /// Minimum number of tokens in total.
    #[serde(deserialize_with = "or_default::number")]
    pub min_length: usize,
    /// Minimum number of generated tokens.
    pub min_new_tokens: Option<usize>,
    /// Number of beams; 1 disables beam search.
    #[serde(deserialize_with = "or_default::one")]
    pub num_beams: usize,
    /// Whether tokens are sampled.
    #[serde(deserialize_with = "or_default::flag")]
    pub do_sample: bool,
    /// Sampling temperature.
    #[serde(deserialize_with = "or_default::unit")]
    pub temperature: f32,
    /// Number of most likely tokens to sample from; 0 is unlimited.
    pub top_k: Option<usize>,
    /// Cumulative probability to sample from.
    #[serde(deserialize_with = "or_default::unit")]
    pub top_p: f32,
    /// Above 1, generated tokens become less likely.
    #[serde(deserialize_with = "or_default::unit")]
    pub repetition_penalty: f32,
    /// Above 1, tokens of the input become more likely.
    #[serde(deserialize_with = "or_default::unit")]
    pub encoder_repetition_penalty: f32,
    /// Size of token sequences that must not repeat; 0 is unrestricted.
    #[serde(deserialize_with = "or_default::number")]
    pub no_repeat_ngram_size: usize,
    /// Size of token sequences of the input that must not appear; 0 is unrestricted.
    #[serde(deserialize_with = "or_default::number")]
    pub encoder_no_repeat_ngram_size: usize,
    /// Above 0, beams prefer long texts.
    #[serde(deserialize_with = "or_default::unit")]
    pub length_penalty: f32,
    /// When beam search stops.
    #[serde(deserialize_with = "or_default::stopping")]
    pub early_stopping: EarlyStopping,
    /// Amounts by which token sequences become more likely.
    pub sequence_bias: Option<SequenceBias>,
    /// Makes the end more likely from a number of generated tokens on: that number, and a factor for each further token.
    pub exponential_decay_length_penalty: Option<(usize, f32)>,
    /// Whether scores are made probabilities again after all other settings were applied, which beams of different lengths compare.
    #[serde(deserialize_with = "or_default::flag")]
    pub renormalize_logits: bool,
    /// Minimum probability of a sampled token, relative to the most likely one.
    pub min_p: Option<f32>,
    /// Token sequences that must not be generated.
    pub bad_words_ids: Option<Vec<Vec<u32>>>,
    /// Tokens that must not be generated.
    pub suppress_tokens: Option<Vec<i64>>,
    /// Tokens that must not be generated first.
    pub begin_suppress_tokens: Option<Vec<i64>>,
    /// The first token.
    pub forced_bos_token_id: Option<u32>,
    /// The last token, if the maximum length ends the text.
    pub forced_eos_token_id: Option<Ids>,
    /// The token that decoding begins with.
    pub decoder_start_token_id: Option<Ids>,
    /// The token that begins a text; decoding begins with it if `decoder_start_token_id` is absent.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text.
    pub eos_token_id: Option<Ids>,
    /// Fills rows that have ended.
    pub pad_token_id: Option<u32>,
    /// Makes sampling reproducible.
    pub seed: Option<u64>,
}

/// Token sequences, each with the amount that is added to the score of its last token after the others.
pub type SequenceBias = Vec<(Vec<u32>, f32)>;

/// One id or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ids {
    /// One id.
    One(u32),
    /// Any of these ids.
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

/// When beam search stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EarlyStopping {
    /// As soon as there are as many finished texts as beams.
    #[serde(rename = "true")]
    Full,
    /// When a better text is unlikely.
    #[default]
    #[serde(rename = "false")]
    Likely,
    /// When no beam can become better than the finished texts.
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
            encoder_repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
            encoder_no_repeat_ngram_size: 0,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Likely,
            sequence_bias: None,
            exponential_decay_length_penalty: None,
            renormalize_logits: false,
            min_p: None,
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

/// A setting may be null, which means that it is absent.
mod or_default {
    use serde::{Deserialize, Deserializer, de::Error as _};
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
            Value::Bool(false) | Value::Null => EarlyStopping::Likely,
            // The library's check takes them for true and false, and its search compares with `True` itself.
            Value::Number(number) if [Some(0.0), Some(1.0)].contains(&number.as_f64()) => {
                EarlyStopping::Likely
            }
            Value::String(word) if word == "never" => EarlyStopping::Never,
            _ => return Err(D::Error::custom("expected true, false or \"never\"")),
        })
    }
}

/// Settings that a job may change, by their names in its input.
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

/// A repository's settings, before those of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    values: Map<String, Value>,
    /// The file that they are in.
    file: &'static str,
}

impl Settings {
    /// From `generation_config.json`; repositories without one have them in `config.json`. An error if one of them is not supported, or is of
    /// another kind than the reference reads.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        let file = repository.json(GENERATION.file)?;
        let sources = match &file {
            Some(file) => {
                GENERATION.check(file)?;
                vec![(GENERATION.file, file)]
            }
            None => of_config(&repository.config)?,
        };
        let known = serde_json::to_value(Options::default()).unwrap_or_default();
        let mut settings = Map::new();
        for (at, source) in sources {
            typed::<Options>(at, source)?;
            for (name, usual) in known.as_object().into_iter().flatten() {
                // What the model as a whole sets counts before what its decoder sets, as in the reference, unless it is the default.
                let is_set = settings.get(name).is_some_and(|set| !is_usual(name, set, usual));
                if is_set {
                    continue;
                }
                let of_class = || class_defaults::of(source, name).filter(|_| file.is_none());
                let written = source.get(name).filter(|value| !value.is_null()).cloned();
                if let Some(value) = written.or_else(of_class) {
                    settings.insert(name.clone(), value);
                }
            }
        }
        Ok(Self { values: settings, file: if file.is_some() { GENERATION.file } else { CONFIG.file } })
    }

    /// The same with the repository's settings for one task, which override its general ones. An error if one of them is not supported, or is of
    /// another kind than the reference reads.
    pub fn over(mut self, specific: &Value) -> Result<Self, EngineError> {
        const AT: &str = "config.json: task_specific_params";
        if specific.is_null() {
            return Ok(self);
        }
        GENERATION.check_among(AT, specific)?;
        typed::<Options>(AT, specific)?;
        for (name, value) in specific.as_object().into_iter().flatten() {
            self.values.insert(name.clone(), value.clone());
        }
        Ok(self)
    }

    /// Checks the settings of jobs that choose nothing, so that no job fails by those of the repository.
    pub fn checked(self) -> Result<Self, EngineError> {
        const PENALTY: &str = "encoder_repetition_penalty";
        let options: Options = typed(self.file, &Value::Object(self.values.clone()))?;
        let Err(error) = options.check() else { return Ok(self) };
        let penalty = self.values.get(PENALTY).filter(|penalty| {
            penalty.as_f64().is_some_and(|penalty| penalty > 0.0 && (penalty - 1.0).abs() > f64::EPSILON)
        });
        Err(match (penalty, self.values.get("num_beams").and_then(Value::as_u64)) {
            (Some(penalty), Some(2..)) => {
                unsupported(self.file, PENALTY, penalty).followed_by("with several beams")
            }
            _ => invalid_model(format!("{}: {}", self.file, error.message())),
        })
    }

    /// The same with the defaults of the reference's pipelines for a task.
    #[must_use]
    pub fn by_default(mut self, num_beams: usize) -> Self {
        if !self.values.contains_key("max_length") {
            self.values.entry("max_new_tokens").or_insert(256.into());
        }
        self.values.entry("num_beams").or_insert(num_beams.into());
        self
    }

    /// With the settings of a job. An error if they are invalid.
    pub fn with(&self, input: &Value) -> Result<Options, EngineError> {
        let mut all = self.values.clone();
        for name in USER_OPTIONS {
            if let Some(wish) = input.get(name).filter(|wish| !wish.is_null()) {
                Options::deserialize(json!({ name: wish }))
                    .map_err(|error| invalid_input(name).because(error))?;
                all.insert(name.to_owned(), wish.clone());
            }
        }
        // A length from the job overrides a setting of the other kind.
        if input.get("max_length").is_some_and(|wish| !wish.is_null())
            && input.get("max_new_tokens").is_none()
        {
            all.remove("max_new_tokens");
        }
        let options: Options = typed(self.file, &Value::Object(all))?;
        options.check()?;
        Ok(options)
    }
}

/// The settings in `config.json` of a repository without a file of their own: those of the model, and those of its decoder, with where they are.
fn of_config(config: &Value) -> Result<Vec<(&'static str, &Value)>, EngineError> {
    const DECODER: &str = "config.json: decoder";
    read(CONFIG.file, config, "decoder", Value::as_object)?;
    let decoder = config.get("decoder").unwrap_or(&Value::Null);
    read(DECODER, decoder, "model_type", Value::as_str)?;
    let sources =
        [(CONFIG.file, config), (DECODER, decoder)].into_iter().filter(|(_, source)| source.is_object());
    let sources: Vec<_> = sources.collect();
    for (at, source) in &sources {
        GENERATION.check_among(at, source)?;
    }
    Ok(sources)
}

/// Whether a setting has the value that it has where a file lacks it.
fn is_usual(name: &str, value: &Value, usual: &Value) -> bool {
    /// The reference's; here, a number that is absent is the same one.
    const TOP_K: u64 = 50;
    match (value, usual) {
        (Value::Number(value), Value::Number(usual)) => value.as_f64() == usual.as_f64(),
        // The name of the default of `early_stopping`.
        (Value::Bool(value), Value::String(usual)) => value.to_string() == *usual,
        (value, Value::Null) if name == "top_k" => value.as_u64() == Some(TOP_K),
        (value, usual) => value == usual,
    }
}

impl Options {
    fn check(&self) -> Result<(), EngineError> {
        let fits = [
            ((1..=MAX_BEAMS).contains(&self.num_beams), format!("num_beams must be 1 to {MAX_BEAMS}")),
            (!self.do_sample || self.temperature > 0.0, "temperature must be above 0".to_owned()),
            (self.top_p > 0.0 && self.top_p <= 1.0, "top_p must be above 0 and at most 1".to_owned()),
            (self.repetition_penalty > 0.0, "repetition_penalty must be above 0".to_owned()),
            (self.encoder_repetition_penalty > 0.0, "encoder_repetition_penalty must be above 0".to_owned()),
            (
                // The reference applies it to the first beam alone.
                self.encoder_repetition_penalty == 1.0 || self.num_beams == 1,
                "encoder_repetition_penalty needs num_beams = 1".to_owned(),
            ),
            (self.min_p.is_none_or(|least| (0.0..=1.0).contains(&least)), "min_p must be 0 to 1".to_owned()),
            (self.length_penalty.is_finite(), "length_penalty must be a number".to_owned()),
            (!self.do_sample || self.num_beams == 1, "do_sample needs num_beams = 1".to_owned()),
        ];
        match fits.into_iter().find(|(fits, _)| !fits) {
            Some((_, why)) => Err(invalid_input(why)),
            None => Ok(()),
        }
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        self.eos_token_id.as_ref().map_or(&[], Ids::all)
    }

    /// Maximum number of tokens in total after a prompt of `begun` tokens, for a model that takes `bound`.
    pub fn longest(&self, begun: usize, bound: usize) -> usize {
        self.max_new_tokens.map_or(self.max_length, |new| begun.saturating_add(new)).min(bound)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;
    use crate::error::ErrorKind;

    fn load(generation: &Value, beams: usize) -> Result<Settings, EngineError> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("generation_config.json");
        fs::write(&path, generation.to_string()).expect("write");
        let repository = Repository::open(BTreeMap::from([("generation_config.json".to_owned(), path)]))?;
        Settings::load(&repository)?.by_default(beams).checked()
    }

    #[test]
    fn settings_by_which_every_job_would_fail_are_refused_when_they_are_loaded() {
        let penalty = json!({"encoder_repetition_penalty": 1.5});
        load(&penalty, 1).expect("one beam");
        let why = load(&penalty, 4).expect_err("refused").message();
        assert!(
            why.starts_with("generation_config.json: encoder_repetition_penalty = 1.5 is not supported"),
            "{why}"
        );
        assert!(why.contains("beams"), "{why}");
        let why = load(&json!({"num_beams": 0}), 1).expect_err("refused").message();
        assert_eq!(why, "generation_config.json: num_beams must be 1 to 16");
    }

    #[test]
    fn settings_of_another_kind_are_refused_by_file_key_and_value() {
        for (key, value) in [
            ("temperature", json!("hot")),
            ("num_beams", json!("2")),
            ("max_length", json!([20])),
            ("max_new_tokens", json!(-3)),
            ("do_sample", json!(1)),
            ("early_stopping", json!("yes")),
            ("eos_token_id", json!({"id": 1})),
            ("bad_words_ids", json!([5])),
            ("suppress_tokens", json!("all")),
        ] {
            let why = load(&json!({key: value}), 1).expect_err("refused").message();
            assert!(
                why.starts_with(&format!("generation_config.json: {key} = {value} is not supported; ")),
                "{why}"
            );
            let specific = load(&json!({}), 1).expect("known").over(&json!({key: value}));
            let why = specific.expect_err("refused").message();
            assert!(
                why.starts_with(&format!("config.json: task_specific_params: {key} = {value} ")),
                "{why}"
            );
        }
        let why = load(&json!([]), 1).expect_err("refused").message();
        assert_eq!(why, "generation_config.json: [] is not a JSON object");
        let why = load(&json!({}), 1).expect("known").over(&json!(5)).expect_err("refused").message();
        assert_eq!(why, "config.json: task_specific_params: 5 is not a JSON object");
    }

    #[test]
    fn settings_in_config_json_are_refused_by_where_they_are() {
        let refused = |config: Value| {
            of_config(&config)
                .and_then(|sources| {
                    sources.into_iter().try_for_each(|(at, source)| typed::<Options>(at, source).map(drop))
                })
                .expect_err("refused")
                .message()
        };
        assert_eq!(refused(json!({"decoder": "gpt2"})), "config.json: decoder = \"gpt2\" is not supported");
        let kind = refused(json!({"decoder": {"model_type": 2}}));
        assert_eq!(kind, "config.json: decoder: model_type = 2 is not supported");
        let outer = refused(json!({"num_beams": "2"}));
        assert!(outer.starts_with("config.json: num_beams = \"2\" is not supported; "), "{outer}");
        let inner = refused(json!({"decoder": {"num_beams": "2"}}));
        assert!(inner.starts_with("config.json: decoder: num_beams = \"2\" is not supported; "), "{inner}");
    }

    #[test]
    fn an_option_of_another_kind_is_an_error_of_the_job() {
        let settings = load(&json!({}), 1).expect("known");
        for (key, value) in [("num_beams", json!("2")), ("early_stopping", json!("yes")), ("seed", json!(-1))]
        {
            let refused = settings.with(&json!({key: value})).expect_err("refused");
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert!(refused.message().starts_with(&format!("{key}: ")), "{}", refused.message());
        }
        let set = settings.with(&json!({"num_beams": 2, "early_stopping": "never"})).expect("known");
        assert_eq!((set.num_beams, set.early_stopping), (2, EarlyStopping::Never));
        let set = settings.with(&json!({"early_stopping": 1})).expect("known");
        assert_eq!(set.early_stopping, EarlyStopping::Likely);
    }

    #[test]
    fn a_job_may_ask_for_any_number_of_tokens() {
        let settings = load(&json!({}), 1).expect("known");
        let options = settings.with(&json!({"max_new_tokens": u64::MAX})).expect("known");
        assert_eq!(options.longest(3, 512), 512);
    }

    #[test]
    fn a_model_sets_more_than_its_decoder() {
        let config = json!({
            "max_length": 16, "num_beams": 4, "early_stopping": true, "length_penalty": 1, "eos_token_id": 3,
            "decoder": {"max_length": 20, "num_beams": 1, "early_stopping": false, "length_penalty": 2.0, "eos_token_id": 50_256, "min_length": 5},
        });
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("config.json");
        fs::write(&path, config.to_string()).expect("write");
        let repository = Repository::open(BTreeMap::from([("config.json".to_owned(), path)])).expect("files");
        let options = Settings::load(&repository).expect("known").with(&Value::Null).expect("valid");
        assert_eq!((options.max_length, options.num_beams), (16, 4));
        assert_eq!((options.early_stopping, options.ends()), (EarlyStopping::Full, [3].as_slice()));
        assert_eq!(
            (options.length_penalty, options.min_length),
            (2.0, 5),
            "the model has the default or none"
        );
    }

    #[test]
    fn a_config_that_lacks_its_tokens_has_those_of_its_class() {
        let tokens = |config: Value, generation: Option<Value>| {
            let folder = tempfile::tempdir().expect("temporary folder");
            let mut files = BTreeMap::new();
            for (name, content) in [("config.json", Some(config)), ("generation_config.json", generation)] {
                let Some(content) = content else { continue };
                let path = folder.path().join(name);
                fs::write(&path, content.to_string()).expect("write");
                files.insert(name.to_owned(), path);
            }
            let repository = Repository::open(files).expect("files");
            let options = Settings::load(&repository).expect("known").with(&Value::Null).expect("valid");
            (options.ends().to_vec(), options.pad_token_id.is_some())
        };
        // `GenerationConfig.from_model_config` of transformers 4.57.
        let captions = json!({
            "model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"},
            "decoder": {"model_type": "gpt2", "n_layer": 2},
        });
        assert_eq!(tokens(captions.clone(), None), (vec![50_256], false));
        assert_eq!(tokens(json!({"model_type": "t5"}), None), (vec![1], true));
        assert_eq!(tokens(json!({"model_type": "t5", "eos_token_id": 7}), None), (vec![7], true));
        assert_eq!(tokens(json!({"model_type": "t5", "eos_token_id": null}), None), (vec![], true));
        let outer = json!({"eos_token_id": 3, "decoder": {"model_type": "gpt2"}});
        assert_eq!(tokens(outer, None), (vec![3], false), "the model sets it");
        assert_eq!(
            tokens(captions, Some(json!({"num_beams": 2}))),
            (vec![], false),
            "another file has all settings"
        );
    }

    #[test]
    fn settings_of_a_task_are_checked_like_the_others() {
        let settings = load(&json!({}), 1).expect("known");
        let why = settings.over(&json!({"num_beam_groups": 2})).expect_err("refused").message();
        assert_eq!(why, "config.json: task_specific_params: num_beam_groups = 2 is not supported");
    }
}
