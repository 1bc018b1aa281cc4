//! Text embeddings, pooled as the model's settings define.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    pipeline::Pipeline,
    text::tokens::{self, Tokens},
};
use ndarray::{Array1, ArrayD, Axis, Ix2};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    batch::{Batcher, Row, RowResults, output},
    task::Loader,
};

/// Maximum number of texts of one job.
const MAX_TEXTS: usize = 2048;

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
    pooling: Pooling,
    normalises: bool,
    lower_cases: bool,
    prompts: Map<String, Value>,
    default_prompt: Option<String>,
    max_length: usize,
    /// Whether pooling includes the tokens of the prompt.
    pools_prompt: bool,
}

/// Loads an embedding model.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let repository = &loader.repository;
    let tokens = Tokens::load(repository)?;
    let graph = Batcher::new(loader.graph_with_lanes(&["model"])?, tokens.pad_id);
    let modules = repository.json("modules.json")?.unwrap_or_default();
    let kinds: Vec<&str> =
        modules.as_array().into_iter().flatten().filter_map(|module| module.get("type")?.as_str()).collect();
    if kinds.iter().any(|kind| kind.ends_with(".Dense")) {
        return Err(invalid_model("modules.json has a dense layer after pooling, which is in no ONNX file"));
    }
    let pool = repository.json("1_Pooling/config.json")?.unwrap_or_default();
    let named = repository.json("config_sentence_transformers.json")?.unwrap_or_default();
    let sentence = repository.json("sentence_bert_config.json")?.unwrap_or_default();
    let pooling = match loader.settings.get("pooling").and_then(Value::as_str) {
        Some(name) => by_name(name)?,
        None => by_file(&pool)?,
    };
    let normalises = loader.settings.get("normalize").and_then(Value::as_bool);
    let configured = sentence.get("max_seq_length").and_then(Value::as_u64).map(|most| most as usize);
    let prompts = loader.setting("prompts", &named).and_then(Value::as_object).cloned().unwrap_or_default();
    let default_prompt = loader.setting("default_prompt_name", &named).and_then(Value::as_str);
    Ok(Box::new(Embedder {
        pooling,
        normalises: normalises.unwrap_or_else(|| kinds.iter().any(|kind| kind.ends_with(".Normalize"))),
        lower_cases: sentence.get("do_lower_case").and_then(Value::as_bool).unwrap_or(false),
        default_prompt: default_prompt.map(str::to_owned),
        prompts,
        max_length: configured.unwrap_or(tokens.max_length).min(tokens.max_length),
        pools_prompt: pool.get("include_prompt").and_then(Value::as_bool).unwrap_or(true),
        tokens,
        graph,
    }))
}

fn by_name(name: &str) -> Result<Pooling, EngineError> {
    Ok(match name {
        "cls" => Pooling::Cls,
        "mean" => Pooling::Mean,
        "max" => Pooling::Max,
        "mean_sqrt_len" | "mean_sqrt_len_tokens" => Pooling::MeanSqrt,
        "weightedmean" => Pooling::WeightedMean,
        "lasttoken" => Pooling::LastToken,
        _ => return Err(invalid_model(format!("unknown pooling {name:?}"))),
    })
}

/// Newer repositories name the mode, older ones have a flag for each.
fn by_file(pool: &Value) -> Result<Pooling, EngineError> {
    if let Some(name) = pool.get("pooling_mode").and_then(Value::as_str) {
        return by_name(name);
    }
    let known = [
        ("pooling_mode_cls_token", Pooling::Cls),
        ("pooling_mode_max_tokens", Pooling::Max),
        ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrt),
        ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
        ("pooling_mode_lasttoken", Pooling::LastToken),
    ];
    let is_set = |name: &str| pool.get(name).and_then(Value::as_bool).unwrap_or(false);
    Ok(known.into_iter().find(|(name, _)| is_set(name)).map_or(Pooling::Mean, |(_, pooling)| pooling))
}

impl Embedder {
    fn prompt(&self, named: Option<&str>) -> Result<&str, EngineError> {
        let Some(name) = named.or(self.default_prompt.as_deref()) else { return Ok("") };
        let text = self.prompts.get(name).and_then(Value::as_str);
        text.ok_or_else(|| {
            let known: Vec<&str> = self.prompts.keys().map(String::as_str).collect();
            invalid_input(format!("the model has no prompt {name:?}; it has: {}", known.join(", ")))
        })
    }

    /// The vector of a text, without its first `skipped` tokens.
    fn pool(&self, results: &RowResults, skipped: usize) -> Result<Array1<f32>, EngineError> {
        if let Some(pooled) = output(results, &["sentence_embedding"]) {
            return Ok(flat(pooled));
        }
        let states = output(results, &["last_hidden_state", "token_embeddings", "hidden_states", "logits"])
            .or_else(|| results.first().map(|(_, array)| array))
            .ok_or_else(|| invalid_model("the graph gives no hidden states"))?;
        let Ok(states) = states.view().into_dimensionality::<Ix2>() else { return Ok(flat(states)) };
        if states.nrows() == 0 {
            return Err(invalid_model("the graph gives no state for any token"));
        }
        let states = states.slice_axis(Axis(0), (skipped.min(states.nrows().saturating_sub(1))..).into());
        let count = states.nrows().max(1) as f32;
        Ok(match self.pooling {
            Pooling::Cls => states.row(0).to_owned(),
            Pooling::LastToken => states.row(states.nrows() - 1).to_owned(),
            Pooling::Mean => states.sum_axis(Axis(0)) / count,
            Pooling::MeanSqrt => states.sum_axis(Axis(0)) / count.sqrt(),
            Pooling::Max => states.fold_axis(Axis(0), f32::NEG_INFINITY, |a, b| a.max(*b)),
            Pooling::WeightedMean => {
                let weights = Array1::from_shape_fn(states.nrows(), |place| (place + 1) as f32);
                let sum = weights.sum();
                weights.dot(&states) / sum
            }
        })
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
        let skipped = if self.pools_prompt || prompt.is_empty() {
            0
        } else {
            // The end token of the prompt is absent in the joined text.
            self.tokens.encode(prompt)?.len().saturating_sub(1)
        };
        let mut encodings = Vec::with_capacity(texts.len());
        for text in &texts {
            tokens::check(text, "a text of input")?;
            let whole = format!("{prompt}{text}");
            let whole = if self.lower_cases { whole.to_lowercase() } else { whole };
            encodings.push(self.tokens.encode_cut(&whole, None, self.max_length, 0)?);
        }
        let results = self.graph.run(encodings.iter().map(Row::of).collect(), job)?;
        let mut embeddings = Vec::with_capacity(texts.len());
        for result in &results {
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
            embeddings.push(vector.to_vec());
        }
        let tokens = encodings.iter().map(|encoding| encoding.len() as u64).sum();
        let dimensions = embeddings[0].len();
        Ok(Answer::of(json!({ "embeddings": embeddings, "dimensions": dimensions }), tokens))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}

fn flat(array: &ArrayD<f32>) -> Array1<f32> {
    array.iter().copied().collect()
}
