//! The interface of models to drivers, for any back end: named tensors in and out, and a state for a conversation.

use std::{any::Any, fmt};

use island_runtimes_kit::error::{EngineError, invalid_input};
use ndarray::ArrayD;

use crate::package::interface::{Interface, Kind};

/// A tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Tensor {
    /// Real numbers.
    Floats(ArrayD<f32>),
    /// Integers.
    Ints(ArrayD<i64>),
}

impl Tensor {
    /// Its dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Floats(array) => array.shape(),
            Self::Ints(array) => array.shape(),
        }
    }

    /// Converts it to real numbers.
    pub fn into_floats(self) -> ArrayD<f32> {
        match self {
            Self::Floats(array) => array,
            Self::Ints(array) => array.mapv(|number| number as f32),
        }
    }
}

/// Tensors by name.
pub type Tensors = Vec<(String, Tensor)>;

/// The state of a model between the calls of one job; its content depends on the back end.
pub struct State(Box<dyn Any + Send>);

impl State {
    /// A state of a back end.
    pub fn new(content: impl Any + Send) -> Self {
        Self(Box::new(content))
    }

    /// The content that the back end stored.
    pub fn content<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

/// A loaded function of a model.
pub trait Model: Send + Sync + fmt::Debug {
    /// Its path in the repository.
    fn name(&self) -> &str;

    /// Its inputs and outputs.
    fn interface(&self) -> &Interface;

    /// A classifier's output of probabilities, and its labels.
    fn labels(&self) -> Option<(&str, &[String])>;

    /// An initial state.
    fn start(&self) -> Result<State, EngineError>;

    /// Runs it once. Blocks.
    fn run(&self, inputs: Tensors, state: &mut State) -> Result<Tensors, EngineError>;
}

/// Takes the tensor with this name.
pub fn take(tensors: &mut Tensors, name: &str) -> Option<Tensor> {
    let place = tensors.iter().position(|(known, _)| known == name)?;
    Some(tensors.swap_remove(place).1)
}

/// Rejects dimensions that the model does not accept, before the library does.
pub fn check(interface: &Interface, name: &str, given: &Tensor) -> Result<(), EngineError> {
    let Some(Kind::Array { sizes, .. }) = interface.input(name).map(|feature| &feature.kind) else {
        return Ok(());
    };
    if sizes.allow(given.shape()) {
        return Ok(());
    }
    Err(invalid_input(format!(
        "the model's input {name} cannot have the shape {:?}: it takes {sizes:?}",
        given.shape()
    )))
}
