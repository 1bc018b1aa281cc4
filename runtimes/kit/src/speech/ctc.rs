//! Models that label every frame of audio (connectionist temporal classification): with a letter, the gap between words, or blank.
//!
//! Long audio is read in overlapping windows; each window labels the half of the overlap for which it has more context.

use std::collections::BTreeMap;

use island_protocol::transcript::{Span, segments_of};
use ndarray::Array2;
use serde_json::{Value, json};

use super::transcribe::{self, Request, Timestamps, Transcriber, duration};
use crate::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job},
    keys::{CONFIG, FEATURE_EXTRACTOR, TOKENIZER, unsupported},
    media::sound,
    repository::Repository,
    text::{scores, settings, tokens::clean_up},
    values::{check_object, count, read, sampling_rate, token_id},
};

/// Duration of one window in seconds.
const WINDOW_S: usize = 30;
/// The first and the last of this number of parts of a window are context only.
const MARGIN_OF: usize = 6;
/// Minimum number of labels of a window.
const LEAST_LABELS: usize = 25;

/// A network that labels frames.
pub trait AcousticModel: Send + Sync + std::fmt::Debug {
    /// Its path in the repository.
    fn name(&self) -> &str;

    /// Maximum number of samples of a run, if it is bounded.
    fn longest(&self) -> Option<usize>;

    /// Samples of one label, if the network reads features rather than samples.
    fn of_features(&self) -> Option<usize>;

    /// Logits, `[frames, labels]`.
    fn logits(&self, samples: &[f32]) -> Result<Array2<f32>, EngineError>;
}

/// A loaded model.
#[derive(Debug)]
pub struct Ctc {
    model: Box<dyn AcousticModel>,
    rate: u32,
    normalises: bool,
    letters: BTreeMap<u32, String>,
    blank: u32,
    /// The label of the gap between words.
    gap: String,
    /// What stands for the gap in a text.
    space: String,
    /// Whether texts are in lower case.
    lower_cases: bool,
    /// Whether spaces before punctuation are removed.
    cleans_up: bool,
    /// Samples of one label.
    stride: usize,
}

/// A word and the range of its samples.
#[derive(Debug, Clone, PartialEq)]
struct Word {
    text: String,
    start: usize,
    end: usize,
}

impl Ctc {
    /// Uses `model`, and the vocabulary of a repository.
    pub fn of(repository: &Repository, model: Box<dyn AcousticModel>) -> Result<Self, EngineError> {
        let settings = super::features(repository)?;
        let tokens = settings::of(repository)?;
        let letters = letters(repository, tokens.get("target_lang").filter(|language| !language.is_null()))?;
        let named = |name: &str, otherwise: &str| {
            let content = |token: &Value| token.get("content").unwrap_or(token).as_str().map(str::to_owned);
            Ok::<_, EngineError>(
                read(TOKENIZER.file, &tokens, name, content)?.unwrap_or_else(|| otherwise.to_owned()),
            )
        };
        let flag = |name: &str| tokens.get(name).and_then(Value::as_bool).unwrap_or(false);
        let blank = named("pad_token", "<pad>")?;
        let blank = letters.iter().find(|(_, letter)| **letter == blank).map(|(&id, _)| id);
        let strides = read(CONFIG.file, &repository.config, "conv_stride", product)?;
        let hears_samples = model.of_features().is_none();
        let stride = model.of_features().or(strides).unwrap_or(320).clamp(1, 1 << 16);
        if model.longest().is_some_and(|longest| longest < LEAST_LABELS * stride) {
            return Err(invalid_model(format!("{} reads too few samples at once for a word", model.name())));
        }
        Ok(Self {
            model,
            rate: sampling_rate(FEATURE_EXTRACTOR.file, &settings)?.unwrap_or(16_000),
            normalises: settings.get("do_normalize").and_then(Value::as_bool).unwrap_or(hears_samples),
            letters,
            blank: blank.ok_or_else(|| invalid_model("the vocabulary has no blank token"))?,
            gap: named("word_delimiter_token", "|")?,
            space: named("replace_word_delimiter_char", " ")?,
            lower_cases: flag("do_lower_case"),
            cleans_up: flag("clean_up_tokenization_spaces"),
            stride,
        })
    }
}

impl Transcriber for Ctc {
    fn graphs(&self) -> Vec<String> {
        vec![self.model.name().to_owned()]
    }

    fn transcribe(&self, request: &Request, job: &Job) -> Result<Answer, EngineError> {
        if request.language.is_some() || request.task.as_deref().is_some_and(|task| task != "transcribe") {
            return Err(invalid_input("this model transcribes one language: leave out language and task"));
        }
        let samples = sound::decode(&request.audio, self.rate)?;
        let duration = duration(samples.len(), self.rate);
        let labels = self.labels(&samples, job)?;
        let text = self.text(&labels);
        let mut output = json!({ "text": text, "duration": duration });
        if request.timestamps != Timestamps::None {
            let seconds = |samples| transcribe::duration(samples, self.rate);
            let span =
                |word: Word| Span { start: seconds(word.start), end: seconds(word.end), text: word.text };
            let words: Vec<Span> = self.words(&labels).into_iter().map(span).collect();
            let are_words = request.timestamps == Timestamps::Word;
            let spans = if are_words { words } else { segments_of(&words, &text) };
            let time = |span: Span| json!({ "start": span.start, "end": span.end, "text": span.text });
            output["segments"] = spans.into_iter().map(time).collect();
        }
        job.token(text, labels.len() as u32);
        Ok(Answer::of(output, labels.len() as u64))
    }
}

impl Ctc {
    /// The most likely label of each frame.
    fn labels(&self, samples: &[f32], job: &Job) -> Result<Vec<u32>, EngineError> {
        let window = WINDOW_S * self.rate as usize;
        let window = self.model.longest().map_or(window, |longest| longest.min(window));
        let margin = window / MARGIN_OF / self.stride * self.stride;
        let step = (window - 2 * margin) / self.stride * self.stride;
        let mut labels = Vec::new();
        let mut begin = 0;
        loop {
            job.step()?;
            let end = (begin + window).min(samples.len());
            let is_last = end == samples.len();
            let own = self.run(samples[begin..end].to_vec())?;
            let from = if begin == 0 { 0 } else { margin / self.stride };
            let until = if is_last { own.len() } else { (margin + step) / self.stride };
            labels.extend(own.iter().copied().take(until).skip(from));
            if is_last {
                return Ok(labels);
            }
            job.progress("transcribe", end as u64, samples.len() as u64);
            begin += step;
        }
    }

    /// The labels of one window, normalized separately, as by the reference with `chunk_length_s`.
    fn run(&self, mut samples: Vec<f32>) -> Result<Vec<u32>, EngineError> {
        if self.normalises {
            normalise(&mut samples);
        }
        let logits = self.model.logits(&samples)?;
        Ok(logits.rows().into_iter().map(|row| scores::argmax(row.to_vec()) as u32).collect())
    }

    /// The text that labels spell, as the reference writes it: two gaps with a blank between them are two spaces.
    fn text(&self, labels: &[u32]) -> String {
        let mut text = String::new();
        let mut last = self.blank;
        for &label in labels {
            if label != last && label != self.blank {
                match self.letters.get(&label) {
                    Some(letter) if *letter == self.gap => text.push_str(&self.space),
                    Some(letter) => text.push_str(letter),
                    None => {}
                }
            }
            last = label;
        }
        let text = self.cased(text.trim());
        if self.cleans_up { clean_up(&text) } else { text }
    }

    fn cased(&self, text: &str) -> String {
        if self.lower_cases { text.to_lowercase() } else { text.to_owned() }
    }

    /// The words that labels spell: a repeated label is one letter, and a blank separates two equal letters.
    fn words(&self, labels: &[u32]) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut open = false;
        let mut last = self.blank;
        for (place, &label) in labels.iter().enumerate() {
            let is_new = label != last;
            last = label;
            if label == self.blank {
                continue;
            }
            let Some(letter) = self.letters.get(&label) else { continue };
            if *letter == self.gap {
                open = false;
                continue;
            }
            let end = (place + 1) * self.stride;
            if let Some(word) = words.last_mut().filter(|_| open) {
                word.end = end;
                if is_new {
                    word.text.push_str(letter);
                }
            } else {
                words.push(Word { text: letter.clone(), start: place * self.stride, end });
                open = true;
            }
        }
        words.iter_mut().for_each(|word| word.text = self.cased(&word.text));
        words
    }
}

/// The product of the steps of a network's layers, for [`read`].
fn product(strides: &Value) -> Option<usize> {
    strides.as_array()?.iter().try_fold(1_usize, |product, stride| product.checked_mul(count(stride)?))
}

/// The letter of each label, from the tokenizer or from the older `vocab.json`, which may have a list for each language.
fn letters(repository: &Repository, language: Option<&Value>) -> Result<BTreeMap<u32, String>, EngineError> {
    const VOCABULARY: &str = "vocab.json";
    let tokenizer = repository.json("tokenizer.json")?;
    let of_tokenizer = tokenizer.as_ref().and_then(|file| file.pointer("/model/vocab"));
    let file = if of_tokenizer.is_some() { "tokenizer.json: model.vocab" } else { VOCABULARY };
    let list = match of_tokenizer {
        Some(list) => Some(list.clone()),
        None => match (repository.json(VOCABULARY)?, language) {
            (Some(lists), Some(language)) => {
                let list = language.as_str().and_then(|language| lists.get(language)).cloned();
                Some(list.ok_or_else(|| unsupported("tokenizer_config.json", "target_lang", language))?)
            }
            (list, _) => list,
        },
    };
    let list =
        list.ok_or_else(|| invalid_model("the repository has neither tokenizer.json nor vocab.json"))?;
    check_object(file, &list)?;
    let ids = list.as_object().into_iter().flatten();
    let of = |(letter, id): (&String, &Value)| {
        let known = token_id(id).ok_or_else(|| unsupported(file, letter, id))?;
        Ok::<_, EngineError>((known, letter.clone()))
    };
    let mut letters = ids.map(of).collect::<Result<BTreeMap<u32, String>, _>>()?;
    let added =
        tokenizer.as_ref().and_then(|file| file.get("added_tokens")?.as_array()).into_iter().flatten();
    for token in added {
        if let (Some(id), Some(letter)) = (token["id"].as_u64(), token["content"].as_str()) {
            letters.insert(id as u32, letter.to_owned());
        }
    }
    Ok(letters)
}

/// Normalizes to a mean of 0 and a variance of 1, as in training.
pub fn normalise(samples: &mut [f32]) {
    let count = samples.len() as f64;
    let mean = samples.iter().map(|&sample| f64::from(sample)).sum::<f64>() / count;
    let spread = samples.iter().map(|&sample| (f64::from(sample) - mean).powi(2)).sum::<f64>() / count;
    let scale = (spread + 1e-7).sqrt();
    samples.iter_mut().for_each(|sample| *sample = ((f64::from(*sample) - mean) / scale) as f32);
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use parking_lot::Mutex;

    use super::*;

    /// Keeps the level of each window, the mean of its squared samples.
    #[derive(Debug, Default)]
    struct Levels(Mutex<Vec<f64>>);

    impl AcousticModel for Arc<Levels> {
        fn name(&self) -> &'static str {
            "none"
        }

        fn longest(&self) -> Option<usize> {
            None
        }

        fn of_features(&self) -> Option<usize> {
            None
        }

        fn logits(&self, samples: &[f32]) -> Result<Array2<f32>, EngineError> {
            let squares = samples.iter().map(|&sample| f64::from(sample).powi(2));
            self.0.lock().push(squares.sum::<f64>() / samples.len() as f64);
            Ok(Array2::zeros((samples.len() / 320, 2)))
        }
    }

    fn ctc(space: &str, lower_cases: bool) -> Ctc {
        let letters =
            ["<pad>", "|", "A", "b", "</s>"].into_iter().zip(0..).map(|(letter, id)| (id, letter.to_owned()));
        Ctc {
            model: Box::new(Arc::<Levels>::default()),
            rate: 16_000,
            normalises: false,
            letters: letters.collect(),
            blank: 0,
            gap: "|".to_owned(),
            space: space.to_owned(),
            lower_cases,
            cleans_up: false,
            stride: 320,
        }
    }

    #[test]
    fn settings_of_another_kind_are_refused() {
        let loaded = |file: &str, settings: Value| {
            let folder = tempfile::tempdir().expect("temporary folder");
            let vocabulary = ("vocab.json", json!({"<pad>": 0, "|": 1, "A": 2}));
            let written = [vocabulary, (file, settings)].map(|(name, content)| {
                let path = folder.path().join(name);
                fs::write(&path, content.to_string()).expect("write");
                (name.to_owned(), path)
            });
            let repository = Repository::open(written.into_iter().collect())?;
            Ctc::of(&repository, Box::new(Arc::<Levels>::default()))
        };
        let strides = loaded("config.json", json!({"conv_stride": [5, 2, 2]})).expect("known");
        assert_eq!(strides.stride, 20);
        let rate = loaded("preprocessor_config.json", json!({"sampling_rate": 8000})).expect("known");
        assert_eq!(rate.rate, 8000);
        for (file, key, value) in [
            ("config.json", "conv_stride", json!(320)),
            ("config.json", "conv_stride", json!([5, "2"])),
            ("config.json", "conv_stride", json!([5, -2])),
            ("preprocessor_config.json", "sampling_rate", json!("8000")),
            ("tokenizer_config.json", "word_delimiter_token", json!(1)),
            ("tokenizer_config.json", "replace_word_delimiter_char", json!([" "])),
            ("vocab.json", "A", json!("2")),
            ("vocab.json", "A", json!(-2)),
        ] {
            let refused = loaded(file, json!({key: value})).expect_err("another kind").message();
            assert_eq!(refused, format!("{file}: {key} = {value} is not supported"));
        }
        let list = loaded("vocab.json", json!(["<pad>"])).expect_err("no ids").message();
        assert_eq!(list, "vocab.json: [\"<pad>\"] is not a JSON object");
    }

    #[test]
    fn each_window_of_a_sound_is_normalized() {
        let levels = Arc::new(Levels::default());
        let ctc = Ctc { model: Box::new(Arc::clone(&levels)), normalises: true, ..ctc(" ", false) };
        for level in [1.0, 0.1] {
            let wave = (0..16_000_u32).map(|place| if place.is_multiple_of(2) { level } else { -level });
            assert_eq!(ctc.run(wave.collect()).expect("labels").len(), 50);
        }
        let levels = levels.0.lock().clone();
        assert!(levels.iter().all(|level| (level - 1.0).abs() < 1e-3), "{levels:?}");
    }

    #[test]
    fn labels_spell_a_text_as_the_reference_does() {
        let labels = [1, 2, 2, 0, 2, 1, 0, 1, 3, 4, 1];
        assert_eq!(ctc(" ", false).text(&labels), "AA  b</s>");
        assert_eq!(ctc("_", true).text(&labels), "_aa__b</s>_");
        let words: Vec<String> = ctc(" ", true).words(&labels).into_iter().map(|word| word.text).collect();
        assert_eq!(words, ["aa", "b</s>"]);
    }
}
