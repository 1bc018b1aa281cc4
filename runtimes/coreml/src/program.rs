//! A model as operations: what both forms of a file, protobuf and text, are read into.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`types`] | what values are: elements, dimensions |
//! | [`value`] | values that stand in the program or in a file of weights |

pub mod types;
pub mod value;

use std::collections::BTreeMap;

use types::ValueType;
use value::Value;

/// A whole program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Program {
    /// By name; what is called without one is `main`.
    pub functions: BTreeMap<String, Function>,
}

/// What is called with inputs and gives outputs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Function {
    /// The set of operations it is written in: `CoreML7` in protobuf, `ios17` in text.
    pub opset: String,
    /// What it is called with.
    pub inputs: Vec<Named>,
    /// What it does.
    pub block: Block,
}

/// A name and what bears it.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub ty: ValueType,
}

/// Operations in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// What a branch or loop gives it.
    pub inputs: Vec<Named>,
    /// What it does.
    pub operations: Vec<Operation>,
    /// Names of what it gives.
    pub outputs: Vec<String>,
}

/// One step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operation {
    /// Its name in the set of operations.
    pub kind: String,
    /// What it works on, by parameter.
    pub inputs: BTreeMap<String, Vec<Argument>>,
    /// What it gives.
    pub outputs: Vec<Named>,
    /// What else is said of it; a constant has its value here.
    pub attributes: BTreeMap<String, Value>,
    /// Branches and bodies.
    pub blocks: Vec<Block>,
}

/// One of the things a parameter is.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// What another operation gave.
    Name(String),
    /// A value on the spot.
    Value(Value),
}

impl Operation {
    /// What it is called in messages.
    pub fn title(&self) -> String {
        let output = self.outputs.first().map_or("", |output| output.name.as_str());
        format!("{} {output:?}", self.kind)
    }
}
