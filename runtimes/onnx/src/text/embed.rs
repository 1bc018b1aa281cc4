//! Text embeddings, pooled as the model's settings define.

use island_runtimes_graph::Graph;
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    keys::{POOLING, SENTENCE_TRANSFORMERS, TRANSFORMER, unsupported},
    pipeline::{Pipeline, TEXT},
    text::tokens::{self, Tokens},
};
use ndarray::{Array1, ArrayD, ArrayView2, Axis, Ix2};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sentence::Sentences;
use crate::{
    batch::{Batcher, Row, RowResults, output},
    task::Loader,
};

mod modules;

use modules::Module;

/// Maximum number of texts of one job.
const MAX_TEXTS: usize = 2048;
/// Tokens of texts whose outputs are in memory at one time, at least those of one text: most networks give a vector for each token.
const MAX_TOKENS: usize = 1 << 14;
/// Maximum number of numbers of a vector with which modules are tried when a model is loaded.
const MAX_CHECKED: usize = 1 << 20;
/// Output of graphs that contain the pooling and what follows it.
const SENTENCE: &str = "sentence_embedding";
/// Outputs with a vector for each token.
const STATES: [&str; 4] = ["last_hidden_state", "token_embeddings", "hidden_states", "logits"];
/// Keys of `config.json` that state how long vectors of tokens, or of texts, are.
const LENGTHS: [&str; 6] =
    ["hidden_size", "d_model", "dim", "n_embd", "word_embed_proj_dim", "projection_dim"];

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "OpenAI's name")]
struct Input {
    input: Texts,
    prompt: Option<String>,
    dimensions: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

/// How the vectors of tokens become one of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    Cls,
    Mean,
    Max,
    MeanSqrt,
    WeightedMean,
    LastToken,
}

struct Embedder {
    tokens: Tokens,
    graph: Batcher,
    /// The output with the vectors of tokens, or with that of the text.
    output: String,
    /// Their vectors follow each other in the embedding.
    pooling: Vec<Pooling>,
    /// What follows the pooling.
    modules: Vec<Module>,
    normalises: bool,
    sentences: Sentences,
    /// The first numbers of an embedding that are its answer, where a job names no number.
    dimensions: Option<usize>,
    /// Whether pooling includes the tokens of the prompt.
    pools_prompt: bool,
}

/// Loads an embedding model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let repository = &loader.repository;
    let mut tokens = Tokens::load(repository)?;
    let graph = loader.text_graph(&tokens)?;
    let has_modules = graph.graph().outputs().iter().any(|name| name == SENTENCE);
    let output = vectors(graph.graph(), &repository.config)?.to_owned();
    let found = modules::load(repository, has_modules)?;
    let pool = found.pooling;
    let sentences = Sentences::load(loader, &mut tokens, &TRANSFORMER, &SENTENCE_TRANSFORMERS)?;
    let pooling = match loader.settings.get("pooling").and_then(Value::as_str) {
        Some(name) => {
            let refused = || unsupported("[engine]", "pooling", &name.into());
            vec![by_name(name).ok_or_else(refused)?]
        }
        None => by_file(&pool)?,
    };
    if let Some(length) = stated_length(graph.graph(), &output).filter(|_| !has_modules) {
        check_length(length, pooling.len(), &found.after)?;
    }
    let normalises = loader.settings.get("normalize").and_then(Value::as_bool);
    Ok(Box::new(Embedder {
        pooling,
        normalises: normalises.unwrap_or(found.normalises),
        modules: found.after,
        dimensions: dimensions(&sentences.library)?,
        sentences,
        pools_prompt: pool.get("include_prompt").and_then(Value::as_bool).unwrap_or(true),
        tokens,
        graph,
        output,
    }))
}

/// The output with vectors. One of another name must state the length that the settings state: graphs also give token ids, masks and scores.
fn vectors<'g>(graph: &'g Graph, config: &Value) -> Result<&'g str, EngineError> {
    let lengths: Vec<i64> = LENGTHS.iter().filter_map(|key| config.get(key)?.as_i64()).collect();
    let is_row = |shape: &[i64]| (2..=3).contains(&shape.len());
    let named = std::iter::once(SENTENCE).chain(STATES).find_map(|wanted| {
        graph.output_where(|name, shape| name == wanted && (shape.is_empty() || is_row(shape)))
    });
    let fitting = || {
        graph.output_where(|_, shape| {
            is_row(shape)
                && shape
                    .last()
                    .is_some_and(|length| *length > 0 && (lengths.is_empty() || lengths.contains(length)))
        })
    };
    named.or_else(fitting).ok_or_else(|| {
        let length = lengths.iter().map(i64::to_string).collect::<Vec<_>>().join(" or ");
        let of = if length.is_empty() {
            String::new()
        } else {
            format!(" of {length} numbers, as config.json states,")
        };
        graph.misses(format!("no output has a vector{of} for each token or text"))
    })
}

/// The length of the vectors of tokens, where the graph states it.
fn stated_length(graph: &Graph, output: &str) -> Option<usize> {
    (graph.stated_rank(output) == Some(3)).then(|| graph.stated_size(output, 1)).flatten()
}

/// Rejects modules that do not fit vectors of tokens with this length. What a file states about larger ones takes no memory: jobs reject them.
fn check_length(length: usize, poolings: usize, modules: &[Module]) -> Result<(), EngineError> {
    let numbers = length.checked_mul(poolings).filter(|&numbers| numbers <= MAX_CHECKED);
    let Some(numbers) = numbers else { return Ok(()) };
    modules.iter().try_fold(Array1::zeros(numbers), |vector, module| module.apply(vector)).map(drop)
}

/// `truncate_dim` of the settings.
fn dimensions(settings: &Value) -> Result<Option<usize>, EngineError> {
    let Some(value) = settings.get("truncate_dim").filter(|value| !value.is_null()) else { return Ok(None) };
    let number = value.as_u64().filter(|&number| number > 0);
    let number = number.ok_or_else(|| unsupported(SENTENCE_TRANSFORMERS.file, "truncate_dim", value))?;
    Ok(Some(number as usize))
}

fn by_name(name: &str) -> Option<Pooling> {
    Some(match name {
        "cls" => Pooling::Cls,
        "mean" => Pooling::Mean,
        "max" => Pooling::Max,
        "mean_sqrt_len" | "mean_sqrt_len_tokens" => Pooling::MeanSqrt,
        "weightedmean" => Pooling::WeightedMean,
        "lasttoken" => Pooling::LastToken,
        _ => return None,
    })
}

/// Newer repositories name one mode or several, older ones have a flag for each. The order of the flags is that of the vectors.
fn by_file(pool: &Value) -> Result<Vec<Pooling>, EngineError> {
    if let Some(mode) = pool.get("pooling_mode").filter(|mode| !mode.is_null()) {
        let names = mode.as_array().map_or(std::slice::from_ref(mode), Vec::as_slice);
        let known: Option<Vec<Pooling>> = names.iter().map(|name| by_name(name.as_str()?)).collect();
        return known
            .filter(|known| !known.is_empty())
            .ok_or_else(|| unsupported(POOLING.file, "pooling_mode", mode));
    }
    let flags = [
        ("pooling_mode_cls_token", Pooling::Cls),
        ("pooling_mode_max_tokens", Pooling::Max),
        ("pooling_mode_mean_tokens", Pooling::Mean),
        ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrt),
        ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
        ("pooling_mode_lasttoken", Pooling::LastToken),
    ];
    let is_set = |name: &str| pool.get(name).and_then(Value::as_bool).unwrap_or(false);
    let set: Vec<Pooling> =
        flags.into_iter().filter(|(name, _)| is_set(name)).map(|(_, mode)| mode).collect();
    Ok(if set.is_empty() { vec![Pooling::Mean] } else { set })
}

impl Embedder {
    fn prompt(&self, named: Option<&str>) -> Result<&str, EngineError> {
        let Some(name) = named.or(self.sentences.default_prompt.as_deref()) else { return Ok("") };
        self.sentences.prompt(name).ok_or_else(|| {
            let known: Vec<&str> = self.sentences.prompts.keys().map(String::as_str).collect();
            invalid_input(format!("the model has no prompt {name:?}; it has: {}", known.join(", ")))
        })
    }

    /// The embedding of a text, whose prompt has `skipped` tokens that do not count, with this number of dimensions if a job names one.
    fn vector(
        &self,
        result: &RowResults,
        skipped: usize,
        dimensions: Option<usize>,
    ) -> Result<Array1<f32>, EngineError> {
        let mut vector = self.pool(result, skipped)?;
        if let Some(most) = dimensions {
            if most == 0 || most > vector.len() {
                return Err(invalid_input(format!("dimensions must be 1 to {}", vector.len())));
            }
            vector = vector.slice_axis(Axis(0), (..most).into()).to_owned();
        }
        if self.normalises {
            let length = vector.dot(&vector).sqrt().max(1e-12);
            vector /= length;
        }
        // As in the reference, these are not normalized again.
        if let Some(most) = self.dimensions.filter(|&most| dimensions.is_none() && most < vector.len()) {
            vector = vector.slice_axis(Axis(0), (..most).into()).to_owned();
        }
        Ok(vector)
    }

    /// The vector of a text, without its first `skipped` tokens.
    fn pool(&self, results: &RowResults, skipped: usize) -> Result<Array1<f32>, EngineError> {
        let states = output(results, &[&self.output])
            .ok_or_else(|| invalid_model(format!("the graph gives no {} for each text", self.output)))?;
        if self.output == SENTENCE {
            return Ok(flat(states));
        }
        let Ok(states) = states.view().into_dimensionality::<Ix2>() else { return Ok(flat(states)) };
        if states.nrows() == 0 {
            return Err(invalid_model("the graph gives no state for any token"));
        }
        let skipped = skipped.min(states.nrows() - 1);
        let states = states.slice_axis(Axis(0), (skipped..).into());
        let pooled = self.pooling.iter().flat_map(|pooling| pooling.of(states, skipped));
        self.modules.iter().try_fold(pooled.collect(), |vector, module| module.apply(vector))
    }
}

impl Pooling {
    /// The vector of at least one state, the first of which is of token number `first`.
    fn of(self, states: ArrayView2<'_, f32>, first: usize) -> Array1<f32> {
        let count = states.nrows() as f32;
        match self {
            Self::Cls => states.row(0).to_owned(),
            Self::LastToken => states.row(states.nrows() - 1).to_owned(),
            Self::Mean => states.sum_axis(Axis(0)) / count,
            Self::MeanSqrt => states.sum_axis(Axis(0)) / count.sqrt(),
            Self::Max => states.fold_axis(Axis(0), f32::NEG_INFINITY, |a, b| a.max(*b)),
            Self::WeightedMean => {
                let weights = Array1::from_shape_fn(states.nrows(), |place| (first + place + 1) as f32);
                let sum = weights.sum();
                weights.dot(&states) / sum
            }
        }
    }
}

impl Pipeline for Embedder {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { input, prompt, dimensions } = parse_input(input)?;
        let texts = match input {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        };
        if texts.is_empty() || texts.len() > MAX_TEXTS {
            return Err(invalid_input(format!("input must be 1 to {MAX_TEXTS} texts")));
        }
        let prompt = self.prompt(prompt.as_deref())?;
        let skipped =
            if self.pools_prompt || prompt.is_empty() { 0 } else { self.tokens.prompt_length(prompt)? };
        for text in &texts {
            tokens::check(text, "a text of input")?;
        }
        let mut embeddings = Vec::with_capacity(texts.len());
        let (mut tokens, mut waiting, mut rows) = (0, 0, Vec::new());
        for (place, text) in texts.iter().enumerate() {
            job.step()?;
            let whole = format!("{prompt}{text}");
            let row = Row::of(&self.tokens.encode_cut(&whole, None, self.sentences.max_length, 0)?);
            tokens += row.ids.len() as u64;
            waiting += row.ids.len();
            rows.push(row);
            if waiting >= MAX_TOKENS || place + 1 == texts.len() {
                for result in self.graph.run(std::mem::take(&mut rows), job)? {
                    embeddings.push(self.vector(&result, skipped, dimensions)?.to_vec());
                }
                waiting = 0;
            }
        }
        let dimensions = embeddings[0].len();
        Ok(Answer::of(json!({ "embeddings": embeddings, "dimensions": dimensions }), tokens))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "input": TEXT }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}

fn flat(array: &ArrayD<f32>) -> Array1<f32> {
    array.iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use ndarray::arr2;

    use super::*;

    #[test]
    fn a_length_that_a_file_states_takes_no_memory() {
        for length in [usize::MAX, usize::MAX / 8, 1 << 40] {
            check_length(length, 2, &[Module::Normalize]).expect("it is not tried");
        }
        let norm = Module::LayerNorm { weight: Array1::ones(3), bias: Array1::zeros(3) };
        check_length(3, 1, std::slice::from_ref(&norm)).expect("it fits");
        assert!(check_length(3, 2, &[norm]).is_err());
    }

    #[test]
    fn several_poolings_follow_each_other() {
        let modes = |pool: Value| by_file(&pool).expect("known");
        assert_eq!(modes(json!({"pooling_mode": ["cls", "mean"]})), [Pooling::Cls, Pooling::Mean]);
        assert_eq!(modes(json!({"pooling_mode": "max"})), [Pooling::Max]);
        let flags = json!({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true, "pooling_mode_max_tokens": false});
        assert_eq!(modes(flags), [Pooling::Cls, Pooling::Mean]);
        assert_eq!(modes(json!({})), [Pooling::Mean]);
        for unknown in [
            json!({"pooling_mode": "median"}),
            json!({"pooling_mode": 1}),
            json!({"pooling_mode": ["cls", 1]}),
        ] {
            assert!(by_file(&unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn weights_count_the_tokens_of_a_prompt_that_is_left_out() {
        let states = arr2(&[[1.0], [3.0]]);
        assert_eq!(Pooling::WeightedMean.of(states.view(), 0)[0], 7.0 / 3.0);
        assert_eq!(Pooling::WeightedMean.of(states.view(), 2)[0], 15.0 / 7.0);
    }
}
