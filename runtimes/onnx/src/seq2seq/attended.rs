//! What heads of a decoder attend to, from graphs with an output for each layer, as the exports of Whisper called `timestamped` have.

use std::collections::{HashMap, hash_map::Entry};

use island_runtimes_graph::{Graph, floats};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    speech::alignment::Head,
};
use ndarray::{Array2, Array4, ArrayView1, ArrayView2, Axis, Ix4, s, stack};
use ort::value::DynValue;

/// Beginning of the outputs' names; the index of a layer follows.
const OUTPUT: &str = "cross_attentions.";

/// Whether an output is the attention of a layer.
pub(super) fn is_attention(name: &str) -> bool {
    name.starts_with(OUTPUT)
}

/// Which output a graph lacks for these heads, if it does.
pub(super) fn missing(graph: &Graph, heads: &[Head]) -> Option<String> {
    let missing = heads.iter().map(|head| output(head.layer)).find(|name| !graph.outputs().contains(name))?;
    Some(format!("{} has no output {missing}", graph.name()))
}

fn output(layer: usize) -> String {
    format!("{OUTPUT}{layer}")
}

/// What the chosen heads attended to during decoding.
#[derive(Debug, Default)]
pub(super) struct Attended {
    heads: Vec<Head>,
    /// `[heads, positions]` at the last of the tokens. Rows with the same tokens attend to the same.
    by_tokens: HashMap<Vec<i64>, Array2<f32>>,
}

impl Attended {
    /// Keeps what these heads attend to.
    pub(super) fn of(heads: &[Head]) -> Self {
        Self { heads: heads.to_vec(), by_tokens: HashMap::new() }
    }

    /// Keeps what a step of `graph` gave for rows that have read these tokens.
    pub(super) fn keep(
        &mut self,
        read: &[Vec<i64>],
        given: &[(String, DynValue)],
        graph: &str,
    ) -> Result<(), EngineError> {
        let mut layers: HashMap<usize, Array4<f32>> = HashMap::new();
        for head in &self.heads {
            let attention = match layers.entry(head.layer) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(layer(given, head.layer, read.len(), graph)?),
            };
            if head.index >= attention.shape()[1] {
                let name = output(head.layer);
                return Err(invalid_model(format!("{name} of {graph} has no head {}", head.index)));
            }
        }
        if self.heads.is_empty() {
            return Ok(());
        }
        for (row, tokens) in read.iter().enumerate() {
            let of_head = |head: &Head| layers[&head.layer].slice(s![row, head.index, -1, ..]);
            let of_heads: Vec<ArrayView1<'_, f32>> = self.heads.iter().map(of_head).collect();
            let of_heads = stack(Axis(0), &of_heads)
                .map_err(|error| invalid_model(format!("the layers of {graph} differ")).because(error))?;
            self.by_tokens.insert(tokens.clone(), of_heads);
        }
        Ok(())
    }

    /// What the heads attended to at the last of these tokens.
    pub(super) fn at(&self, tokens: &[u32]) -> Option<ArrayView2<'_, f32>> {
        let tokens: Vec<i64> = tokens.iter().copied().map(i64::from).collect();
        self.by_tokens.get(&tokens).map(|kept| kept.view())
    }
}

/// The attention of a layer, `[rows, heads, tokens, positions]`.
fn layer(
    given: &[(String, DynValue)],
    layer: usize,
    rows: usize,
    graph: &str,
) -> Result<Array4<f32>, EngineError> {
    let name = output(layer);
    let value = given.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    let value = value.ok_or_else(|| invalid_model(format!("{graph} gives no {name}")))?;
    let attention =
        floats(value).map_err(|error| invalid_model(format!("{name} of {graph}")).because(error))?;
    let attention = attention.into_dimensionality::<Ix4>().ok();
    attention
        .filter(|attention| attention.shape()[0] == rows && attention.shape()[2] > 0)
        .ok_or_else(|| invalid_model(format!("{name} of {graph} is not [rows, heads, tokens, positions]")))
}
