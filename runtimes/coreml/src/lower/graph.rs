//! The graph under construction: names, weights, states.

use std::collections::{BTreeMap, HashMap};

use island_runtimes_graph::onnx::{
    self, Attribute, Dimension, Entry, Graph, Node, OperatorSet, Shape, Size, Tensor, Type, ValueInfo,
};
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{call::Call, expand, find};
use crate::{
    package::weights::{self, Weights},
    program::{
        Argument, Block, Function, Named, Operation,
        types::{Class, Element, TensorType, ValueType},
        value::{Data, Value},
    },
};

/// Operations that only bind names, and become no nodes.
pub(super) const OPERATIONS: [&str; 4] = ["const", "read_state", "write_state", "classify"];
/// The file name of the graph's weights, which are in memory.
pub const WEIGHTS: &str = "weights";
/// Version of ONNX's operations.
const OPSET: i64 = 20;
const IR_VERSION: i64 = 9;
/// Weights from this size in bytes are external to the graph, which must stay below two gigabytes.
const OUTSIDE_BYTES: usize = 1024;
/// Maximum number of elements of all states.
const MAX_STATE: u64 = 1 << 30;
/// Expanded weights take at most this many times the bytes of their files: one bit becomes a number of 32, and tables
/// may consist of vectors.
const MAX_GROWTH: u64 = 64;
/// Additional bytes of weights, for those in the program.
const FREE_BYTES: u64 = 64 << 20;
/// Maximum nesting of branches and loops.
const MAX_DEPTH: usize = 16;

/// A finished graph.
#[derive(Debug)]
pub struct Lowered {
    /// An ONNX model.
    pub model: Vec<u8>,
    /// Its weights.
    pub weights: Vec<u8>,
    /// Its inputs by their names in the program.
    pub inputs: Vec<Named>,
    /// Names of its outputs, without a classifier's label.
    pub outputs: Vec<String>,
    /// States with their dimensions.
    pub states: Vec<(String, Class, Vec<usize>)>,
    /// A classifier's output of probabilities, and its labels.
    pub labels: Option<(String, Vec<String>)>,
}

/// The graph's name of a program's input.
pub fn input_name(name: &str) -> String {
    format!("in:{name}")
}

/// The graph's name of a program's output.
pub fn output_name(name: &str) -> String {
    format!("out:{name}")
}

/// The graph's input for a state.
pub fn state_in(name: &str) -> String {
    format!("state:{name}")
}

/// The graph's output for a state.
pub fn state_out(name: &str) -> String {
    format!("next:{name}")
}

/// What a name of the program is bound to.
#[derive(Debug, Clone)]
pub(super) enum Bound<'p> {
    /// A computed value: its name in the graph.
    Made { name: String, ty: TensorType },
    /// A value of the program.
    Fixed(&'p Value),
    /// A part of an expanded compressed weight.
    Packed(&'p Operation, usize),
    /// A state.
    State,
    /// A classifier's label, which is computed outside the graph.
    Label,
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constant {
    pub(super) shape: Vec<u64>,
    pub(super) data: Data,
}

/// Shape and elements of a tensor whose elements fit a byte.
pub(super) type Codes = (Vec<u64>, Vec<u8>);

/// A graph under construction.
#[derive(Debug)]
pub struct Lowering<'p> {
    names: HashMap<&'p str, Bound<'p>>,
    nodes: Vec<Node>,
    initializers: Vec<Tensor>,
    external: Vec<u8>,
    /// Initializers of the program's constants, by name.
    made: HashMap<&'p str, (String, TensorType)>,
    states: BTreeMap<&'p str, (String, TensorType)>,
    labels: Option<(&'p str, Vec<String>)>,
    weights: &'p Weights,
    /// Maximum bytes of expanded weights.
    most: u64,
    count: usize,
    depth: usize,
}

/// Lowers a function.
pub fn lower(function: &Function, weights: &Weights) -> Result<Lowered, EngineError> {
    let mut lowering = Lowering {
        names: HashMap::new(),
        nodes: Vec::new(),
        initializers: Vec::new(),
        external: Vec::new(),
        made: HashMap::new(),
        states: BTreeMap::new(),
        labels: None,
        weights,
        most: weights.bytes().saturating_mul(MAX_GROWTH).saturating_add(FREE_BYTES),
        count: 0,
        depth: 0,
    };
    let mut inputs = Vec::new();
    for named in &function.inputs {
        inputs.push(lowering.input(named)?);
    }
    lowering.block(&function.block)?;
    lowering.finish(function, inputs)
}

impl<'p> Lowering<'p> {
    fn input(&mut self, named: &'p Named) -> Result<ValueInfo, EngineError> {
        let (name, ty, bound) = match &named.ty {
            ValueType::State(ty) => {
                let name = state_in(&named.name);
                self.states.insert(&named.name, (name.clone(), ty.clone()));
                (name, ty, Bound::State)
            }
            ValueType::Tensor(ty) => {
                let name = input_name(&named.name);
                (name.clone(), ty, Bound::Made { name, ty: ty.clone() })
            }
            _ => return Err(invalid_model(format!("the input {:?} is not a tensor", named.name))),
        };
        self.names.insert(&named.name, bound);
        self.declare(&name, ty)
    }

    /// The declaration of an input or output.
    pub(super) fn declare(&mut self, name: &str, ty: &TensorType) -> Result<ValueInfo, EngineError> {
        let mut dims = Vec::with_capacity(ty.rank());
        for size in &ty.shape {
            self.count += 1;
            let size = match size.map(i64::try_from) {
                Some(Ok(size)) => Size::Fixed(size),
                Some(Err(_)) => return Err(invalid_model(format!("{name} is too large for a tensor"))),
                None => Size::Named(format!("d{}", self.count)),
            };
            dims.push(Dimension { size: Some(size) });
        }
        let shape = Some(Shape { dims });
        let tensor = onnx::TensorType { element: Some(code(ty.element.class())), shape };
        Ok(ValueInfo { name: Some(name.to_owned()), r#type: Some(Type { tensor: Some(tensor) }) })
    }

    /// Adds the nodes of a block, in order.
    pub(super) fn block(&mut self, block: &'p Block) -> Result<(), EngineError> {
        if self.depth > MAX_DEPTH {
            return Err(invalid_model(format!("its branches and loops are nested deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        for operation in &block.operations {
            self.operation(operation)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn operation(&mut self, operation: &'p Operation) -> Result<(), EngineError> {
        match operation.kind.as_str() {
            "const" => self.constant_operation(operation),
            "read_state" | "write_state" => self.state_operation(operation),
            "classify" => self.classify(operation),
            kind if expand::OPERATIONS.contains(&kind) => {
                for (index, output) in operation.outputs.iter().enumerate() {
                    self.names.insert(&output.name, Bound::Packed(operation, index));
                }
                Ok(())
            }
            kind => {
                let lower = find(kind).ok_or_else(|| {
                    invalid_model(format!("its operation {kind:?} is not supported without Apple's library"))
                })?;
                let made = lower(&mut Call { lowering: self, operation })
                    .map_err(|error| error.within(operation.title()))?;
                for (output, name) in operation.outputs.iter().zip(made) {
                    self.bind(output, name)?;
                }
                Ok(())
            }
        }
    }

    /// Binds a name of the program to a name of the graph.
    pub(super) fn bind(&mut self, named: &'p Named, name: String) -> Result<(), EngineError> {
        let ValueType::Tensor(ty) = &named.ty else {
            return Err(invalid_model(format!("{:?} is not a tensor", named.name)));
        };
        self.names.insert(&named.name, Bound::Made { name, ty: ty.clone() });
        Ok(())
    }

    fn constant_operation(&mut self, operation: &'p Operation) -> Result<(), EngineError> {
        let value = operation.attributes.get("val");
        let (Some(value), Some(output)) = (value, operation.outputs.first()) else {
            return Err(invalid_model(format!("{} has no value", operation.title())));
        };
        self.names.insert(&output.name, Bound::Fixed(value));
        Ok(())
    }

    fn state_operation(&mut self, operation: &'p Operation) -> Result<(), EngineError> {
        let of = |name: &str| match operation.inputs.get(name).map(Vec::as_slice) {
            Some([Argument::Name(name)]) => Some(name.as_str()),
            _ => None,
        };
        let state = of("input").filter(|name| self.states.contains_key(name));
        let state = state.ok_or_else(|| invalid_model(format!("{} has no state", operation.title())))?;
        if operation.kind == "write_state" {
            if self.depth > 1 {
                return Err(invalid_model(
                    "a state is written in a branch or loop, which only Apple's library supports",
                ));
            }
            let data = operation.inputs.get("data").and_then(|data| data.first());
            let data = data.ok_or_else(|| invalid_model(format!("{state:?} is written without a value")))?;
            let (name, _) = self.feed(data)?;
            if let Some((current, _)) = self.states.get_mut(state) {
                *current = name;
            }
        }
        let (name, _) = self.states[state].clone();
        operation.outputs.first().map_or(Ok(()), |output| self.bind(output, name))
    }

    fn classify(&mut self, operation: &'p Operation) -> Result<(), EngineError> {
        let part = |name: &str| operation.inputs.get(name).and_then(|given| given.first());
        let (Some(shares), Some(classes)) = (part("probabilities"), part("classes")) else {
            return Err(invalid_model("classify lacks probabilities or classes"));
        };
        let (name, ty) = self.feed(shares)?;
        let labels = self.labels(classes)?;
        let [label, dictionary] = operation.outputs.as_slice() else {
            return Err(invalid_model("classify does not return a label and probabilities"));
        };
        self.names.insert(&label.name, Bound::Label);
        self.names.insert(&dictionary.name, Bound::Made { name, ty });
        self.labels = Some((&dictionary.name, labels));
        Ok(())
    }

    fn labels(&self, classes: &'p Argument) -> Result<Vec<String>, EngineError> {
        let value = match classes {
            Argument::Value(value) => Some(value),
            Argument::Name(name) => match self.names.get(name.as_str()) {
                Some(Bound::Fixed(value)) => Some(*value),
                _ => None,
            },
        };
        let mut labels = Vec::new();
        texts(
            value.ok_or_else(|| invalid_model("its classes are unknown before the model runs"))?,
            &mut labels,
        );
        Ok(labels)
    }

    /// What an argument is bound to.
    pub(super) fn bound(&self, argument: &'p Argument) -> Result<Bound<'p>, EngineError> {
        match argument {
            Argument::Value(value) => Ok(Bound::Fixed(value)),
            Argument::Name(name) => self.by_name(name),
        }
    }

    /// What a name is bound to.
    pub(super) fn by_name(&self, name: &str) -> Result<Bound<'p>, EngineError> {
        let bound = self.names.get(name).cloned();
        bound.ok_or_else(|| invalid_model(format!("{name:?} is used before it is defined")))
    }

    /// The graph's name of an argument, and its type.
    pub(super) fn feed(&mut self, argument: &'p Argument) -> Result<(String, TensorType), EngineError> {
        match argument {
            Argument::Name(name) => self.feed_name(name),
            Argument::Value(value) => self.feed_constant(&Bound::Fixed(value)),
        }
    }

    /// The graph's name for a name of the program, and its type.
    pub(super) fn feed_name(&mut self, name: &'p str) -> Result<(String, TensorType), EngineError> {
        let bound = self.by_name(name)?;
        if let Bound::Made { name, ty } = bound {
            return Ok((name, ty));
        }
        if let Some(made) = self.made.get(name) {
            return Ok(made.clone());
        }
        let made = self.feed_constant(&bound)?;
        self.made.insert(name, made.clone());
        Ok(made)
    }

    fn feed_constant(&mut self, bound: &Bound<'p>) -> Result<(String, TensorType), EngineError> {
        let element = type_of(bound)?.element;
        let constant = self.constant(bound)?;
        let shape = constant.shape.iter().map(|&size| Some(size)).collect();
        Ok((self.initializer(&constant, element)?, TensorType { element, shape }))
    }

    /// The constant of an argument.
    pub(super) fn constant(&self, bound: &Bound<'p>) -> Result<Constant, EngineError> {
        match bound {
            Bound::Fixed(value) => self.value(value),
            Bound::Packed(operation, index) => {
                let mut expanded = expand::expand(self, operation, 0)?;
                if *index >= expanded.len() {
                    return Err(invalid_model(format!(
                        "{} has fewer results than declared",
                        operation.title()
                    )));
                }
                Ok(expanded.swap_remove(*index))
            }
            _ => Err(invalid_model("it needs a value that is constant")),
        }
    }

    /// The elements of a value, in the program or in a file.
    pub(super) fn value(&self, value: &Value) -> Result<Constant, EngineError> {
        let ty = value.ty.tensor().ok_or_else(|| invalid_model("a constant is not a tensor"))?;
        let shape = ty.fixed().ok_or_else(|| invalid_model("a constant has an unknown dimension"))?;
        let data = match &value.data {
            Data::Blob { file, offset } => self.weights.read(file, *offset, ty)?,
            data => data.clone(),
        };
        Ok(Constant { shape, data })
    }

    /// Shape and elements of a value in a file whose elements fit a byte; `None` for other values.
    pub(super) fn codes(&self, value: &Value) -> Result<Option<Codes>, EngineError> {
        let Data::Blob { file, offset } = &value.data else { return Ok(None) };
        let Some(ty) = value.ty.tensor().filter(|ty| ty.element.fits_byte()) else { return Ok(None) };
        let Some(shape) = ty.fixed() else { return Ok(None) };
        Ok(Some((shape, self.weights.codes(file, *offset, ty)?)))
    }

    /// A constant as a tensor of the graph. An infinite f16 is replaced by the maximum finite one: masks are
    /// multiplied by zero, and infinity times zero is NaN.
    pub(super) fn initializer(
        &mut self,
        constant: &Constant,
        element: Element,
    ) -> Result<String, EngineError> {
        let is_half = element == Element::F16;
        let (class, bytes): (Class, Vec<u8>) = match &constant.data {
            Data::Floats(numbers) => {
                let finite = |number: f32| if is_half { number.clamp(-65504.0, 65504.0) } else { number };
                (Class::Float, numbers.iter().flat_map(|&number| finite(number).to_le_bytes()).collect())
            }
            Data::Ints(numbers) => {
                (Class::Int, numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
            }
            // A mask.
            Data::Bools(flags) if element.class() == Class::Int => {
                (Class::Int, flags.iter().flat_map(|&flag| i64::from(flag).to_le_bytes()).collect())
            }
            Data::Bools(flags) => (Class::Bool, flags.iter().map(|&flag| u8::from(flag)).collect()),
            _ => {
                return Err(invalid_model(
                    "a constant that is not a tensor of numbers is used in a computation",
                ));
            }
        };
        let name = self.fresh();
        let dims = constant.shape.iter().map(|&size| size as i64).collect();
        let mut tensor =
            Tensor { dims, data_type: Some(code(class)), name: Some(name.clone()), ..Tensor::default() };
        if bytes.len() < OUTSIDE_BYTES {
            tensor.raw_data = Some(bytes);
        } else {
            let entry = |key: &str, value: String| Entry { key: Some(key.to_owned()), value: Some(value) };
            tensor.external_data = vec![
                entry("location", WEIGHTS.to_owned()),
                entry("offset", self.external.len().to_string()),
                entry("length", bytes.len().to_string()),
            ];
            tensor.data_location = Some(1);
            if (self.external.len() + bytes.len()) as u64 > self.most {
                return Err(invalid_model(format!(
                    "its weights would take more than {} bytes, which nothing in its files accounts for",
                    self.most
                )));
            }
            self.external.extend_from_slice(&bytes);
            self.external.resize(self.external.len().next_multiple_of(64), 0);
        }
        self.initializers.push(tensor);
        Ok(name)
    }

    /// An unused name.
    pub(super) fn fresh(&mut self) -> String {
        self.count += 1;
        format!("t{}", self.count)
    }

    /// Adds a node with this number of outputs.
    pub(super) fn push(
        &mut self,
        kind: &str,
        inputs: Vec<String>,
        attributes: Vec<Attribute>,
        outputs: usize,
    ) -> Vec<String> {
        let outputs: Vec<String> = (0..outputs).map(|_| self.fresh()).collect();
        self.nodes.push(Node {
            inputs,
            outputs: outputs.clone(),
            name: None,
            op_type: Some(kind.to_owned()),
            attributes,
            domain: None,
        });
        outputs
    }

    /// The nodes that `make` adds, as a graph of their own, which sees outer names.
    pub(super) fn inner(
        &mut self,
        inputs: Vec<ValueInfo>,
        make: impl FnOnce(&mut Self) -> Result<Vec<ValueInfo>, EngineError>,
    ) -> Result<Graph, EngineError> {
        let around = std::mem::take(&mut self.nodes);
        let outputs = make(self)?;
        let nodes = std::mem::replace(&mut self.nodes, around);
        Ok(Graph { nodes, name: Some(self.fresh()), initializers: Vec::new(), inputs, outputs })
    }

    fn finish(mut self, function: &'p Function, inputs: Vec<ValueInfo>) -> Result<Lowered, EngineError> {
        let (mut declared, mut outputs, mut labels) = (Vec::new(), Vec::new(), None);
        for output in &function.block.outputs {
            let bound = self.names.get(output.as_str()).cloned();
            let bound =
                bound.ok_or_else(|| invalid_model(format!("its output {output:?} is not defined")))?;
            let (name, ty) = match bound {
                Bound::Label | Bound::State => continue,
                Bound::Made { name, ty } => (name, ty),
                fixed => {
                    let ty = type_of(&fixed)?;
                    let constant = self.constant(&fixed)?;
                    (self.initializer(&constant, ty.element)?, ty)
                }
            };
            declared.push(self.give(name, &output_name(output), &ty)?);
            if self.labels.as_ref().is_some_and(|(shares, _)| *shares == output.as_str()) {
                labels = self.labels.take().map(|(_, names)| (output.clone(), names));
            }
            outputs.push(output.clone());
        }
        let (mut states, mut held) = (Vec::new(), 0_u64);
        for (state, (current, ty)) in std::mem::take(&mut self.states) {
            let shape = ty
                .fixed()
                .ok_or_else(|| invalid_model(format!("the state {state:?} has an unknown dimension")))?;
            let count = weights::count(&shape);
            held = count
                .and_then(|count| held.checked_add(count))
                .filter(|&held| held <= MAX_STATE)
                .ok_or_else(|| {
                    invalid_model(format!("its states up to {state:?} are more than {MAX_STATE} numbers"))
                })?;
            declared.push(self.give(current, &state_out(state), &ty)?);
            states.push((
                state.to_owned(),
                ty.element.class(),
                shape.iter().map(|&size| size as usize).collect(),
            ));
        }
        let graph = Graph {
            nodes: self.nodes,
            name: Some("main".to_owned()),
            initializers: self.initializers,
            inputs,
            outputs: declared,
        };
        let model = onnx::Model {
            ir_version: Some(IR_VERSION),
            producer_name: Some("island".to_owned()),
            graph: Some(graph),
            opset_import: vec![OperatorSet { domain: Some(String::new()), version: Some(OPSET) }],
        };
        let is_tensor = |named: &&Named| matches!(named.ty, ValueType::Tensor(_));
        Ok(Lowered {
            model: model.to_bytes(),
            weights: self.external,
            inputs: function.inputs.iter().filter(is_tensor).cloned().collect(),
            outputs,
            states,
            labels,
        })
    }

    /// Binds a value to the name of an output. Its dimensions are not declared: the library infers them.
    fn give(&mut self, from: String, name: &str, ty: &TensorType) -> Result<ValueInfo, EngineError> {
        self.nodes.push(Node {
            inputs: vec![from],
            outputs: vec![name.to_owned()],
            op_type: Some("Identity".to_owned()),
            ..Node::default()
        });
        let open = TensorType { element: ty.element, shape: vec![None; ty.rank()] };
        self.declare(name, &open)
    }
}

/// The strings in a value, and numbers as strings.
fn texts(value: &Value, into: &mut Vec<String>) {
    match &value.data {
        Data::Texts(texts) => into.extend(texts.iter().cloned()),
        Data::Ints(numbers) => into.extend(numbers.iter().map(i64::to_string)),
        Data::Many(values) => values.iter().for_each(|value| texts(value, into)),
        _ => {}
    }
}

/// The type of a binding.
fn type_of(bound: &Bound<'_>) -> Result<TensorType, EngineError> {
    let ty = match bound {
        Bound::Made { ty, .. } => Some(ty),
        Bound::Fixed(value) => value.ty.tensor(),
        Bound::Packed(operation, index) => {
            operation.outputs.get(*index).and_then(|output| output.ty.tensor())
        }
        Bound::State | Bound::Label => None,
    };
    ty.cloned().ok_or_else(|| invalid_model("its argument is not a tensor"))
}

/// The number of a class in ONNX.
pub(super) fn code(class: Class) -> i32 {
    match class {
        Class::Float => 1,
        Class::Int => 7,
        Class::Bool => 9,
        Class::Text => 8,
    }
}
