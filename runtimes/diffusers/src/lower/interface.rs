//! Inputs and outputs of a graph, and its completion. They are `f32` whatever the graph computes in, and images have their channels last.

use island_runtimes_graph::onnx::{
    Attr, Dimension, Graph, Model, OperatorSet, Shape, Size, TensorType, Type, ValueInfo,
};

use super::{
    Lowering, Value,
    attention::OWN_DOMAIN,
    initializers::{Converted, code},
};
use crate::weights::Element;

/// Version of ONNX's operations.
const OPSET: i64 = 20;
const IR_VERSION: i64 = 9;
const INTEGER: i32 = 7;

/// A complete graph.
#[derive(Debug)]
pub struct Finished {
    /// The graph. Its weights lie in files that it names relative to the root folder, except for the converted ones.
    pub model: Model,
    /// Weights in memory: names, dimensions and elements.
    pub converted: Vec<(String, Vec<i64>, Converted)>,
}

impl Finished {
    /// The name of the part that it computes.
    pub fn name(&self) -> String {
        self.model.graph.as_ref().and_then(|graph| graph.name.clone()).unwrap_or_default()
    }
}

impl Lowering<'_> {
    fn declare(&self, name: &str, kind: i32, sizes: &[Option<usize>]) -> ValueInfo {
        let dims = sizes.iter().enumerate().map(|(axis, size)| {
            let open = || match axis {
                0 => "batch".to_owned(),
                _ => format!("{name}_{axis}"),
            };
            let size = size.map_or_else(|| Size::Named(open()), |size| Size::Fixed(size as i64));
            Dimension { size: Some(size) }
        });
        let shape = Some(Shape { dims: dims.collect() });
        let tensor = TensorType { element: Some(kind), shape };
        ValueInfo { name: Some(name.to_owned()), r#type: Some(Type { tensor: Some(tensor) }) }
    }

    fn input(&mut self, name: &str, kind: i32, sizes: &[Option<usize>]) -> Value {
        let declared = self.declare(name, kind, sizes);
        self.inputs.push(declared);
        Value(name.into())
    }

    fn floats_input(&mut self, name: &str, sizes: &[Option<usize>]) -> Value {
        let given = self.input(name, code(Element::F32), sizes);
        self.cast(&given, self.options.element)
    }

    /// An image `[batch, height, width, channels]`.
    pub fn image_input(&mut self, name: &str, channels: usize) -> Value {
        let image = self.floats_input(name, &[None, None, None, Some(channels)]);
        if self.batch.is_none() {
            let ends = vec![Attr::Int("end", 1)];
            self.batch = Some(self.node("Shape", &[&Value(name.into())], ends));
        }
        self.transpose(&image, &[0, 3, 1, 2])
    }

    /// Rows `[batch, rows, width]`. Their width is not declared.
    pub fn rows_input(&mut self, name: &str) -> Value {
        let rows = self.floats_input(name, &[None, None, None]);
        self.flatten(&rows)
    }

    /// Vectors `[batch, width]`. Their width is not declared.
    pub fn vector_input(&mut self, name: &str) -> Value {
        self.floats_input(name, &[None, None])
    }

    /// A list of `count` integers.
    pub fn integers_input(&mut self, name: &str, count: usize) -> Value {
        self.input(name, INTEGER, &[Some(count)])
    }

    /// Another element type.
    pub(super) fn cast(&mut self, x: &Value, element: Element) -> Value {
        if element == Element::F32 && self.options.element == Element::F32 {
            return x.clone();
        }
        self.node("Cast", &[x], vec![Attr::Int("to", i64::from(code(element)))])
    }

    /// An image `[batch, height, width, channels]`.
    pub fn image_output(&mut self, name: &str, image: &Value) {
        let image = self.transpose(image, &[0, 2, 3, 1]);
        self.output(name, &image, 4);
    }

    /// Rows or vectors, `[rows, width]`.
    pub fn rows_output(&mut self, name: &str, rows: &Value) {
        self.output(name, rows, 2);
    }

    fn output(&mut self, name: &str, value: &Value, rank: usize) {
        let value = self.cast(value, Element::F32);
        let given = self.node("Identity", &[&value], Vec::new());
        if let Some(node) = self.nodes.last_mut() {
            node.outputs = vec![name.to_owned()];
        }
        debug_assert_ne!(given.0.as_ref(), name, "names of values begin with a v and a number");
        let declared = self.declare_output(name, rank);
        self.outputs.push(declared);
    }

    fn declare_output(&self, name: &str, rank: usize) -> ValueInfo {
        let dims = (0..rank).map(|axis| Dimension { size: Some(Size::Named(format!("{name}_{axis}"))) });
        let shape = Some(Shape { dims: dims.collect() });
        let tensor = TensorType { element: Some(code(Element::F32)), shape };
        ValueInfo { name: Some(name.to_owned()), r#type: Some(Type { tensor: Some(tensor) }) }
    }

    /// The complete graph.
    pub fn finish(self) -> Finished {
        let graph = Graph {
            nodes: self.nodes,
            name: Some(self.weights.part().to_owned()),
            initializers: self.initializers,
            inputs: self.inputs,
            outputs: self.outputs,
        };
        let operators =
            |domain: &str, version| OperatorSet { domain: Some(domain.to_owned()), version: Some(version) };
        let model = Model {
            ir_version: Some(IR_VERSION),
            producer_name: Some("island".to_owned()),
            graph: Some(graph),
            opset_import: vec![operators("", OPSET), operators(OWN_DOMAIN, 1)],
        };
        Finished { model, converted: self.converted }
    }
}
