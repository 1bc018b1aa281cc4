//! Entities of the types that a model was trained to find.
//!
//! Tokens are classified individually and then aggregated: `simple` joins adjacent tokens of one label, the others first choose one
//! label for each word, by its first token, by the average, or by the maximum.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    pipeline::{Pipeline, TEXT},
    text::{
        scores,
        tokens::{self, Tokens},
    },
};
use ndarray::{Array2, Axis, Ix2};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokenizers::{Encoding, ModelWrapper};

use super::gliner::Gliner;
use crate::{
    batch::{Batcher, Row, output},
    task::Loader,
};

/// Share of a piece of a long text that overlaps the next: text at the edge of one piece is inside the other.
const OVERLAP_OF_4: usize = 1;

#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    #[serde(default)]
    aggregation: Aggregation,
    threshold: Option<f32>,
    labels: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Aggregation {
    None,
    #[default]
    Simple,
    First,
    Average,
    Max,
}

/// An entity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entity {
    /// Its type.
    pub label: String,
    /// Its score.
    pub score: f32,
    /// Its text.
    pub text: String,
    /// Start in characters.
    pub start: usize,
    /// End in characters.
    pub end: usize,
}

/// A token and the probabilities of its labels.
#[derive(Debug, Clone)]
struct TokenScores {
    start: usize,
    end: usize,
    continues_word: bool,
    scores: Vec<f32>,
}

/// Adjacent tokens with one label.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Start in characters.
    pub start: usize,
    /// End in characters.
    pub end: usize,
    /// Index of the label.
    pub class: usize,
    /// Score.
    pub score: f32,
}

enum Tagger {
    /// The labels of the model.
    Own(Labeller),
    /// Labels of the job's input.
    Given(Gliner),
}

struct Labeller {
    tokens: Tokens,
    graph: Batcher,
    labels: Vec<String>,
    /// Whether the tokenizer marks continued words, rather than leaving out the space before.
    marks_continuation: bool,
}

/// Loads a token classifier.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    if let Some(settings) = loader.repository.json("gliner_config.json")? {
        return Ok(Box::new(Tagger::Given(Gliner::load(loader, &settings)?)));
    }
    let tokens = Tokens::load(&loader.repository)?;
    let graph = loader.text_graph(&tokens)?;
    let classes = scores::class_count(&loader.repository);
    let marks_continuation = has_prefix(tokens.inner().get_model());
    let labels = scores::labels(&loader.repository, classes);
    graph.graph().require_size("logits", 1, classes, "the classes of config.json")?;
    Ok(Box::new(Tagger::Own(Labeller { tokens, graph, labels, marks_continuation })))
}

/// Whether tokens that continue a word have a prefix.
fn has_prefix(model: &ModelWrapper) -> bool {
    match model {
        ModelWrapper::WordPiece(pieces) => !pieces.continuing_subword_prefix.is_empty(),
        ModelWrapper::BPE(pairs) => {
            pairs.continuing_subword_prefix.as_ref().is_some_and(|prefix| !prefix.is_empty())
        }
        _ => false,
    }
}

impl Labeller {
    /// All tokens of a text except special ones; long texts are read in pieces.
    fn classify(
        &self,
        text: &str,
        letters: &[char],
        job: &Job,
    ) -> Result<(Vec<TokenScores>, u64), EngineError> {
        let longest = self.tokens.max_length;
        let stride = (longest.saturating_sub(8) * OVERLAP_OF_4 / 4).max(1);
        let mut first = self.tokens.encode_cut(text, None, longest, stride)?;
        let mut pieces = first.take_overflowing();
        pieces.insert(0, first);
        let results = self.graph.run(pieces.iter().map(Row::of).collect(), job)?;
        let mut scored: Vec<TokenScores> = Vec::new();
        for (piece, result) in pieces.iter().zip(&results) {
            let logits =
                output(result, &["logits"]).ok_or_else(|| invalid_model("the graph gives no logits"))?;
            let logits = logits.view().into_dimensionality::<Ix2>();
            let logits =
                logits.map_err(|_| invalid_model("the graph's logits are not one row for each token"))?;
            if logits.ncols() != self.labels.len() {
                let message = format!(
                    "the graph gives {} classes, config.json names {}",
                    logits.ncols(),
                    self.labels.len()
                );
                return Err(invalid_model(message));
            }
            if logits.nrows() != piece.len() {
                return Err(invalid_model("the graph's logits are not one row for each token"));
            }
            let own = self.of_piece(piece, &logits.to_owned(), letters);
            join(&mut scored, own);
        }
        Ok((scored, pieces.iter().map(|piece| piece.len() as u64).sum()))
    }

    fn of_piece(&self, piece: &Encoding, logits: &Array2<f32>, letters: &[char]) -> Vec<TokenScores> {
        let unknown = self.tokens.special("unk_token").and_then(|token| self.tokens.id(&token));
        let classify = |place: usize| {
            let (start, end) = piece.get_offsets()[place];
            let token = &piece.get_tokens()[place];
            let is_unknown = Some(piece.get_ids()[place]) == unknown;
            let continues_word = if self.marks_continuation {
                token.chars().count() != end - start
            } else {
                start > 0 && !letters[start - 1..letters.len().min(start + 1)].contains(&' ')
            };
            TokenScores {
                start,
                end,
                continues_word: continues_word && !is_unknown,
                scores: scores::softmax(&logits.index_axis(Axis(0), place).to_vec()),
            }
        };
        let framing = piece.get_special_tokens_mask();
        (0..piece.len()).filter(|&place| framing[place] == 0).map(classify).collect()
    }

    fn pieces(&self, scored: &[TokenScores], aggregation: Aggregation) -> Vec<Found> {
        let single = |token: &TokenScores| {
            let class = scores::argmax(token.scores.iter().copied());
            Found { start: token.start, end: token.end, class, score: token.scores[class] }
        };
        if matches!(aggregation, Aggregation::None | Aggregation::Simple) {
            return scored.iter().map(single).collect();
        }
        let mut words: Vec<&[TokenScores]> = Vec::new();
        let mut begin = 0;
        for place in 1..=scored.len() {
            if place == scored.len() || !scored[place].continues_word {
                words.push(&scored[begin..place]);
                begin = place;
            }
        }
        words.into_iter().filter(|word| !word.is_empty()).map(|word| agree(word, aggregation)).collect()
    }

    /// `B-PER` starts a `PER`; a label without such a prefix continues the one before.
    fn tag(&self, class: usize) -> (bool, &str) {
        let label = self.labels[class].as_str();
        match label.split_at_checked(2) {
            Some(("B-", kind)) => (true, kind),
            Some(("I-", kind)) => (false, kind),
            _ => (false, label),
        }
    }

    fn entity(&self, label: &str, parts: &[Found], letters: &[char]) -> Entity {
        let (start, end) = (parts[0].start, parts[parts.len() - 1].end);
        Entity {
            label: label.to_owned(),
            score: parts.iter().map(|part| part.score).sum::<f32>() / parts.len() as f32,
            text: letters[start.min(end)..end.min(letters.len())].iter().collect(),
            start,
            end,
        }
    }

    fn find(
        &self,
        text: &str,
        aggregation: Aggregation,
        threshold: f32,
        job: &Job,
    ) -> Result<Answer, EngineError> {
        let letters: Vec<char> = text.chars().collect();
        let (scored, read) = self.classify(text, &letters, job)?;
        let pieces = self.pieces(&scored, aggregation);
        let mut entities = Vec::new();
        if aggregation == Aggregation::None {
            for piece in &pieces {
                entities.push(self.entity(&self.labels[piece.class], std::slice::from_ref(piece), &letters));
            }
        } else {
            let mut begin = 0;
            for place in 1..=pieces.len() {
                let goes_on = place < pieces.len() && {
                    let (begins, kind) = self.tag(pieces[place].class);
                    !begins && kind == self.tag(pieces[place - 1].class).1
                };
                if !goes_on && place > begin {
                    let label = kind(&self.labels[pieces[begin].class]);
                    entities.push(self.entity(label, &pieces[begin..place], &letters));
                    begin = place;
                }
            }
        }
        entities.retain(|entity| entity.label != "O" && entity.score >= threshold);
        Ok(Answer::of(json!({ "entities": entities }), read))
    }
}

impl Pipeline for Tagger {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { text, aggregation, threshold, labels } = parse_input(input)?;
        tokens::check(&text, "text")?;
        if threshold.is_some_and(|threshold| !(0.0..=1.0).contains(&threshold)) {
            return Err(invalid_input("threshold must be 0 to 1"));
        }
        match (self, labels) {
            (Self::Own(_), Some(_)) => Err(invalid_input("this model has fixed labels: leave out labels")),
            (Self::Own(labeller), None) => labeller.find(&text, aggregation, threshold.unwrap_or(0.0), job),
            (Self::Given(_), None) => {
                Err(invalid_input("labels are missing: this model finds the given labels"))
            }
            (Self::Given(gliner), Some(labels)) => gliner.find(&text, &labels, threshold, job),
        }
    }

    fn example(&self) -> Option<Value> {
        Some(match self {
            Self::Own(_) => json!({ "text": TEXT }),
            Self::Given(_) => json!({ "text": TEXT, "labels": ["ship"] }),
        })
    }

    fn graphs(&self) -> Vec<String> {
        match self {
            Self::Own(labeller) => vec![labeller.graph.graph().name().to_owned()],
            Self::Given(gliner) => gliner.graphs(),
        }
    }
}

/// What a label names behind its prefix: `PER` of `B-PER`, and of `S-PER` and `E-PER` in other schemes.
fn kind(label: &str) -> &str {
    label.split_once('-').map_or(label, |(_, kind)| kind)
}

/// One label for a word of several tokens.
fn agree(word: &[TokenScores], aggregation: Aggregation) -> Found {
    let (start, end) = (word[0].start, word[word.len() - 1].end);
    let (class, score) = match aggregation {
        Aggregation::Average => {
            let classes = word[0].scores.len();
            let mean =
                |class: usize| word.iter().map(|token| token.scores[class]).sum::<f32>() / word.len() as f32;
            let means: Vec<f32> = (0..classes).map(mean).collect();
            let class = scores::argmax(means.iter().copied());
            (class, means[class])
        }
        Aggregation::Max => {
            let surest = |token: &TokenScores| token.scores.iter().copied().fold(0.0, f32::max);
            let token = &word[scores::argmax(word.iter().map(surest))];
            let class = scores::argmax(token.scores.iter().copied());
            (class, token.scores[class])
        }
        _ => {
            let class = scores::argmax(word[0].scores.iter().copied());
            (class, word[0].scores[class])
        }
    };
    Found { start, end, class, score }
}

/// Appends a piece that overlaps the last one: for the shared tokens, each piece supplies the half for which it has more
/// context.
fn join(scored: &mut Vec<TokenScores>, next: Vec<TokenScores>) {
    let Some(first) = next.first() else { return };
    let shared_from = scored.iter().position(|token| token.start >= first.start).unwrap_or(scored.len());
    let middle = shared_from + (scored.len() - shared_from) / 2;
    let Some(at) = scored.get(middle).map(|token| token.start) else {
        scored.extend(next);
        return;
    };
    scored.truncate(middle);
    scored.extend(next.into_iter().filter(|token| token.start >= at));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_marks_tokens_that_continue_a_word_whatever_the_model() {
        let of = |model: Value| has_prefix(&serde_json::from_value(model).expect("a model"));
        let pieces = |prefix: &str| {
            json!({
                "type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "max_input_chars_per_word": 100,
                "continuing_subword_prefix": prefix,
            })
        };
        let pairs = |prefix: Value| {
            json!({
                "type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": null, "unk_token": "a", "end_of_word_suffix": null,
                "fuse_unk": false, "continuing_subword_prefix": prefix,
            })
        };
        assert!(of(pieces("##")) && of(pairs("@@".into())));
        assert!(!of(pieces("")) && !of(pairs("".into())) && !of(pairs(Value::Null)));
    }
}
