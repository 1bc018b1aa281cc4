//! Weights and constants of a graph.

use std::path::Path;

use candle_core::Tensor as Matrix;
use half::f16;
use island_runtimes_graph::onnx::{Entry, Tensor};
use island_runtimes_kit::error::{EngineError, invalid_model};

use super::{Lowering, Value};
use crate::{
    compute::{Computed, Weight},
    error::compute_error,
    lora::Delta,
    weights::{Element, Scope},
};

/// Numbers of types in ONNX.
const INTEGER: i32 = 7;

/// A tensor of a part, in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    name: String,
    pub(super) shape: Vec<usize>,
}

impl Weight for Stored {
    fn plain(scope: &Scope<'_>, name: &str, shape: &[usize]) -> Result<Self, EngineError> {
        Ok(Self { name: scope.find(name, shape, &[])?, shape: shape.to_vec() })
    }

    fn linear(scope: &Scope<'_>, inputs: usize, outputs: usize) -> Result<Self, EngineError> {
        let shape = [outputs, inputs];
        let name = scope.find("weight", &shape, &[&[outputs, inputs, 1, 1]])?;
        Ok(Self { name, shape: shape.to_vec() })
    }

    fn conv(scope: &Scope<'_>, inputs: usize, outputs: usize, kernel: usize) -> Result<Self, EngineError> {
        Self::plain(scope, "weight", &[outputs, inputs, kernel, kernel])
    }
}

/// Elements of a weight in memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Converted {
    /// Half precision.
    F16(Vec<f16>),
    /// Single precision.
    F32(Vec<f32>),
}

impl Converted {
    fn of(element: Element, numbers: Vec<f32>) -> Self {
        match element {
            Element::F16 => Self::F16(numbers.into_iter().map(f16::from_f32).collect()),
            Element::F32 => Self::F32(numbers),
        }
    }

    /// Whether all numbers are in the range of the elements.
    fn is_finite(&self) -> bool {
        match self {
            Self::F16(numbers) => numbers.iter().all(|number| number.is_finite()),
            Self::F32(numbers) => numbers.iter().all(|number| number.is_finite()),
        }
    }
}

/// The number of an element type in ONNX.
pub(super) fn code(element: Element) -> i32 {
    match element {
        Element::F32 => 1,
        Element::F16 => 10,
    }
}

impl Lowering<'_> {
    /// A weight with these dimensions.
    pub(super) fn weight(&mut self, stored: &Stored, shape: &[usize]) -> Computed<Value> {
        self.initializer(stored, shape, &[])
    }

    /// The weight of a layer, with the changes of the adapters.
    pub(super) fn changed_weight(
        &mut self,
        stored: &Stored,
        layer: &str,
        shape: &[usize],
    ) -> Computed<Value> {
        let adapters = self.adapters;
        self.initializer(stored, shape, adapters.of(layer))
    }

    fn initializer(&mut self, stored: &Stored, shape: &[usize], deltas: &[Delta]) -> Computed<Value> {
        let key = format!("{} as {shape:?}", stored.name);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let element = self.options.element;
        let value = self.fresh();
        let mut tensor = Tensor {
            dims: shape.iter().map(|&side| side as i64).collect(),
            data_type: Some(code(element)),
            name: Some(value.0.to_string()),
            data_location: Some(1),
            ..Tensor::default()
        };
        let is_padded = shape.iter().product::<usize>() > stored.shape.iter().product();
        let place = self.weights.place(&stored.name, element).filter(|_| deltas.is_empty() && !is_padded);
        if let Some(place) = place {
            tensor.external_data = external(place.path, place.offset, place.length)?;
        } else {
            tensor.external_data = external(Path::new("/converted"), 0, 0)?;
            let numbers = merged(self.weights.tensor(&stored.name)?, deltas)
                .and_then(|weight| padded(weight, shape, is_padded)?.flatten_all()?.to_vec1())
                .map_err(compute_error("convert a weight"))?;
            let converted = Converted::of(element, numbers);
            if !converted.is_finite() {
                let part = self.weights.part();
                return Err(invalid_model(format!(
                    "the tensor {} of {part} exceeds the range of half precision",
                    stored.name
                )));
            }
            self.converted.push((value.0.to_string(), tensor.dims.clone(), converted));
        }
        self.initializers.push(tensor);
        self.known.insert(key, value.clone());
        Ok(value)
    }

    /// Equal numbers.
    pub(super) fn numbers(&mut self, number: f32, shape: &[usize]) -> Value {
        self.numbers_as(self.options.element, number, shape)
    }

    pub(super) fn numbers_as(&mut self, element: Element, number: f32, shape: &[usize]) -> Value {
        self.constant(element, std::iter::repeat_n(number, shape.iter().product()), shape)
    }

    /// Numbers in `f32`, whatever the elements of the graph.
    pub(super) fn floats(&mut self, numbers: &[f32]) -> Value {
        self.constant(Element::F32, numbers.iter().copied(), &[numbers.len()])
    }

    pub(super) fn constant(
        &mut self,
        element: Element,
        numbers: impl Iterator<Item = f32>,
        shape: &[usize],
    ) -> Value {
        let bytes: Vec<u8> = match element {
            Element::F16 => numbers.flat_map(|number| f16::from_f32(number).to_le_bytes()).collect(),
            Element::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
        };
        self.raw(code(element), shape, bytes)
    }

    /// Integers.
    pub(super) fn integers(&mut self, numbers: &[i64]) -> Value {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.raw(INTEGER, &[numbers.len()], bytes)
    }

    fn raw(&mut self, kind: i32, shape: &[usize], bytes: Vec<u8>) -> Value {
        self.once(format!("{kind} {shape:?} {bytes:?}"), |graph| {
            let value = graph.fresh();
            graph.initializers.push(Tensor {
                dims: shape.iter().map(|&side| side as i64).collect(),
                data_type: Some(kind),
                name: Some(value.0.to_string()),
                raw_data: Some(bytes),
                ..Tensor::default()
            });
            value
        })
    }
}

/// The location of bytes, relative to the root folder: the library refuses absolute paths.
fn external(path: &Path, offset: u64, length: usize) -> Computed<Vec<Entry>> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.map_err(|error| EngineError::host("find the file of a weight").because(error))?;
    let location = absolute.strip_prefix("/").ok().and_then(Path::to_str);
    let location = location.ok_or_else(|| EngineError::host("the path of a weight is not Unicode"))?;
    let entry = |key: &str, value: String| Entry { key: Some(key.to_owned()), value: Some(value) };
    Ok(vec![
        entry("location", location.to_owned()),
        entry("offset", offset.to_string()),
        entry("length", length.to_string()),
    ])
}

/// A weight as it is stored, with the changes of adapters: `w + Σ scale · up · down`.
fn merged(weight: Matrix, deltas: &[Delta]) -> candle_core::Result<Matrix> {
    let mut weight = weight;
    for delta in deltas {
        let change = delta.up.matmul(&delta.down)?.affine(f64::from(delta.scale), 0.0)?;
        let change = match *weight.dims() {
            // The columns of a convolution's factor are patches, whose channels are adjacent.
            [outputs, inputs, height, width] if height * width > 1 => {
                change.reshape((outputs, height, width, inputs))?.permute((0, 3, 1, 2))?.contiguous()?
            }
            _ => change.reshape(weight.shape())?,
        };
        weight = (weight + change)?;
    }
    Ok(weight)
}

/// A convolution's weight with zeros for additional channels.
fn padded(weight: Matrix, shape: &[usize], is_padded: bool) -> candle_core::Result<Matrix> {
    if !is_padded {
        return Ok(weight);
    }
    let missing = shape[1] - weight.dim(1)?;
    weight.pad_with_zeros(1, 0, missing)
}
