//! One operation: its parameters, and the nodes it becomes.

use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{
    graph::{Bound, Constant, Lowering, code},
    onnx::{Attribute, Graph},
};
use crate::{
    package::weights,
    program::{
        Argument, Operation,
        types::{Class, Element, TensorType, ValueType},
        value::Data,
    },
};

/// Greatest step, edge or factor.
const MAX_STEP: u64 = 1 << 20;
/// Most numbers that are made up rather than read.
const MAX_MADE: u64 = 1 << 26;

/// An operation on its way into the graph.
#[derive(Debug)]
pub struct Call<'c, 'p> {
    pub(super) lowering: &'c mut Lowering<'p>,
    pub(super) operation: &'p Operation,
}

/// Something a node works on.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    /// Its name in the graph.
    pub(super) name: String,
    /// What it is.
    pub(super) ty: TensorType,
}

impl Operand {
    pub(super) fn class(&self) -> Class {
        self.ty.element.class()
    }

    pub(super) fn rank(&self) -> usize {
        self.ty.rank()
    }

    /// An axis counted from the front.
    pub(super) fn axis(&self, axis: i64) -> Result<usize, EngineError> {
        let rank = self.rank() as i64;
        let place = if axis < 0 { axis + rank } else { axis };
        usize::try_from(place)
            .ok()
            .filter(|&place| place < self.rank())
            .ok_or_else(|| invalid_model(format!("there is no axis {axis} of {rank}")))
    }

    /// The size of an axis, which must be known.
    pub(super) fn size(&self, axis: usize) -> Result<i64, EngineError> {
        let size = self.ty.shape.get(axis).copied().flatten().and_then(|size| i64::try_from(size).ok());
        size.ok_or_else(|| invalid_model(format!("the size of axis {axis} is not known before it runs")))
    }
}

/// Attributes of a node.
#[derive(Debug, Clone)]
pub(super) enum Set {
    Int(&'static str, i64),
    Float(&'static str, f32),
    Text(&'static str, String),
    Ints(&'static str, Vec<i64>),
    Floats(&'static str, Vec<f32>),
    Texts(&'static str, Vec<&'static str>),
    Graph(&'static str, Graph),
}

impl Set {
    fn attribute(self) -> Attribute {
        let named = |name: &str, kind| Attribute {
            name: Some(name.to_owned()),
            kind: Some(kind),
            ..Attribute::default()
        };
        match self {
            Self::Float(name, f) => Attribute { f: Some(f), ..named(name, 1) },
            Self::Int(name, i) => Attribute { i: Some(i), ..named(name, 2) },
            Self::Text(name, text) => Attribute { s: Some(text.into_bytes()), ..named(name, 3) },
            Self::Graph(name, graph) => Attribute { g: Some(graph), ..named(name, 5) },
            Self::Floats(name, floats) => Attribute { floats, ..named(name, 6) },
            Self::Ints(name, ints) => Attribute { ints, ..named(name, 7) },
            Self::Texts(name, texts) => {
                let strings = texts.into_iter().map(|text| text.as_bytes().to_vec()).collect();
                Attribute { strings, ..named(name, 8) }
            }
        }
    }
}

/// A text attribute.
pub(super) fn text(name: &'static str, text: &str) -> Set {
    Set::Text(name, text.to_owned())
}

impl<'p> Call<'_, 'p> {
    fn argument(&self, parameter: &str) -> Option<&'p Argument> {
        self.operation.inputs.get(parameter).and_then(|all| all.first())
    }

    /// A parameter that must be there.
    pub(super) fn tensor(&mut self, parameter: &str) -> Result<Operand, EngineError> {
        let given = self.maybe(parameter)?;
        given.ok_or_else(|| invalid_model(format!("its parameter {parameter} is missing")))
    }

    /// A parameter that may be absent.
    pub(super) fn maybe(&mut self, parameter: &str) -> Result<Option<Operand>, EngineError> {
        let Some(argument) = self.argument(parameter) else { return Ok(None) };
        let (name, ty) = self.lowering.feed(argument)?;
        Ok(Some(Operand { name, ty }))
    }

    /// A parameter that is several.
    pub(super) fn tensors(&mut self, parameter: &str) -> Result<Vec<Operand>, EngineError> {
        let all = self.operation.inputs.get(parameter).map_or(&[][..], Vec::as_slice);
        let mut operands = Vec::with_capacity(all.len());
        for argument in all {
            let (name, ty) = self.lowering.feed(argument)?;
            operands.push(Operand { name, ty });
        }
        if operands.is_empty() {
            return Err(invalid_model(format!("its parameter {parameter} is missing")));
        }
        Ok(operands)
    }

    /// A parameter's value, if it is there and known before anything runs.
    pub(super) fn known(&self, parameter: &str) -> Result<Option<Constant>, EngineError> {
        let Some(argument) = self.argument(parameter) else { return Ok(None) };
        match self.lowering.bound(argument)? {
            Bound::Made { .. } | Bound::State | Bound::Label => Ok(None),
            bound => self.lowering.constant(&bound).map(Some),
        }
    }

    fn fixed(&self, parameter: &str) -> Result<Option<Data>, EngineError> {
        let constant = self.known(parameter)?;
        if constant.is_none() && self.argument(parameter).is_some() {
            return Err(invalid_model(format!("its parameter {parameter} is not known before it runs")));
        }
        Ok(constant.map(|constant| constant.data))
    }

    /// Whole numbers.
    pub(super) fn ints(&self, parameter: &str) -> Result<Option<Vec<i64>>, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(None),
            Some(Data::Ints(ints)) => Ok(Some(ints)),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is no whole number"))),
        }
    }

    /// Whole numbers that may be known only when it runs.
    pub(super) fn ints_if_known(&self, parameter: &str) -> Result<Option<Vec<i64>>, EngineError> {
        Ok(self.known(parameter)?.and_then(|constant| match constant.data {
            Data::Ints(ints) => Some(ints),
            _ => None,
        }))
    }

    /// Whole numbers that sizes are worked out from: so small that what is worked out cannot grow beyond what numbers hold.
    pub(super) fn steps(&self, parameter: &str) -> Result<Option<Vec<i64>>, EngineError> {
        let ints = self.ints(parameter)?;
        match ints.iter().flatten().find(|&&int| int.unsigned_abs() > MAX_STEP) {
            Some(int) => {
                Err(invalid_model(format!("its parameter {parameter} is {int}, more than {MAX_STEP}")))
            }
            None => Ok(ints),
        }
    }

    /// A whole number that sizes are worked out from.
    pub(super) fn step(&self, parameter: &str, otherwise: i64) -> Result<i64, EngineError> {
        Ok(self.steps(parameter)?.and_then(|ints| ints.first().copied()).unwrap_or(otherwise))
    }

    /// A whole number.
    pub(super) fn int(&self, parameter: &str, otherwise: i64) -> Result<i64, EngineError> {
        Ok(self.ints(parameter)?.and_then(|ints| ints.first().copied()).unwrap_or(otherwise))
    }

    /// A real number; a whole one is taken for one.
    pub(super) fn float(&self, parameter: &str, otherwise: f32) -> Result<f32, EngineError> {
        let number = match self.fixed(parameter)? {
            Some(Data::Floats(floats)) => floats.first().copied(),
            Some(Data::Ints(ints)) => ints.first().map(|&int| int as f32),
            _ => None,
        };
        Ok(number.unwrap_or(otherwise))
    }

    /// Real numbers.
    pub(super) fn floats(&self, parameter: &str) -> Result<Option<Vec<f32>>, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(None),
            Some(Data::Floats(floats)) => Ok(Some(floats)),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is no real number"))),
        }
    }

    /// Flags.
    pub(super) fn flags(&self, parameter: &str) -> Result<Option<Vec<bool>>, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(None),
            Some(Data::Bools(flags)) => Ok(Some(flags)),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is no flag"))),
        }
    }

    /// A flag.
    pub(super) fn flag(&self, parameter: &str, otherwise: bool) -> Result<bool, EngineError> {
        Ok(self.flags(parameter)?.and_then(|flags| flags.first().copied()).unwrap_or(otherwise))
    }

    /// A whole number from each of a parameter's parts.
    pub(super) fn each_int(&self, parameter: &str) -> Result<Vec<i64>, EngineError> {
        let part = |data: Data| match data {
            Data::Ints(ints) => ints,
            _ => Vec::new(),
        };
        self.each(parameter).map(|all| all.into_iter().flat_map(part).collect())
    }

    /// A flag from each of a parameter's parts.
    pub(super) fn each_flag(&self, parameter: &str) -> Result<Vec<bool>, EngineError> {
        let part = |data: Data| match data {
            Data::Bools(flags) => flags,
            _ => Vec::new(),
        };
        self.each(parameter).map(|all| all.into_iter().flat_map(part).collect())
    }

    fn each(&self, parameter: &str) -> Result<Vec<Data>, EngineError> {
        let all = self.operation.inputs.get(parameter).map_or(&[][..], Vec::as_slice);
        let constant = |argument: &'p Argument| {
            let bound = self.lowering.bound(argument)?;
            // Several may stand together in one value.
            if let Bound::Fixed(value) = &bound
                && let Data::Many(values) = &value.data
            {
                return values
                    .iter()
                    .map(|value| self.lowering.value(value).map(|constant| constant.data))
                    .collect();
            }
            self.lowering.constant(&bound).map(|constant| vec![constant.data])
        };
        let parts = all.iter().map(constant).collect::<Result<Vec<Vec<Data>>, EngineError>>()?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// A word.
    pub(super) fn word(&self, parameter: &str, otherwise: &str) -> Result<String, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(otherwise.to_owned()),
            Some(Data::Texts(texts)) if texts.len() == 1 => Ok(texts[0].clone()),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is no word"))),
        }
    }

    /// What the program says of an output.
    pub(super) fn output(&self, index: usize) -> Result<&'p TensorType, EngineError> {
        match self.operation.outputs.get(index).map(|output| &output.ty) {
            Some(ValueType::Tensor(tensor)) => Ok(tensor),
            _ => Err(invalid_model(format!("its output {index} is no tensor"))),
        }
    }

    /// A node with one output.
    pub(super) fn node(&mut self, kind: &str, inputs: &[&str], set: impl IntoIterator<Item = Set>) -> String {
        self.nodes(kind, inputs, set, 1).remove(0)
    }

    /// A node with several outputs.
    pub(super) fn nodes(
        &mut self,
        kind: &str,
        inputs: &[&str],
        set: impl IntoIterator<Item = Set>,
        outputs: usize,
    ) -> Vec<String> {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.lowering.push(kind, inputs, set.into_iter().map(Set::attribute).collect(), outputs)
    }

    /// Whole numbers side by side.
    pub(super) fn list(&mut self, numbers: &[i64]) -> Result<String, EngineError> {
        let constant = Constant { shape: vec![numbers.len() as u64], data: Data::Ints(numbers.to_vec()) };
        self.lowering.initializer(&constant, Element::I64)
    }

    /// One whole number.
    pub(super) fn whole(&mut self, number: i64) -> Result<String, EngineError> {
        self.lowering
            .initializer(&Constant { shape: Vec::new(), data: Data::Ints(vec![number]) }, Element::I64)
    }

    /// One real number.
    pub(super) fn real(&mut self, number: f32) -> Result<String, EngineError> {
        self.lowering
            .initializer(&Constant { shape: Vec::new(), data: Data::Floats(vec![number]) }, Element::F32)
    }

    /// One number of a class: what `number` is there.
    pub(super) fn number(&mut self, class: Class, number: f32) -> Result<String, EngineError> {
        let data = match class {
            Class::Float => Data::Floats(vec![number]),
            Class::Bool => Data::Bools(vec![number != 0.0]),
            _ => Data::Ints(vec![number as i64]),
        };
        self.lowering.initializer(&Constant { shape: Vec::new(), data }, Element::F32)
    }

    /// Flags side by side.
    pub(super) fn mask(&mut self, flags: &[bool]) -> Result<String, EngineError> {
        let constant = Constant { shape: vec![flags.len() as u64], data: Data::Bools(flags.to_vec()) };
        self.lowering.initializer(&constant, Element::Bool)
    }

    /// Real numbers of a shape.
    pub(super) fn array(&mut self, shape: &[u64], numbers: Vec<f32>) -> Result<String, EngineError> {
        self.lowering
            .initializer(&Constant { shape: shape.to_vec(), data: Data::Floats(numbers) }, Element::F32)
    }

    /// The same real number all over a shape.
    pub(super) fn filled(&mut self, shape: &[u64], number: f32) -> Result<String, EngineError> {
        let count = weights::count(shape).filter(|&count| count <= MAX_MADE);
        let count =
            count.ok_or_else(|| invalid_model(format!("{shape:?} is more than {MAX_MADE} numbers")))?;
        self.array(shape, vec![number; count as usize])
    }

    /// Elements of a shape that are known.
    pub(super) fn floats_of(&mut self, shape: Vec<u64>, data: Data) -> Result<String, EngineError> {
        self.lowering.initializer(&Constant { shape, data }, Element::F32)
    }

    /// As elements of another class.
    pub(super) fn cast(&mut self, operand: &Operand, class: Class) -> String {
        if operand.class() == class {
            return operand.name.clone();
        }
        self.cast_name(&operand.name, class)
    }

    /// As elements of another class, whatever it was.
    pub(super) fn cast_name(&mut self, name: &str, class: Class) -> String {
        self.node("Cast", &[name], [Set::Int("to", i64::from(code(class)))])
    }

    /// With more axes of size one.
    pub(super) fn unsqueeze(&mut self, name: &str, axes: &[i64]) -> Result<String, EngineError> {
        let axes = self.list(axes)?;
        Ok(self.node("Unsqueeze", &[name, &axes], []))
    }

    /// Without these axes, which are of size one.
    pub(super) fn squeeze(&mut self, name: &str, axes: &[i64]) -> Result<String, EngineError> {
        let axes = self.list(axes)?;
        Ok(self.node("Squeeze", &[name, &axes], []))
    }

    /// In another shape.
    pub(super) fn reshape(&mut self, name: &str, shape: &[i64]) -> Result<String, EngineError> {
        let shape = self.list(shape)?;
        Ok(self.node("Reshape", &[name, &shape], []))
    }

    /// With its axes in another order.
    pub(super) fn transpose(&mut self, name: &str, order: Vec<i64>) -> String {
        self.node("Transpose", &[name], [Set::Ints("perm", order)])
    }

    /// A parameter as a vector along one axis of something with `rank` axes.
    pub(super) fn along(
        &mut self,
        parameter: &str,
        axis: usize,
        rank: usize,
    ) -> Result<Option<String>, EngineError> {
        let Some(numbers) = self.floats(parameter)? else { return Ok(None) };
        let mut shape = vec![1; rank];
        if numbers.len() != 1 {
            let size = shape.get_mut(axis);
            *size.ok_or_else(|| {
                invalid_model(format!("its parameter {parameter} lies along an axis that is not there"))
            })? = numbers.len() as u64;
        }
        self.array(&shape, numbers).map(Some)
    }
}

/// One output.
#[expect(clippy::unnecessary_wraps, reason = "it is what an operation gives")]
pub(super) fn one(name: String) -> Result<Vec<String>, EngineError> {
    Ok(vec![name])
}
