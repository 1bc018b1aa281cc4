//! Decoders that attend to an encoder's states. Their files have three forms: one graph with a switch for the cache
//! (`decoder_model_merged`), two graphs, one for the first step and one for the others (`decoder_model`, `decoder_with_past_model`), or
//! one without a cache, which reads all tokens at each step.

use attended::Attended;
use island_runtimes_graph::{Feed, Feeds, Graph, filled, floats};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    generate::Decoder,
    speech::alignment::Head,
};
use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD, Axis, Ix3};
use ort::value::{DynValue, Tensor};

use crate::task::Loader;

mod attended;

/// Inputs that [`Decoding`] feeds, beside the cache.
pub const FED: [&str; 6] = [
    "input_ids",
    "encoder_attention_mask",
    "cache_position",
    "encoder_hidden_states",
    "decoder_attention_mask",
    "use_cache_branch",
];

/// The graphs of a decoder.
#[derive(Debug)]
pub struct Seq2Seq {
    first: Graph,
    /// For the steps after the first; absent if one graph does both, or without a cache.
    rest: Option<Graph>,
    /// Whether the one graph has a cache.
    is_merged: bool,
}

/// The encoder's output for one input.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// `[1, E, H]`.
    pub states: ArrayD<f32>,
    /// `[1, E]`; absent if every position is valid.
    pub mask: Option<ArrayD<i64>>,
}

impl Seq2Seq {
    /// The decoder of a repository, for a task that feeds these inputs beside the cache. An error if a graph needs another one.
    pub fn load(loader: &Loader<'_>, fed: &[&str]) -> Result<Self, EngineError> {
        if let Some(first) = loader.graph_if_there("decoder_model_merged")? {
            first.require_fed(fed)?;
            return Ok(Self {
                is_merged: first.takes("use_cache_branch") || takes_cache(&first),
                first,
                rest: None,
            });
        }
        let first = loader.graph(&["decoder_model", "text_decoder"], fed)?;
        let rest = loader.graph_if_there("decoder_with_past_model")?;
        rest.as_ref().map_or(Ok(()), |rest| rest.require_fed(fed))?;
        Ok(Self { is_merged: takes_cache(&first), rest, first })
    }

    /// Their paths in the repository.
    pub fn names(&self) -> Vec<String> {
        let all = [Some(&self.first), self.rest.as_ref()];
        all.into_iter().flatten().map(|graph| graph.name().to_owned()).collect()
    }

    /// The graph of the first step, and that of the others; `None` if no graph takes a cache.
    pub fn steps(&self) -> Option<(&Graph, &Graph)> {
        match &self.rest {
            Some(rest) => Some((&self.first, rest)),
            None => self.is_merged.then_some((&self.first, &self.first)),
        }
    }

    /// Starts decoding one input.
    pub fn begin(&self, encoded: Encoded) -> Decoding<'_> {
        let (cache, attended) = (Cache::default(), Attended::default());
        Decoding { graphs: self, encoded, rows: 1, read: Vec::new(), cache, attended }
    }

    /// Why the graphs do not give what these heads attend to; `None` if they do.
    pub fn without_attention(&self, heads: &[Head]) -> Option<String> {
        let all = [Some(&self.first), self.rest.as_ref()];
        all.into_iter().flatten().find_map(|graph| attended::missing(graph, heads))
    }
}

fn takes_cache(graph: &Graph) -> bool {
    graph.inputs().iter().any(|input| input.name.starts_with("past_key_values"))
}

/// Outputs of a step for the next one, by the names of their inputs.
#[derive(Debug, Default)]
pub struct Cache {
    /// Of the generated tokens.
    own: Vec<(String, DynValue)>,
    /// Of the encoder's states, which do not change.
    encoders: Vec<(String, DynValue)>,
}

impl Cache {
    /// Adds the parts that a graph takes.
    pub fn feed<'f>(&'f self, mut feeds: Feeds<'f>, graph: &Graph) -> Feeds<'f> {
        for (name, value) in self.own.iter().chain(&self.encoders) {
            if graph.takes(name) {
                feeds = feeds.held(name, value);
            }
        }
        feeds
    }

    /// Keeps the outputs of a step for the next one, and returns the others.
    pub fn keep(&mut self, values: Vec<(String, DynValue)>, is_first: bool) -> Vec<(String, DynValue)> {
        let mut others = Vec::new();
        for (name, value) in values {
            match fed_as(&name) {
                None => others.push((name, value)),
                // After the first step the merged graphs leave these empty.
                Some(fed) if fed.contains(".encoder.") => {
                    if is_first {
                        self.encoders.push((fed, value));
                    }
                }
                Some(fed) => replace(&mut self.own, fed, value),
            }
        }
        others
    }
}

/// A text during decoding.
#[derive(Debug)]
pub struct Decoding<'g> {
    graphs: &'g Seq2Seq,
    encoded: Encoded,
    rows: usize,
    /// All tokens so far by row, for graphs without a cache.
    read: Vec<Vec<i64>>,
    cache: Cache,
    attended: Attended,
}

impl Decoding<'_> {
    /// Keeps what these heads attend to.
    #[must_use]
    pub fn keeping(self, heads: &[Head]) -> Self {
        Self { attended: Attended::of(heads), ..self }
    }

    fn feeds<'f>(&'f self, graph: &Graph, tokens: ArrayD<i64>, past: usize) -> Feeds<'f> {
        let new = tokens.shape()[1];
        let states = repeated(&self.encoded.states, self.rows);
        let length = states.shape()[1];
        let mask = match &self.encoded.mask {
            Some(mask) => repeated(mask, self.rows),
            None => filled(&[self.rows, length], 1),
        };
        let cache_position = ArrayD::from_shape_fn(vec![new], |place| (past + place[0]) as i64);
        let feeds = Feeds::new()
            .ints("input_ids", tokens)
            .ints("encoder_attention_mask", mask)
            .ints("cache_position", cache_position)
            .floats("encoder_hidden_states", states)
            .ints("decoder_attention_mask", filled(&[self.rows, past + new], 1))
            .with("use_cache_branch", Feed::Bools(filled(&[1], past > 0)));
        self.cache.feed(feeds, graph)
    }
}

impl Decoder for Decoding<'_> {
    fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError> {
        let shape = self.encoded.states.shape();
        if shape.len() != 3 || shape[0] != 1 {
            return Err(invalid_model(format!(
                "the encoder's states have the shape {shape:?}, not [1, positions, width]"
            )));
        }
        let past = self.read.first().map_or(0, Vec::len);
        self.read.resize(self.rows, Vec::new());
        for (read, new) in self.read.iter_mut().zip(tokens.rows()) {
            read.extend(new);
        }
        let has_cache = past > 0 && !self.cache.own.is_empty();
        let graph = match (&self.graphs.rest, has_cache) {
            (Some(rest), true) => rest,
            _ => &self.graphs.first,
        };
        let whole =
            Array2::from_shape_fn((self.rows, self.read[0].len()), |(row, place)| self.read[row][place]);
        let results = if has_cache {
            graph.run(self.feeds(graph, tokens.to_owned().into_dyn(), past))?
        } else {
            graph.run(self.feeds(graph, whole.into_dyn(), 0))?
        };
        let name = graph.name().to_owned();
        let caches = self.graphs.is_merged || self.graphs.rest.is_some();
        let values = results.into_values();
        let is_answer = |name: &str| name == "logits" || attended::is_attention(name);
        let values =
            if caches { values } else { values.into_iter().filter(|(name, _)| is_answer(name)).collect() };
        let others = self.cache.keep(values, !has_cache);
        self.attended.keep(&self.read, &others, &name)?;
        let logits = others.into_iter().find(|(name, _)| name == "logits").map(|(_, value)| value);
        let logits = logits.ok_or_else(|| invalid_model(format!("{name} gives no logits")))?;
        let logits =
            floats(&logits).map_err(|error| invalid_model(format!("logits of {name}")).because(error))?;
        let logits = logits.into_dimensionality::<Ix3>().ok();
        let logits = logits
            .filter(|logits| logits.shape()[0] == self.rows && logits.shape()[1] > 0 && logits.shape()[2] > 0)
            .ok_or_else(|| {
                invalid_model(format!("the logits of {name} are not [rows, tokens, vocabulary]"))
            })?;
        let last = logits.index_axis(Axis(1), logits.shape()[1] - 1).to_owned();
        if last.iter().any(|logit| logit.is_nan()) {
            return Err(invalid_model(format!(
                "the logits of {name} are not numbers: its weights are broken"
            )));
        }
        Ok(last)
    }

    fn reorder(&mut self, order: &[usize]) -> Result<(), EngineError> {
        if order.len() == self.rows && order.iter().enumerate().all(|(row, &from)| row == from) {
            return Ok(());
        }
        for (_, value) in &mut self.cache.own {
            *value = rows(value, order)?;
        }
        if order.len() != self.rows {
            // All rows attend to the same input.
            for (_, value) in &mut self.cache.encoders {
                *value = rows(value, &vec![0; order.len()])?;
            }
        }
        if !self.read.is_empty() {
            self.read = order.iter().map(|&from| self.read[from].clone()).collect();
        }
        self.rows = order.len();
        Ok(())
    }

    fn attention(&self, tokens: &[u32]) -> Option<ArrayView2<'_, f32>> {
        self.attended.at(tokens)
    }
}

/// The input for an output of the step before: `present.0.decoder.key` is `past_key_values.0.decoder.key`.
fn fed_as(given: &str) -> Option<String> {
    let rest = given.strip_prefix("present_key_values").or_else(|| given.strip_prefix("present"))?;
    Some(format!("past_key_values{rest}"))
}

fn replace(values: &mut Vec<(String, DynValue)>, name: String, value: DynValue) {
    match values.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => values.push((name, value)),
    }
}

/// These rows of a part of the cache, in this order. An error if it has no such rows: a file decides what its graph gives.
fn rows(value: &DynValue, order: &[usize]) -> Result<DynValue, EngineError> {
    let broke = |error: ort::Error| invalid_model("the decoder's cache cannot be reordered").because(error);
    if let Ok(halves) = value.try_extract_array::<half::f16>() {
        return Ok(Tensor::from_array(select(halves, order)?).map_err(broke)?.into_dyn());
    }
    let numbers = value.try_extract_array::<f32>().map_err(broke)?;
    Ok(Tensor::from_array(select(numbers, order)?).map_err(broke)?.into_dyn())
}

fn select<T: Clone>(array: ArrayViewD<'_, T>, order: &[usize]) -> Result<ArrayD<T>, EngineError> {
    let row_count = array.shape().first().copied().unwrap_or(0);
    if order.iter().any(|&row| row >= row_count) {
        return Err(invalid_model(format!(
            "a part of the decoder's cache has the shape {:?}, not one row for each text",
            array.shape()
        )));
    }
    Ok(array.select(Axis(0), order))
}

fn repeated<T: Clone>(one: &ArrayD<T>, rows: usize) -> ArrayD<T> {
    if rows == 1 { one.clone() } else { one.select(Axis(0), &vec![0; rows]) }
}

#[cfg(test)]
mod tests {
    use island_runtimes_graph::library;
    use ndarray::{arr0, arr1};

    use super::*;

    #[test]
    fn a_cache_without_rows_is_refused() {
        library::open().expect("the library");
        let of = |array: ArrayD<f32>| Tensor::from_array(array).expect("a tensor").into_dyn();
        let reordered = rows(&of(arr1(&[1.0, 2.0]).into_dyn()), &[1, 0]).expect("two rows");
        assert_eq!(floats(&reordered).expect("numbers"), arr1(&[2.0, 1.0]).into_dyn());
        let short = rows(&of(arr1(&[1.0]).into_dyn()), &[0, 1]).expect_err("one row").message();
        assert!(short.contains("the shape [1], not one row"), "{short}");
        assert!(rows(&of(arr0(1.0).into_dyn()), &[0]).is_err(), "it has no rows");
    }
}
