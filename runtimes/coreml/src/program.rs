//! A model as operations: the common form of protobuf and text.
//!
//! | module | content |
//! | --- | --- |
//! | [`types`] | element types and dimensions |
//! | [`value`] | values in the program or in a file of weights |

pub mod types;
pub mod value;

use std::collections::BTreeMap;

use types::ValueType;
use value::Value;

/// A program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Program {
    /// Functions by name; the default is `main`.
    pub functions: BTreeMap<String, Function>,
}

/// A function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Function {
    /// Its operation set: `CoreML7` in protobuf, `ios17` in text.
    pub opset: String,
    /// Its parameters.
    pub inputs: Vec<Named>,
    /// Its body.
    pub block: Block,
}

/// A name with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// Its type.
    pub ty: ValueType,
}

/// Operations in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Parameters of a branch or loop.
    pub inputs: Vec<Named>,
    /// Operations.
    pub operations: Vec<Operation>,
    /// Names of its results.
    pub outputs: Vec<String>,
}

/// An operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operation {
    /// Its name in the operation set.
    pub kind: String,
    /// Its arguments, by parameter.
    pub inputs: BTreeMap<String, Vec<Argument>>,
    /// Its results.
    pub outputs: Vec<Named>,
    /// Its attributes; a constant has its value here.
    pub attributes: BTreeMap<String, Value>,
    /// Branches and bodies.
    pub blocks: Vec<Block>,
}

/// An argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// The result of another operation.
    Name(String),
    /// A literal value.
    Value(Value),
}

impl Operation {
    /// Its name in messages.
    pub fn title(&self) -> String {
        let output = self.outputs.first().map_or("", |output| output.name.as_str());
        format!("{} {output:?}", self.kind)
    }
}
