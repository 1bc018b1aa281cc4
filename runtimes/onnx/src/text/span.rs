//! The passage of a text that answers a question.

use std::{
    cmp::Ordering,
    collections::{HashMap, hash_map::Entry},
};

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    pipeline::{Pipeline, TEXT},
    text::{
        scores,
        tokens::{self, Tokens},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::Encoding;

use crate::{
    batch::{Batcher, Row, RowResults, output},
    task::Loader,
};

/// Tokens of question and passage that are read at once, as in the reference.
const WINDOW: usize = 384;
/// Maximum number of tokens that two windows share.
const STRIDE: usize = 128;
/// Minimum number of tokens of the context in a window.
const LEAST_SPACE: usize = 8;
/// Maximum number of tokens of an answer.
const LONGEST_ANSWER: usize = 15;

#[derive(Debug, Deserialize)]
struct Input {
    question: String,
    context: String,
    #[serde(default = "one")]
    top_k: usize,
}

fn one() -> usize {
    1
}

#[derive(Debug, Clone, PartialEq)]
struct Found {
    score: f32,
    start: usize,
    end: usize,
}

struct Reader {
    tokens: Tokens,
    graph: Batcher,
    /// The token that stands for "no answer".
    cls: Option<u32>,
}

/// Loads a question-answering model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let tokens = Tokens::load(&loader.repository)?;
    // The reference has the context before the question then.
    tokens.check_padding(&loader.repository)?;
    let cls = tokens.special("cls_token").and_then(|token| tokens.id(&token));
    let graph = loader.text_graph(&tokens)?;
    for output in ["start_logits", "end_logits"] {
        graph.graph().require(output)?;
    }
    Ok(Box::new(Reader { tokens, graph, cls }))
}

impl Pipeline for Reader {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { question, context, top_k } = parse_input(input)?;
        tokens::check(&question, "question")?;
        tokens::check(&context, "context")?;
        if !(1..=100).contains(&top_k) {
            return Err(invalid_input("top_k must be 1 to 100"));
        }
        let window = WINDOW.min(self.tokens.max_length);
        let space = self.tokens.space_beside(&question, window)?;
        if space < LEAST_SPACE {
            let message = format!("the question leaves {space} of {window} tokens for the context: too few");
            return Err(invalid_input(message));
        }
        let stride = stride(window, space);
        let mut first = self.tokens.encode_cut(&question, Some(&context), window, stride)?;
        let mut windows = first.take_overflowing();
        windows.insert(0, first);
        let results = self.graph.run(windows.iter().map(Row::of).collect(), job)?;
        let mut found: Vec<Found> = Vec::new();
        for (window, result) in windows.iter().zip(&results) {
            // Spans that are equal after alignment to words are one answer, so more are computed than requested.
            found.extend(spans(window, result, self.cls, top_k * 2 + 10)?);
        }
        job.step()?;
        let letters: Vec<char> = context.chars().collect();
        let mut answers = distinct(&letters, found);
        answers.sort_by(|(_, a), (_, b)| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        answers.truncate(top_k);
        let answers: Vec<Value> = answers
            .into_iter()
            .map(|(answer, Found { score, start, end })| {
                json!({ "answer": answer, "score": score, "start": start, "end": end })
            })
            .collect();
        let Some(Value::Object(mut best)) = answers.first().cloned() else {
            return Err(invalid_input("context has nothing that could be an answer"));
        };
        best.insert("answers".to_owned(), answers.into());
        let read = windows.iter().map(|window| window.len() as u64).sum();
        Ok(Answer::of(Value::Object(best), read))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "question": "Where is the ship?", "context": TEXT }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}

/// The texts of spans, each once: equal texts are one answer, whatever the case of their letters, and their scores add up. They are found by
/// their text, since a long context has a hundred thousand of them: comparing each with all others would take an hour.
fn distinct(letters: &[char], found: Vec<Found>) -> Vec<(String, Found)> {
    let mut answers: Vec<(String, Found)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for span in found {
        let answer: String = letters[span.start.min(span.end)..span.end.min(letters.len())].iter().collect();
        match places.entry(answer.to_lowercase()) {
            Entry::Occupied(known) => answers[*known.get()].1.score += span.score,
            Entry::Vacant(new) => {
                new.insert(answers.len());
                answers.push((answer, span));
            }
        }
    }
    answers
}

/// The number of tokens that two windows share. Windows must advance: the space for the context exceeds it.
fn stride(window: usize, space: usize) -> usize {
    STRIDE.min(window / 2).min(space - 1)
}

/// The `most` most likely spans of one window.
fn spans(
    window: &Encoding,
    result: &RowResults,
    cls: Option<u32>,
    most: usize,
) -> Result<Vec<Found>, EngineError> {
    let take = |name: &str| {
        let logits =
            output(result, &[name]).ok_or_else(|| invalid_model(format!("the graph gives no {name}")))?;
        Ok::<Vec<f32>, EngineError>(logits.iter().copied().collect())
    };
    let (starts, ends) = (take("start_logits")?, take("end_logits")?);
    let count = window.len();
    if starts.len() != count || ends.len() != count {
        return Err(invalid_model("the graph's logits are not one for each token"));
    }
    let is_context: Vec<bool> = (0..count).map(|place| window.token_to_sequence(place) == Some(1)).collect();
    // The probability of the token for no answer is not redistributed.
    let counts = |place: usize| is_context[place] || Some(window.get_ids()[place]) == cls;
    let probabilities = |logits: Vec<f32>| {
        let masked = logits.into_iter().enumerate();
        let masked: Vec<f32> =
            masked.map(|(place, logit)| if counts(place) { logit } else { -10_000.0 }).collect();
        scores::softmax(&masked)
    };
    let (starts, ends) = (probabilities(starts), probabilities(ends));
    let mut found: Vec<(f32, usize, usize)> = Vec::new();
    for start in (0..count).filter(|&place| is_context[place]) {
        for end in start..count.min(start + LONGEST_ANSWER) {
            if is_context[end] {
                found.push((starts[start] * ends[end], start, end));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(most);
    let of_word = |place: usize| {
        let word =
            window.token_to_word(place).and_then(|(sequence, word)| window.word_to_chars(word, sequence));
        word.or_else(|| window.token_to_chars(place).map(|(_, chars)| chars)).unwrap_or((0, 0))
    };
    Ok(found
        .into_iter()
        .map(|(score, start, end)| Found { score, start: of_word(start).0, end: of_word(end).1 })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_answer() {
        let letters: Vec<char> = "Rome rome roman".chars().collect();
        let spans = [(0, 4, 0.5), (10, 15, 0.125), (5, 9, 0.25)];
        let found = spans.map(|(start, end, score)| Found { score, start, end }).to_vec();
        let answers = distinct(&letters, found);
        let first = ("Rome".to_owned(), Found { score: 0.75, start: 0, end: 4 });
        assert_eq!(answers, [first, ("roman".to_owned(), Found { score: 0.125, start: 10, end: 15 })]);
    }

    #[test]
    fn windows_overlap_by_half_if_the_space_allows() {
        assert_eq!(stride(384, 370), 128);
        assert_eq!(stride(20, 11), 10);
        assert_eq!(stride(20, 10), 9, "the reference has no answer");
    }
}
