//! The networks written down as ONNX graphs, for GPUs.
//!
//! In a graph, images are `[batch, channels, height, width]`, rows `[batch · rows, features]` and vectors `[batch, features]`; batch, height
//! and width are open, so one graph serves images of all sizes. Only operations are used that ONNX Runtime's plugin for GPUs has there, except
//! for the arithmetic of shapes.

mod attention;
mod initializers;
mod interface;

use std::{collections::BTreeMap, sync::Arc};

use island_runtimes_graph::onnx::{Attr, Node, Tensor, ValueInfo, text};
use island_runtimes_kit::error::EngineError;

pub use initializers::{Converted, Stored};
pub use interface::Finished;

use crate::{
    compute::{Compute, Computed, Rows},
    lora::Adapters,
    ops::{Activation, Conv, GroupNorm, LayerNorm, Linear},
    weights::{Element, Weights},
};

/// Inputs of one concatenation: a GPU may bind only eight buffers at once.
const JOINED: usize = 4;

/// A value of the graph, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(Arc<str>);

/// What a graph is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Elements of the computation.
    pub element: Element,
    /// Whether the device's own operation for attention is used, which keeps no scores in memory.
    pub fused_attention: bool,
    /// Pieces in which other attention is computed, one after the other, to bound the memory of its scores. At most the number of rows.
    pub pieces: usize,
}

/// A graph under construction.
#[derive(Debug)]
pub struct Lowering<'w> {
    weights: &'w Weights,
    adapters: &'w Adapters,
    options: Options,
    nodes: Vec<Node>,
    initializers: Vec<Tensor>,
    /// Weights that do not lie in a file as they are needed.
    converted: Vec<(String, Vec<i64>, Converted)>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// Initializers and shapes by their content.
    known: BTreeMap<String, Value>,
    /// The batch size, one integer.
    batch: Option<Value>,
    /// Rows of each sequence, if they are fixed.
    count: usize,
    made: usize,
}

impl<'w> Lowering<'w> {
    /// An empty graph with these weights, changed by adapters.
    pub fn new(weights: &'w Weights, adapters: &'w Adapters, options: Options) -> Self {
        Self {
            weights,
            adapters,
            options,
            nodes: Vec::new(),
            initializers: Vec::new(),
            converted: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            known: BTreeMap::new(),
            batch: None,
            count: 0,
            made: 0,
        }
    }

    fn fresh(&mut self) -> Value {
        self.made += 1;
        Value(format!("v{}", self.made).into())
    }

    /// Adds a node with one output. Absent inputs are empty names.
    fn node(&mut self, kind: &str, inputs: &[&Value], attributes: Vec<Attr>) -> Value {
        self.nodes_of("", kind, inputs, attributes, 1).remove(0)
    }

    fn nodes_of(
        &mut self,
        domain: &str,
        kind: &str,
        inputs: &[&Value],
        attributes: Vec<Attr>,
        outputs: usize,
    ) -> Vec<Value> {
        let outputs: Vec<Value> = (0..outputs).map(|_| self.fresh()).collect();
        self.nodes.push(Node {
            inputs: inputs.iter().map(|value| value.0.to_string()).collect(),
            outputs: outputs.iter().map(|value| value.0.to_string()).collect(),
            name: None,
            op_type: Some(kind.to_owned()),
            attributes: attributes.into_iter().map(Attr::attribute).collect(),
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
        });
        outputs
    }

    /// A value that is made once for all that need it.
    fn once(&mut self, key: String, make: impl FnOnce(&mut Self) -> Value) -> Value {
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let value = make(self);
        self.known.insert(key, value.clone());
        value
    }

    fn shape(&mut self, x: &Value) -> Value {
        self.once(format!("shape of {}", x.0), |graph| graph.node("Shape", &[x], Vec::new()))
    }

    fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.integers(shape);
        self.node("Reshape", &[x, &shape], Vec::new())
    }

    /// Reshapes to the batch size and these dimensions.
    fn reshape_batch(&mut self, x: &Value, rest: &[i64]) -> Value {
        let shape = match self.batch.clone() {
            None => self.integers(&[&[1], rest].concat()),
            Some(batch) => self.once(format!("batch and {rest:?}"), |graph| {
                let rest = graph.integers(rest);
                graph.node("Concat", &[&batch, &rest], vec![Attr::Int("axis", 0)])
            }),
        };
        self.node("Reshape", &[x, &shape], Vec::new())
    }

    fn transpose(&mut self, x: &Value, order: &[i64]) -> Value {
        self.node("Transpose", &[x], vec![Attr::Ints("perm", order.to_vec())])
    }

    /// Rows of `[batch, rows, …]`.
    fn flatten(&mut self, x: &Value) -> Value {
        self.node("Flatten", &[x], vec![Attr::Int("axis", 2)])
    }

    fn binary(&mut self, kind: &str, one: &Value, other: &Value) -> Value {
        self.node(kind, &[one, other], Vec::new())
    }

    fn silu(&mut self, x: &Value) -> Value {
        let gate = self.node("Sigmoid", &[x], Vec::new());
        self.binary("Mul", x, &gate)
    }

    fn gelu(&mut self, x: &Value) -> Value {
        self.node("Gelu", &[x], vec![text("approximate", "none")])
    }

    fn convolve(&mut self, layer: &Conv<Stored>, x: &Value) -> Computed<Value> {
        let kernel = layer.shape.kernel;
        let mut shape = [layer.outputs, layer.inputs, kernel, kernel];
        let mut x = x.clone();
        if is_miscomputed(layer.inputs) {
            shape[1] += 1;
            let channel = self.integers(&[0, 0, 0, 0, 0, 1, 0, 0]);
            x = self.node("Pad", &[&x, &channel], Vec::new());
        }
        let weight = self.changed_weight(&layer.weight, &layer.name, &shape)?;
        let bias = self.weight(&layer.bias, &[layer.outputs])?;
        let side = |number: usize| number as i64;
        let (stride, before, after) =
            (side(layer.shape.stride), side(layer.shape.before), side(layer.shape.after));
        let attributes = vec![
            Attr::Ints("kernel_shape", vec![side(kernel); 2]),
            Attr::Ints("strides", vec![stride; 2]),
            Attr::Ints("pads", vec![before, before, after, after]),
        ];
        Ok(self.node("Conv", &[&x, &weight, &bias], attributes))
    }

    /// Joins any number of values along an axis.
    fn join_all(&mut self, mut values: Vec<Value>, axis: i64) -> Value {
        while values.len() > 1 {
            let joined = values.chunks(JOINED).map(|group| match group {
                [alone] => alone.clone(),
                group => {
                    self.node("Concat", &group.iter().collect::<Vec<_>>(), vec![Attr::Int("axis", axis)])
                }
            });
            values = joined.collect();
        }
        values.remove(0)
    }
}

/// Whether the WebGPU plugin 0.4.0 gives wrong convolutions of this number of channels: it reads three at a time and loses their order. They get
/// one more channel, of zeros; inpainting networks have nine.
fn is_miscomputed(channels: usize) -> bool {
    channels > 3 && channels.is_multiple_of(3) && !channels.is_multiple_of(4)
}

impl Compute for Lowering<'_> {
    type Weight = Stored;
    type Value = Value;

    fn conv(&mut self, layer: &Conv<Stored>, x: &Value, shift: Option<&Value>) -> Computed<Value> {
        let out = self.convolve(layer, x)?;
        let Some(shift) = shift else { return Ok(out) };
        let shift = self.reshape(shift, &[0, 0, 1, 1]);
        Ok(self.binary("Add", &out, &shift))
    }

    fn conv_onto(&mut self, layer: &Conv<Stored>, x: &Value, residual: &Value) -> Computed<Value> {
        let out = self.convolve(layer, x)?;
        Ok(self.binary("Add", &out, residual))
    }

    fn conv_enlarged(&mut self, layer: &Conv<Stored>, x: &Value, size_of: Option<&Value>) -> Computed<Value> {
        let absent = Value("".into());
        let mut inputs = vec![x.clone(), absent.clone()];
        match size_of {
            None => inputs.push(self.floats(&[1.0, 1.0, 2.0, 2.0])),
            Some(other) => {
                let ends = self.node("Shape", &[x], vec![Attr::Int("end", 2)]);
                let sides = self.node("Shape", &[other], vec![Attr::Int("start", 2)]);
                inputs.extend([absent, self.node("Concat", &[&ends, &sides], vec![Attr::Int("axis", 0)])]);
            }
        }
        let attributes = vec![
            text("mode", "nearest"),
            text("coordinate_transformation_mode", "asymmetric"),
            text("nearest_mode", "floor"),
        ];
        let larger = self.node("Resize", &inputs.iter().collect::<Vec<_>>(), attributes);
        self.convolve(layer, &larger)
    }

    fn linear(&mut self, layer: &Linear<Stored>, x: &Value, residual: Option<&Value>) -> Computed<Value> {
        let weight = self.changed_weight(&layer.weight, &layer.name, &[layer.outputs, layer.inputs])?;
        let mut inputs = vec![x.clone(), weight];
        if let Some(bias) = &layer.bias {
            inputs.push(self.weight(bias, &[layer.outputs])?);
        }
        let out = self.node("Gemm", &inputs.iter().collect::<Vec<_>>(), vec![Attr::Int("transB", 1)]);
        Ok(residual.map_or(out.clone(), |residual| self.binary("Add", &out, residual)))
    }

    fn linear_onto_image(&mut self, layer: &Linear<Stored>, rows: &Value, image: &Value) -> Computed<Value> {
        let out = self.linear(layer, rows, None)?;
        let out = self.reshape_batch(&out, &[-1, layer.outputs as i64]);
        let out = self.transpose(&out, &[0, 2, 1]);
        let shape = self.shape(image);
        let out = self.node("Reshape", &[&out, &shape], Vec::new());
        Ok(self.binary("Add", &out, image))
    }

    fn pointwise(&mut self, layer: &Linear<Stored>, x: &Value) -> Computed<Value> {
        let shape = [layer.outputs, layer.inputs, 1, 1];
        let mut inputs = vec![x.clone(), self.changed_weight(&layer.weight, &layer.name, &shape)?];
        if let Some(bias) = &layer.bias {
            inputs.push(self.weight(bias, &[layer.outputs])?);
        }
        let attributes = vec![Attr::Ints("kernel_shape", vec![1, 1])];
        Ok(self.node("Conv", &inputs.iter().collect::<Vec<_>>(), attributes))
    }

    fn group_norm(&mut self, layer: &GroupNorm<Stored>, x: &Value, silu: bool) -> Computed<Value> {
        let groups = self.reshape(x, &[0, layer.groups as i64, -1]);
        let (ones, zeros) = (self.numbers(1.0, &[layer.groups]), self.numbers(0.0, &[layer.groups]));
        let epsilon = vec![Attr::Float("epsilon", layer.epsilon as f32)];
        let normed = self.node("InstanceNormalization", &[&groups, &ones, &zeros], epsilon);
        let shape = self.shape(x);
        let normed = self.node("Reshape", &[&normed, &shape], Vec::new());
        let channels = [layer.channels, 1, 1];
        let (factor, offset) = (self.weight(&layer.weight, &channels)?, self.weight(&layer.bias, &channels)?);
        let scaled = self.binary("Mul", &normed, &factor);
        let out = self.binary("Add", &scaled, &offset);
        Ok(if silu { self.silu(&out) } else { out })
    }

    fn layer_norm(&mut self, layer: &LayerNorm<Stored>, x: &Value) -> Computed<Value> {
        let width = [layer.width];
        let (factor, offset) = (self.weight(&layer.weight, &width)?, self.weight(&layer.bias, &width)?);
        let attributes = vec![Attr::Int("axis", -1), Attr::Float("epsilon", layer.epsilon as f32)];
        Ok(self.node("LayerNormalization", &[x, &factor, &offset], attributes))
    }

    fn attention(&mut self, rows: &Rows<'_, Value>) -> Computed<Value> {
        Ok(attention::lower(self, rows))
    }

    fn activation(&mut self, kind: Activation, x: &Value) -> Computed<Value> {
        Ok(match kind {
            Activation::Silu => self.silu(x),
            Activation::Gelu => self.gelu(x),
            Activation::QuickGelu => {
                let factor = self.numbers(1.702, &[]);
                let scaled = self.binary("Mul", x, &factor);
                let gate = self.node("Sigmoid", &[&scaled], Vec::new());
                self.binary("Mul", x, &gate)
            }
        })
    }

    fn geglu(&mut self, x: &Value) -> Computed<Value> {
        let halves =
            self.nodes_of("", "Split", &[x], vec![Attr::Int("axis", -1), Attr::Int("num_outputs", 2)], 2);
        let gate = self.gelu(&halves[1]);
        Ok(self.binary("Mul", &halves[0], &gate))
    }

    fn join(&mut self, one: &Value, other: &Value) -> Computed<Value> {
        Ok(self.node("Concat", &[one, other], vec![Attr::Int("axis", 1)]))
    }

    fn rows(&mut self, image: &Value) -> Computed<Value> {
        let flat = self.reshape(image, &[0, 0, -1]);
        let rows = self.transpose(&flat, &[0, 2, 1]);
        Ok(self.flatten(&rows))
    }

    fn embed(&mut self, tokens: &Stored, positions: &Stored, ids: &Value, count: usize) -> Computed<Value> {
        self.count = count;
        let (tokens, positions) =
            (self.weight(tokens, &tokens.shape)?, self.weight(positions, &positions.shape)?);
        let embedded = self.node("Gather", &[&tokens, ids], Vec::new());
        let (begin, end) = (self.integers(&[0]), self.integers(&[count as i64]));
        let positions = self.node("Slice", &[&positions, &begin, &end], Vec::new());
        Ok(self.binary("Add", &embedded, &positions))
    }

    fn choose(&mut self, among: &[Value], index: &Value) -> Computed<Value> {
        if among.is_empty() {
            return Err(EngineError::host("choose among no values"));
        }
        let axis = self.integers(&[0]);
        let each = among.iter().map(|value| self.node("Unsqueeze", &[value, &axis], Vec::new())).collect();
        let all = self.join_all(each, 0);
        let chosen = self.node("Gather", &[&all, index], Vec::new());
        Ok(self.flatten(&chosen))
    }

    fn row(&mut self, rows: &Value, index: &Value) -> Computed<Value> {
        Ok(self.node("Gather", &[rows, index], Vec::new()))
    }
}
