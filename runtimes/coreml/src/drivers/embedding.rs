//! Text embeddings.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    keys::unsupported,
    pipeline::{Pipeline, TEXT},
    text::tokens::{self, Tokens},
};
use ndarray::{Array1, ArrayD, Axis, Ix2, IxDyn};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Parts, check_unread};
use crate::{
    model::{Tensor, take},
    package::interface::{Feature, Kind, Sizes},
    program::types::Class,
};

/// Maximum length of padded texts in tokens.
const MAX_LENGTH: usize = 1 << 20;

/// Maximum number of texts of one job.
const MAX_TEXTS: usize = 2048;

#[derive(Debug, Deserialize)]
struct Input {
    input: Texts,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

/// Settings of the library that published the network. They are not read: `[engine]` has those of a Cargo.
const UNREAD: &[&str] = &[
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

/// How the vectors of tokens become one of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    Mean,
    Cls,
    LastToken,
}

/// The meaning of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Ids,
    Mask,
    Types,
    Positions,
}

struct Embedder {
    parts: Parts,
    tokens: Tokens,
    /// Inputs with their meaning and element class.
    inputs: Vec<(String, Role, Class)>,
    sizes: Sizes,
    output: String,
    pooling: Pooling,
    normalises: bool,
}

/// Loads an embedding model.
pub fn load(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    check_unread(parts.repository.names(), UNREAD, "pooling and normalize")?;
    let interface = parts.model.interface();
    let mut inputs = Vec::new();
    let mut sizes = None;
    for feature in &interface.inputs {
        let Kind::Array { class, sizes: these } = &feature.kind else { continue };
        let role = role(&feature.name).ok_or_else(|| {
            invalid_model(format!(
                "{} needs the input {}, which texts do not have",
                parts.model.name(),
                feature.name
            ))
        })?;
        if role == Role::Ids {
            sizes = Some(these.clone());
        }
        inputs.push((feature.name.clone(), role, *class));
    }
    let sizes = sizes.filter(|sizes| sizes.rank() == 2);
    let sizes =
        sizes.ok_or_else(|| invalid_model(format!("{} takes no tokens [1, length]", parts.model.name())))?;
    let named = parts.output()?.map(str::to_owned);
    // Token ids and masks, which some models pass on, are integers.
    let is_real = |output: &&Feature| matches!(output.kind, Kind::Array { class: Class::Float, .. });
    let first = || interface.outputs.iter().find(is_real).map(|output| output.name.clone());
    let output = named.or_else(first).ok_or_else(|| no_vectors(&parts))?;
    let pooling = match parts.text("pooling") {
        None | Some("mean") => Pooling::Mean,
        Some("cls") => Pooling::Cls,
        Some("lasttoken") => Pooling::LastToken,
        Some(other) => {
            return Err(unsupported("[engine]", "pooling", &other.into()));
        }
    };
    Ok(Box::new(Embedder {
        tokens: Tokens::load(&parts.repository)?,
        normalises: parts.flag("normalize").unwrap_or(false),
        inputs,
        sizes,
        output,
        pooling,
        parts,
    }))
}

fn no_vectors(parts: &Parts) -> EngineError {
    let outputs = parts.model.interface().outputs.iter();
    let all: Vec<String> = outputs.map(|output| format!("{} ({:?})", output.name, output.kind)).collect();
    invalid_model(format!(
        "{} gives no vectors of real numbers; it gives {}",
        parts.model.name(),
        all.join(", ")
    ))
}

fn role(name: &str) -> Option<Role> {
    let name = name.to_lowercase();
    let has = |part: &str| name.contains(part);
    match () {
        () if has("mask") => Some(Role::Mask),
        () if has("type") || has("segment") => Some(Role::Types),
        () if has("position") => Some(Role::Positions),
        () if has("id") || has("token") => Some(Role::Ids),
        () => None,
    }
}

impl Embedder {
    /// The vector of a text, and its number of tokens.
    fn embed(&self, text: &str) -> Result<(Array1<f32>, usize), EngineError> {
        tokens::check(text, "a text of input")?;
        let most = self
            .sizes
            .most(1)
            .map_or(self.tokens.max_length, |most| self.tokens.max_length.min(most as usize));
        let encoding = self.tokens.encode_cut(text, None, most, 0)?;
        let count = encoding.len();
        let length = self.sizes.holding(1, count as u64).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= MAX_LENGTH);
        let length = length.ok_or_else(|| {
            invalid_input(format!("the text has {count} tokens, which the model does not take"))
        })?;
        let filled = |fill: i64, of: &dyn Fn(usize) -> i64| -> Vec<i64> {
            (0..length).map(|place| if place < count { of(place) } else { fill }).collect()
        };
        let (ids, types) = (encoding.get_ids(), encoding.get_type_ids());
        let tensor = |(name, role, class): &(String, Role, Class)| {
            let values = match role {
                Role::Ids => filled(self.tokens.pad_id, &|place| i64::from(ids[place])),
                Role::Mask => filled(0, &|_| 1),
                Role::Types => filled(0, &|place| i64::from(types[place])),
                Role::Positions => (0..length as i64).collect(),
            };
            let array = ArrayD::from_shape_vec(IxDyn(&[1, length]), values).unwrap_or_default();
            let tensor = if *class == Class::Float {
                Tensor::Floats(array.mapv(|number| number as f32))
            } else {
                Tensor::Ints(array)
            };
            (name.clone(), tensor)
        };
        let model = &self.parts.model;
        let inputs = self.inputs.iter().map(tensor).collect();
        let mut given = model.run(inputs, &mut model.start()?)?;
        let states = take(&mut given, &self.output)
            .ok_or_else(|| invalid_model(format!("{} gives no {}", model.name(), self.output)))?;
        let Tensor::Floats(states) = states else { return Err(no_vectors(&self.parts)) };
        Ok((self.pooled(states, count)?, count))
    }

    fn pooled(&self, mut states: ArrayD<f32>, count: usize) -> Result<Array1<f32>, EngineError> {
        if states.ndim() == 3 && states.shape()[0] == 1 {
            states.index_axis_inplace(Axis(0), 0);
        } else if states.ndim() == 2 && states.shape()[0] == 1 {
            // The model pools.
            return self.finished(states.iter().copied().collect());
        }
        let states = states.into_dimensionality::<Ix2>();
        let states = states.ok().filter(|states| states.nrows() >= count && count > 0);
        let states = states.ok_or_else(|| {
            invalid_model(format!("{} gives no state for each token", self.parts.model.name()))
        })?;
        self.finished(match self.pooling {
            Pooling::Cls => states.row(0).to_owned(),
            Pooling::LastToken => states.row(count - 1).to_owned(),
            Pooling::Mean => states.slice_axis(Axis(0), (..count).into()).sum_axis(Axis(0)) / count as f32,
        })
    }

    fn finished(&self, mut vector: Array1<f32>) -> Result<Array1<f32>, EngineError> {
        if vector.iter().any(|number| number.is_nan()) {
            return Err(invalid_model(format!("{} gives NaN", self.parts.model.name())));
        }
        if self.normalises {
            let length = vector.dot(&vector).sqrt().max(1e-12);
            vector /= length;
        }
        Ok(vector)
    }
}

impl Pipeline for Embedder {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { input } = parse_input(input)?;
        let texts = match input {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        };
        if texts.is_empty() || texts.len() > MAX_TEXTS {
            return Err(invalid_input(format!("input must be 1 to {MAX_TEXTS} texts")));
        }
        let (mut embeddings, mut tokens) = (Vec::with_capacity(texts.len()), 0);
        for text in &texts {
            job.step()?;
            let (vector, count) = self.embed(text)?;
            embeddings.push(vector.to_vec());
            tokens += count as u64;
        }
        let dimensions = embeddings[0].len();
        Ok(Answer::of(json!({ "embeddings": embeddings, "dimensions": dimensions }), tokens))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "input": TEXT }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.parts.model.name().to_owned()]
    }
}
