//! What drivers see of a model, whatever runs it: named tensors in and out, and a state that a conversation keeps.

use std::{any::Any, fmt};

use island_runtimes_kit::error::{EngineError, invalid_input};
use ndarray::ArrayD;

use crate::package::interface::{Interface, Kind};

/// Numbers for a model or of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Tensor {
    /// Real ones.
    Floats(ArrayD<f32>),
    /// Whole ones.
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

    /// Its numbers as real ones.
    pub fn into_floats(self) -> ArrayD<f32> {
        match self {
            Self::Floats(array) => array,
            Self::Ints(array) => array.mapv(|number| number as f32),
        }
    }
}

/// Tensors by name.
pub type Tensors = Vec<(String, Tensor)>;

/// What a model remembers between the calls of one job; its content is its back end's own.
pub struct State(Box<dyn Any + Send>);

impl State {
    /// Of a back end.
    pub fn new(content: impl Any + Send) -> Self {
        Self(Box::new(content))
    }

    /// What the back end put there.
    pub fn content<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

/// One function of a model, ready to run.
pub trait Model: Send + Sync + fmt::Debug {
    /// Its path in the repository.
    fn name(&self) -> &str;

    /// What it takes and gives.
    fn interface(&self) -> &Interface;

    /// A classifier's output of shares and what they are of.
    fn labels(&self) -> Option<(&str, &[String])>;

    /// A state that remembers nothing yet.
    fn start(&self) -> Result<State, EngineError>;

    /// Runs it once. Blocks.
    fn run(&self, inputs: Tensors, state: &mut State) -> Result<Tensors, EngineError>;
}

/// The tensor of a name.
pub fn take(tensors: &mut Tensors, name: &str) -> Option<Tensor> {
    let place = tensors.iter().position(|(known, _)| known == name)?;
    Some(tensors.swap_remove(place).1)
}

/// Refuses dimensions that the model does not take, before the library says so in its own words.
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
