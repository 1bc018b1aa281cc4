//! One operation: its arguments, and the nodes it becomes.

use std::fmt::Debug;

pub(super) use island_runtimes_graph::onnx::{Attr, text};
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::graph::{Bound, Constant, Lowering, code};
use crate::{
    package::weights,
    program::{
        Argument, Operation,
        types::{Class, Element, TensorType, ValueType},
        value::Data,
    },
};

/// Maximum step, padding or factor.
const MAX_STEP: u64 = 1 << 20;
/// Maximum number of generated elements.
const MAX_MADE: u64 = 1 << 26;

/// The error of a parameter that is not supported with its value.
pub(super) fn unsupported(parameter: &str, value: impl Debug) -> EngineError {
    invalid_model(format!("its parameter {parameter} = {value:?} is not supported"))
}

/// An operation during lowering.
#[derive(Debug)]
pub struct Call<'c, 'p> {
    pub(super) lowering: &'c mut Lowering<'p>,
    pub(super) operation: &'p Operation,
}

/// An argument of a node.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    /// Its name in the graph.
    pub(super) name: String,
    /// Its type.
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
            .ok_or_else(|| invalid_model(format!("axis {axis} is outside {rank} dimensions")))
    }

    /// The size of an axis. An error if it is unknown.
    pub(super) fn size(&self, axis: usize) -> Result<i64, EngineError> {
        let size = self.ty.shape.get(axis).copied().flatten().and_then(|size| i64::try_from(size).ok());
        size.ok_or_else(|| invalid_model(format!("the size of axis {axis} is unknown before the model runs")))
    }
}

impl<'p> Call<'_, 'p> {
    fn argument(&self, parameter: &str) -> Option<&'p Argument> {
        self.operation.inputs.get(parameter).and_then(|all| all.first())
    }

    /// A required argument.
    pub(super) fn tensor(&mut self, parameter: &str) -> Result<Operand, EngineError> {
        let given = self.optional(parameter)?;
        given.ok_or_else(|| invalid_model(format!("its parameter {parameter} is missing")))
    }

    /// An optional argument.
    pub(super) fn optional(&mut self, parameter: &str) -> Result<Option<Operand>, EngineError> {
        let Some(argument) = self.argument(parameter) else { return Ok(None) };
        let (name, ty) = self.lowering.feed(argument)?;
        Ok(Some(Operand { name, ty }))
    }

    /// An argument with several parts.
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

    /// An argument's value, if it is present and constant.
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
            return Err(invalid_model(format!("its parameter {parameter} is unknown before the model runs")));
        }
        Ok(constant.map(|constant| constant.data))
    }

    /// Integers.
    pub(super) fn ints(&self, parameter: &str) -> Result<Option<Vec<i64>>, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(None),
            Some(Data::Ints(ints)) => Ok(Some(ints)),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is not an integer"))),
        }
    }

    /// Integers that may be known only when the model runs.
    pub(super) fn ints_if_known(&self, parameter: &str) -> Result<Option<Vec<i64>>, EngineError> {
        Ok(self.known(parameter)?.and_then(|constant| match constant.data {
            Data::Ints(ints) => Some(ints),
            _ => None,
        }))
    }

    /// Integers for computing sizes: small enough that no result overflows.
    pub(super) fn steps(&self, parameter: &str) -> Result<Option<Vec<i64>>, EngineError> {
        let ints = self.ints(parameter)?;
        match ints.iter().flatten().find(|&&int| int.unsigned_abs() > MAX_STEP) {
            Some(int) => {
                Err(invalid_model(format!("its parameter {parameter} is {int}, more than {MAX_STEP}")))
            }
            None => Ok(ints),
        }
    }

    /// An integer for computing sizes.
    pub(super) fn step(&self, parameter: &str, otherwise: i64) -> Result<i64, EngineError> {
        Ok(self.steps(parameter)?.and_then(|ints| ints.first().copied()).unwrap_or(otherwise))
    }

    /// An integer.
    pub(super) fn int(&self, parameter: &str, otherwise: i64) -> Result<i64, EngineError> {
        Ok(self.ints(parameter)?.and_then(|ints| ints.first().copied()).unwrap_or(otherwise))
    }

    /// A real number; an integer is converted.
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
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is not a real number"))),
        }
    }

    /// Flags.
    pub(super) fn flags(&self, parameter: &str) -> Result<Option<Vec<bool>>, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(None),
            Some(Data::Bools(flags)) => Ok(Some(flags)),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is not a flag"))),
        }
    }

    /// A flag.
    pub(super) fn flag(&self, parameter: &str, otherwise: bool) -> Result<bool, EngineError> {
        Ok(self.flags(parameter)?.and_then(|flags| flags.first().copied()).unwrap_or(otherwise))
    }

    /// An integer from each part of an argument.
    pub(super) fn each_int(&self, parameter: &str) -> Result<Vec<i64>, EngineError> {
        let part = |data: Data| match data {
            Data::Ints(ints) => ints,
            _ => Vec::new(),
        };
        self.each(parameter).map(|all| all.into_iter().flat_map(part).collect())
    }

    /// A flag from each part of an argument.
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
            // One value may contain several.
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

    /// A string.
    pub(super) fn str_param(&self, parameter: &str, otherwise: &str) -> Result<String, EngineError> {
        match self.fixed(parameter)? {
            None => Ok(otherwise.to_owned()),
            Some(Data::Texts(texts)) if texts.len() == 1 => Ok(texts[0].clone()),
            Some(_) => Err(invalid_model(format!("its parameter {parameter} is not a string"))),
        }
    }

    /// A string that is one of `values`, whatever the case of its letters; the first one if it is absent.
    pub(super) fn choice(
        &self,
        parameter: &str,
        values: &[&'static str],
    ) -> Result<&'static str, EngineError> {
        let given = self.str_param(parameter, values.first().copied().unwrap_or_default())?;
        let known = values.iter().copied().find(|value| given.eq_ignore_ascii_case(value));
        known.ok_or_else(|| unsupported(parameter, &given))
    }

    /// The declared type of an output.
    pub(super) fn output(&self, index: usize) -> Result<&'p TensorType, EngineError> {
        match self.operation.outputs.get(index).map(|output| &output.ty) {
            Some(ValueType::Tensor(tensor)) => Ok(tensor),
            _ => Err(invalid_model(format!("its output {index} is not a tensor"))),
        }
    }

    /// Adds a node with one output.
    pub(super) fn node(
        &mut self,
        kind: &str,
        inputs: &[&str],
        set: impl IntoIterator<Item = Attr>,
    ) -> String {
        self.nodes(kind, inputs, set, 1).remove(0)
    }

    /// Adds a node with several outputs.
    pub(super) fn nodes(
        &mut self,
        kind: &str,
        inputs: &[&str],
        set: impl IntoIterator<Item = Attr>,
        outputs: usize,
    ) -> Vec<String> {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        self.lowering.push(kind, inputs, set.into_iter().map(Attr::attribute).collect(), outputs)
    }

    /// A vector of integers.
    pub(super) fn list(&mut self, numbers: &[i64]) -> Result<String, EngineError> {
        let constant = Constant { shape: vec![numbers.len() as u64], data: Data::Ints(numbers.to_vec()) };
        self.lowering.initializer(&constant, Element::I64)
    }

    /// An integer.
    pub(super) fn whole(&mut self, number: i64) -> Result<String, EngineError> {
        self.lowering
            .initializer(&Constant { shape: Vec::new(), data: Data::Ints(vec![number]) }, Element::I64)
    }

    /// A real number.
    pub(super) fn real(&mut self, number: f32) -> Result<String, EngineError> {
        self.lowering
            .initializer(&Constant { shape: Vec::new(), data: Data::Floats(vec![number]) }, Element::F32)
    }

    /// `number` as an element of this class.
    pub(super) fn number(&mut self, class: Class, number: f32) -> Result<String, EngineError> {
        let data = match class {
            Class::Float => Data::Floats(vec![number]),
            Class::Bool => Data::Bools(vec![number != 0.0]),
            _ => Data::Ints(vec![number as i64]),
        };
        self.lowering.initializer(&Constant { shape: Vec::new(), data }, Element::F32)
    }

    /// A vector of flags.
    pub(super) fn mask(&mut self, flags: &[bool]) -> Result<String, EngineError> {
        let constant = Constant { shape: vec![flags.len() as u64], data: Data::Bools(flags.to_vec()) };
        self.lowering.initializer(&constant, Element::Bool)
    }

    /// A constant of real numbers with this shape.
    pub(super) fn array(&mut self, shape: &[u64], numbers: Vec<f32>) -> Result<String, EngineError> {
        self.lowering
            .initializer(&Constant { shape: shape.to_vec(), data: Data::Floats(numbers) }, Element::F32)
    }

    /// A constant with this shape and equal real numbers.
    pub(super) fn filled(&mut self, shape: &[u64], number: f32) -> Result<String, EngineError> {
        let count = weights::count(shape).filter(|&count| count <= MAX_MADE);
        let count =
            count.ok_or_else(|| invalid_model(format!("{shape:?} is more than {MAX_MADE} numbers")))?;
        self.array(shape, vec![number; count as usize])
    }

    /// A constant with this shape.
    pub(super) fn floats_of(&mut self, shape: Vec<u64>, data: Data) -> Result<String, EngineError> {
        self.lowering.initializer(&Constant { shape, data }, Element::F32)
    }

    /// Converts to another class.
    pub(super) fn cast(&mut self, operand: &Operand, class: Class) -> String {
        if operand.class() == class {
            return operand.name.clone();
        }
        self.cast_name(&operand.name, class)
    }

    /// Converts to another class, whatever the type was.
    pub(super) fn cast_name(&mut self, name: &str, class: Class) -> String {
        self.node("Cast", &[name], [Attr::Int("to", i64::from(code(class)))])
    }

    /// Inserts axes of size one.
    pub(super) fn unsqueeze(&mut self, name: &str, axes: &[i64]) -> Result<String, EngineError> {
        let axes = self.list(axes)?;
        Ok(self.node("Unsqueeze", &[name, &axes], []))
    }

    /// Removes these axes of size one.
    pub(super) fn squeeze(&mut self, name: &str, axes: &[i64]) -> Result<String, EngineError> {
        let axes = self.list(axes)?;
        Ok(self.node("Squeeze", &[name, &axes], []))
    }

    /// Changes the shape.
    pub(super) fn reshape(&mut self, name: &str, shape: &[i64]) -> Result<String, EngineError> {
        let shape = self.list(shape)?;
        Ok(self.node("Reshape", &[name, &shape], []))
    }

    /// Permutes the axes.
    pub(super) fn transpose(&mut self, name: &str, order: Vec<i64>) -> String {
        self.node("Transpose", &[name], [Attr::Ints("perm", order)])
    }

    /// An argument as a vector along one of `rank` axes.
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
                invalid_model(format!("its parameter {parameter} lies along an axis that does not exist"))
            })? = numbers.len() as u64;
        }
        self.array(&shape, numbers).map(Some)
    }
}

/// One output.
#[expect(clippy::unnecessary_wraps, reason = "the signature of an operation")]
pub(super) fn single(name: String) -> Result<Vec<String>, EngineError> {
    Ok(vec![name])
}
