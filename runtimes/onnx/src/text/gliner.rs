//! Entities of types in the job's input: GLiNER, which reads the types before the text and scores every span for each.

use island_runtimes_graph::{Feed, Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job},
    keys::GLINER,
    text::{scores::sigmoid, tokens::Tokens},
    values::{count, read},
};
use ndarray::{Array2, Array3, Ix4};
use serde_json::{Value, json};

use super::entities::{Entity, Found};
use crate::task::Loader;

/// Maximum number of types of one job.
const MAX_LABELS: usize = 100;
/// Default score threshold.
const THRESHOLD: f32 = 0.5;

/// Inputs of the graph.
const FED: [&str; 6] = ["input_ids", "attention_mask", "words_mask", "text_lengths", "span_idx", "span_mask"];

/// A loaded model.
#[derive(Debug)]
pub struct Gliner {
    tokens: Tokens,
    graph: Graph,
    /// Maximum number of words of one span.
    width: usize,
    /// Maximum number of words of one text.
    longest: usize,
    /// Markers before the name of a type, and after the last one.
    marks: [String; 2],
}

/// A word and its position in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    start: usize,
    end: usize,
}

impl Gliner {
    /// Loads a repository with the settings of `gliner_config.json`.
    pub fn load(loader: &Loader<'_>, settings: &Value) -> Result<Self, EngineError> {
        GLINER.check(settings)?;
        let (width, longest) = (size(settings, "max_width", 12, 64)?, size(settings, "max_len", 384, 8192)?);
        let marks = [mark(settings, "ent_token", "<<ENT>>")?, mark(settings, "sep_token", "<<SEP>>")?];
        let graph = loader.graph(&["model"], &FED)?;
        if !graph.takes("span_idx") {
            return Err(invalid_model(format!(
                "{} does not take span_idx: it scores tokens instead of spans, which is not supported",
                graph.name()
            )));
        }
        Ok(Self { tokens: Tokens::load(&loader.repository)?, graph, width, longest, marks })
    }

    /// The graphs it runs.
    pub fn graphs(&self) -> Vec<String> {
        vec![self.graph.name().to_owned()]
    }

    /// Finds entities of these types.
    pub fn find(
        &self,
        text: &str,
        labels: &[String],
        threshold: Option<f32>,
        job: &Job,
    ) -> Result<Answer, EngineError> {
        if labels.is_empty()
            || labels.len() > MAX_LABELS
            || labels.iter().any(|label| label.trim().is_empty())
        {
            return Err(invalid_input(format!("labels must be 1 to {MAX_LABELS} texts that are not empty")));
        }
        let labels = &distinct(labels);
        let threshold = threshold.unwrap_or(THRESHOLD);
        let letters: Vec<char> = text.chars().collect();
        let words = words(&letters);
        let (mut entities, mut read) = (Vec::new(), 0);
        // Long texts are read in pieces of the model's maximum length.
        for piece in words.chunks(self.longest) {
            job.step()?;
            let (found, tokens) = self.read(piece, labels, threshold)?;
            read += tokens;
            entities.extend(found.into_iter().map(|found| Entity {
                text: letters[found.start..found.end].iter().collect(),
                label: labels[found.class].clone(),
                score: found.score,
                start: found.start,
                end: found.end,
            }));
        }
        Ok(Answer::of(json!({ "entities": entities }), read))
    }

    fn read(
        &self,
        words: &[Word],
        labels: &[String],
        threshold: f32,
    ) -> Result<(Vec<Found>, u64), EngineError> {
        let mut prompt: Vec<&str> = Vec::new();
        for label in labels {
            prompt.extend([self.marks[0].as_str(), label.as_str()]);
        }
        prompt.push(&self.marks[1]);
        let behind = prompt.len();
        let all: Vec<&str> = prompt.into_iter().chain(words.iter().map(|word| word.text.as_str())).collect();
        let encoding = self.tokens.encode_words(&all)?;
        let mut last = None;
        let numbers = encoding.get_word_ids().iter().map(|&word| {
            let is_first = word.is_some() && word != last;
            last = word;
            // Words of the text count from 1, at their first token; other tokens have 0.
            word.filter(|&word| is_first && word as usize >= behind)
                .map_or(0, |word| i64::from(word) - behind as i64 + 1)
        });
        let numbers: Vec<i64> = numbers.collect();
        let count = encoding.len();
        let ids = Array2::from_shape_fn((1, count), |(_, place)| i64::from(encoding.get_ids()[place]));
        let spans = words.len() * self.width;
        let ends = |place: usize| (place / self.width, place / self.width + place % self.width);
        let index = Array3::from_shape_fn((1, spans, 2), |(_, place, side)| {
            let (start, end) = ends(place);
            // A span beyond the last word is masked, but must have a valid position.
            if end >= words.len() {
                0
            } else if side == 0 {
                start as i64
            } else {
                end as i64
            }
        });
        let is_whole = Array2::from_shape_fn((1, spans), |(_, place)| ends(place).1 < words.len());
        let feeds = Feeds::new()
            .ints("input_ids", ids.into_dyn())
            .ints("attention_mask", Array2::from_elem((1, count), 1).into_dyn())
            .ints("words_mask", Array2::from_shape_fn((1, count), |(_, place)| numbers[place]).into_dyn())
            .ints("text_lengths", Array2::from_elem((1, 1), words.len() as i64).into_dyn())
            .ints("span_idx", index.into_dyn())
            .with("span_mask", Feed::Bools(is_whole.into_dyn()));
        let logits = self.graph.run(feeds)?.floats("logits")?.into_dimensionality::<Ix4>();
        let logits =
            logits.map_err(|_| invalid_model("the graph's logits are not [texts, words, widths, kinds]"))?;
        let (_, rows, widths, classes) = logits.dim();
        let mut found = Vec::new();
        for start in 0..words.len().min(rows) {
            for width in 0..widths.min(words.len() - start) {
                for class in 0..classes.min(labels.len()) {
                    let score = sigmoid(logits[[0, start, width, class]]);
                    if score > threshold {
                        let end = words[start + width].end;
                        found.push(Found { start: words[start].start, end, class, score });
                    }
                }
            }
        }
        Ok((apart(found), count as u64))
    }
}

/// The spans with the highest scores that share no word, in the order of the text.
fn apart(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Found> = Vec::new();
    for span in found {
        if kept.iter().all(|other| span.end <= other.start || span.start >= other.end) {
            kept.push(span);
        }
    }
    kept.sort_by_key(|span| span.start);
    kept
}

/// Each label once, in the order in which they were first named: the model reads none twice.
fn distinct(labels: &[String]) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(labels.len());
    for label in labels {
        if !distinct.contains(label) {
            distinct.push(label.clone());
        }
    }
    distinct
}

/// Words, with hyphens and underscores inside them, and single other characters.
fn words(letters: &[char]) -> Vec<Word> {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut words = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let start = at;
        at += 1;
        if letters[start].is_whitespace() {
            continue;
        }
        if is_letter(letters[start]) {
            loop {
                while at < letters.len() && is_letter(letters[at]) {
                    at += 1;
                }
                let joins = letters.get(at).is_some_and(|&letter| letter == '-' || letter == '_');
                if joins && letters.get(at + 1).is_some_and(|&letter| is_letter(letter)) {
                    at += 1;
                } else {
                    break;
                }
            }
        }
        words.push(Word { text: letters[start..at].iter().collect(), start, end: at });
    }
    words
}

/// A number of words from 1 to `most`.
fn size(settings: &Value, name: &str, otherwise: usize, most: usize) -> Result<usize, EngineError> {
    let words = |value: &Value| count(value).filter(|words| (1..=most).contains(words));
    Ok(read(GLINER.file, settings, name, words)?.unwrap_or(otherwise))
}

fn mark(settings: &Value, name: &str, otherwise: &str) -> Result<String, EngineError> {
    Ok(read(GLINER.file, settings, name, Value::as_str)?.unwrap_or(otherwise).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn settings_of_another_kind_or_out_of_range_are_refused() {
        let width = |value: &Value| {
            size(&json!({"max_width": value}), "max_width", 12, 64).map_err(|error| error.message())
        };
        assert_eq!((width(&json!(64)), width(&Value::Null)), (Ok(64), Ok(12)));
        for value in [json!("12"), json!(0), json!(65), json!(1.5)] {
            let wanted = format!("gliner_config.json: max_width = {value} is not supported");
            assert_eq!(width(&value), Err(wanted));
        }
        let marked = |value: Value| {
            mark(&json!({"ent_token": value}), "ent_token", "<<ENT>>").map_err(|error| error.message())
        };
        assert_eq!(marked(json!("[E]")), Ok("[E]".to_owned()));
        assert_eq!(marked(json!(7)), Err("gliner_config.json: ent_token = 7 is not supported".to_owned()));
    }

    #[test]
    fn a_label_that_is_named_twice_is_read_once() {
        let labels = ["person", "city", "person"].map(str::to_owned);
        assert_eq!(distinct(&labels), ["person", "city"]);
    }

    #[test]
    fn hyphens_join_words_and_punctuation_is_separate() {
        let letters: Vec<char> = "Merkel-Müller, (5 km) a--b".chars().collect();
        let found: Vec<String> = words(&letters).into_iter().map(|word| word.text).collect();
        assert_eq!(found, ["Merkel-Müller", ",", "(", "5", "km", ")", "a", "-", "-", "b"]);
    }

    proptest! {
        #[test]
        fn words_contain_all_text_but_spaces(text in ".{0,60}") {
            let letters: Vec<char> = text.chars().collect();
            let joined: String = words(&letters).into_iter().map(|word| word.text).collect();
            let wanted: String = letters.iter().filter(|letter| !letter.is_whitespace()).collect();
            prop_assert_eq!(joined, wanted);
        }

        #[test]
        fn kept_spans_do_not_overlap(spans in proptest::collection::vec((0_usize..40, 1_usize..8, 0.0_f32..1.0), 0..40)) {
            let found = spans.iter().map(|&(start, width, score)| Found { start, end: start + width, class: 0, score });
            let kept = apart(found.collect());
            prop_assert!(kept.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert_eq!(kept.is_empty(), spans.is_empty());
        }
    }
}
