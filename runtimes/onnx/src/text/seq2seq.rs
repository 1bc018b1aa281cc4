//! Text from text: translations, summaries, corrections.

use island_protocol::job::{FinishReason, Usage};
use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    generate::{
        options::{Options, Settings},
        search::{self, Task},
        stream::Stream,
    },
    job::{Answer, Job, parse_input},
    keys::unsupported,
    pipeline::{Pipeline, TEXT},
    text::tokens::{self, Tokens},
    values::positions,
};
use ndarray::{Array2, ArrayD};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizers::Encoding;

use super::attention;
use crate::{
    seq2seq::{self, Encoded, Seq2Seq},
    task::Loader,
};

#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    source: Option<String>,
    target: Option<String>,
    /// Whether long texts are truncated rather than rejected.
    #[serde(default)]
    truncate: bool,
}

struct Rewriter {
    tokens: Tokens,
    encoder: Graph,
    decoder: Seq2Seq,
    settings: Settings,
    /// The model's prompt before the text.
    prefix: String,
    languages: Languages,
    /// Maximum number of generated tokens.
    longest: usize,
}

/// How a model selects languages.
enum Languages {
    /// The model has one pair of languages.
    Fixed,
    /// A token for each: the source's before the text, the target's first in the output.
    Tokens {
        /// Affixes of a language's name in its token.
        form: Form,
    },
    /// A prompt, which `config.json` has for each pair.
    Pairs {
        /// `translation_en_to_de`, and its settings.
        specific: Map<String, Value>,
    },
}

impl Languages {
    /// The codes of two languages that a model with these tokens may have.
    fn example(&self, tokens: &Tokens) -> (Option<&str>, Option<&str>) {
        let pair = match self {
            Self::Fixed => None,
            Self::Tokens { form: Form::Underscores } => Some(("en", "fr")),
            Self::Tokens { form: Form::Plain } => {
                let pairs = [("eng_Latn", "fra_Latn"), ("en_XX", "fr_XX")];
                pairs.into_iter().find(|(source, _)| tokens.id(source).is_some())
            }
            Self::Pairs { specific } => specific
                .keys()
                .find_map(|name| name.strip_prefix("translation_").and_then(|pair| pair.split_once("_to_"))),
        };
        pair.unzip()
    }
}

/// Form of language tokens.
#[derive(Clone, Copy)]
enum Form {
    /// `fra_Latn`, `fr_XX`.
    Plain,
    /// `__fr__`.
    Underscores,
}

/// Loads a translation model.
pub fn load_translation(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    load(loader, Some("translation"))
}

/// Loads a summarization model.
pub fn load_summarization(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    load(loader, Some("summarization"))
}

/// Loads any other model.
pub fn load_text2text(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    load(loader, None)
}

fn load(loader: &Loader<'_>, task: Option<&str>) -> Result<Box<dyn Pipeline>, EngineError> {
    let config = &loader.repository.config;
    attention::check(config)?;
    let tokens = Tokens::load(&loader.repository)?;
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let all = config.get("task_specific_params").and_then(Value::as_object).cloned().unwrap_or_default();
    let specific = task.and_then(|task| all.get(task)).cloned().unwrap_or_default();
    let prefix = stated_prefix(loader.setting("prefix", &specific).or_else(|| config.get("prefix")))?;
    let settings = Settings::load(&loader.repository)?.by_default(4).over(&specific)?.checked()?;
    if matches!((kind, task), ("t5" | "mt5", Some("translation"))) {
        for (name, pair) in &all {
            if name.starts_with("translation_") {
                settings.clone().over(pair)?.checked()?;
                stated_prefix(pair.get("prefix"))?;
            }
        }
    }
    let languages = match kind {
        "m2m_100" if tokens.id("__en__").is_some() => Languages::Tokens { form: Form::Underscores },
        "m2m_100" | "nllb-moe" | "mbart" => Languages::Tokens { form: Form::Plain },
        "t5" | "mt5" if task == Some("translation") => Languages::Pairs { specific: all },
        _ => Languages::Fixed,
    };
    let longest = positions(config)?.unwrap_or(4096);
    Ok(Box::new(Rewriter {
        encoder: loader.graph(&["encoder_model"], &["input_ids", "attention_mask"])?,
        decoder: Seq2Seq::load(loader, &seq2seq::FED)?,
        prefix,
        tokens,
        settings,
        languages,
        longest,
    }))
}

/// The model's prompt before a text, as its settings state it.
fn stated_prefix(stated: Option<&Value>) -> Result<String, EngineError> {
    match stated {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(prefix)) => Ok(prefix.clone()),
        Some(other) => Err(unsupported("config.json", "prefix", other)),
    }
}

impl Rewriter {
    /// The input of the model, and the settings of the output.
    fn prepare(&self, input: &Value) -> Result<(Vec<u32>, Options), EngineError> {
        let Input { text, source, target, truncate } = parse_input(input)?;
        tokens::check(&text, "text")?;
        let mut options = self.settings.with(input)?;
        let names_languages = source.is_some() || target.is_some();
        match (&self.languages, source, target) {
            (Languages::Fixed, ..) if names_languages => {
                Err(invalid_input("this model has one pair of languages: leave out source and target"))
            }
            (Languages::Fixed, ..) => Ok((self.ids(&format!("{}{text}", self.prefix), truncate)?, options)),
            (Languages::Pairs { specific }, Some(source), Some(target)) => {
                let pair = specific.get(&format!("translation_{source}_to_{target}"));
                let pair = pair.ok_or_else(|| {
                    invalid_input(format!("the model does not translate {source} to {target}"))
                })?;
                let prefix = stated_prefix(pair.get("prefix"))?;
                let options = self.settings.clone().over(pair)?.with(input)?;
                Ok((self.ids(&format!("{prefix}{text}"), truncate)?, options))
            }
            (Languages::Tokens { form }, Some(source), Some(target)) => {
                let (source, target) = (self.language(*form, &source)?, self.language(*form, &target)?);
                options.forced_bos_token_id = Some(target);
                Ok((self.in_language(&text, source, truncate)?, options))
            }
            (Languages::Pairs { .. } | Languages::Tokens { .. }, ..) => {
                Err(invalid_input("this model needs source and target, the codes of the languages"))
            }
        }
    }

    fn language(&self, form: Form, code: &str) -> Result<u32, EngineError> {
        let token = match form {
            Form::Plain => code.to_owned(),
            Form::Underscores => format!("__{code}__"),
        };
        self.tokens.id(&token).ok_or_else(|| invalid_input(format!("unknown language {code:?}")))
    }

    fn ids(&self, text: &str, truncate: bool) -> Result<Vec<u32>, EngineError> {
        Ok(self.encode(text, truncate)?.get_ids().to_vec())
    }

    fn encode(&self, text: &str, truncate: bool) -> Result<Encoding, EngineError> {
        if truncate {
            self.tokens.encode_cut(text, None, self.tokens.max_length, 0)
        } else {
            self.tokens.encode_whole(text)
        }
    }

    /// The input as these models were trained: the language, the text, the end token; or the text, the end token, the language.
    fn in_language(&self, text: &str, language: u32, truncate: bool) -> Result<Vec<u32>, EngineError> {
        let encoding = self.encode(text, truncate)?;
        let mut ids = encoding.get_ids().to_vec();
        let place = if self.has_language_last() { ids.last_mut() } else { ids.first_mut() };
        if let Some(place) = place.filter(|place| self.is_language(**place)) {
            // The tokenizer's post-processor has the language it was saved with.
            *place = language;
            return Ok(ids);
        }
        let own =
            ids.iter().zip(encoding.get_special_tokens_mask()).filter(|&(_, &is_special)| is_special == 0);
        let own = own.map(|(&id, _)| id);
        let end = self.tokens.special("eos_token").and_then(|end| self.tokens.id(&end));
        Ok(if self.has_language_last() {
            own.chain(end).chain([language]).collect()
        } else {
            std::iter::once(language).chain(own).chain(end).collect()
        })
    }

    /// Whether the language follows the text and its end: the tokenizers of the first mBART and of the first NLLB.
    fn has_language_last(&self) -> bool {
        let settings = &self.tokens.settings;
        let class = settings.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
        match class.strip_suffix("Fast").unwrap_or(class) {
            "MBartTokenizer" => true,
            "NllbTokenizer" => settings.get("legacy_behaviour").and_then(Value::as_bool).unwrap_or(false), // words: ok
            _ => false,
        }
    }

    fn is_language(&self, id: u32) -> bool {
        let Some(token) = self.tokens.inner().id_to_token(id) else { return false };
        let plain = token.trim_matches('_');
        token.starts_with("__") && token.ends_with("__")
            || plain.split_once('_').is_some_and(|(code, script)| {
                (2..=3).contains(&code.len()) && (2..=4).contains(&script.len())
            })
    }
}

impl Pipeline for Rewriter {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let (source, options) = self.prepare(input)?;
        let ids = Array2::from_shape_fn((1, source.len()), |(_, place)| i64::from(source[place])).into_dyn();
        let mask: ArrayD<i64> = Array2::ones((1, source.len())).into_dyn();
        let feeds = Feeds::new().ints("input_ids", ids).ints("attention_mask", mask.clone());
        let states = self.encoder.run(feeds)?.floats("last_hidden_state")?;
        job.read(source.len() as u64);
        let begin = start(&options)?;
        let longest = options.longest(begin.len(), self.longest);
        let mut decoding = self.decoder.begin(Encoded { states, mask: Some(mask) });
        let mut stream = Stream::after(&begin, &self.tokens, job);
        let task = Task { begin: &begin, source: &source, longest, rule: None };
        let written = search::write(&mut decoding, &options, task, job, &mut |token| stream.push(token))?;
        let text = stream.finish()?;
        Ok(Answer {
            output: json!({ "text": text }),
            usage: Usage::tokens(source.len() as u64, written.tokens.len() as u64),
            finish_reason: Some(if written.has_ended { FinishReason::Stop } else { FinishReason::Length }),
            stop_text: None,
        })
    }

    fn example(&self) -> Option<Value> {
        let (source, target) = self.languages.example(&self.tokens);
        Some(json!({ "text": TEXT, "source": source, "target": target }))
    }

    fn graphs(&self) -> Vec<String> {
        std::iter::once(self.encoder.name().to_owned()).chain(self.decoder.names()).collect()
    }
}

/// The prompt of the decoder.
pub fn start(options: &Options) -> Result<Vec<u32>, EngineError> {
    let configured = options.decoder_start_token_id.as_ref().and_then(|ids| ids.all().first().copied());
    let start = configured.or(options.bos_token_id);
    start.map(|token| vec![token]).ok_or_else(|| {
        let message = "neither generation_config.json nor config.json has decoder_start_token_id";
        invalid_model(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_is_no_text_is_refused() {
        let of = |stated: Option<&Value>| stated_prefix(stated).map_err(|error| error.message());
        assert_eq!(of(Some(&json!("translate: "))), Ok("translate: ".to_owned()));
        assert_eq!((of(None), of(Some(&Value::Null))), (Ok(String::new()), Ok(String::new())));
        let refused = of(Some(&json!(["translate: "]))).expect_err("a list");
        assert_eq!(refused, "config.json: prefix = [\"translate: \"] is not supported");
    }
}
