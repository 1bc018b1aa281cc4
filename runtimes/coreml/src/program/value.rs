//! Values in the program or in a file of weights.

use super::types::{Element, TensorType, ValueType};

/// A value with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Its type.
    pub ty: ValueType,
    /// Its content.
    pub data: Data,
}

/// Content of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Real numbers.
    Floats(Vec<f32>),
    /// Integers.
    Ints(Vec<i64>),
    /// Flags.
    Bools(Vec<bool>),
    /// Strings.
    Texts(Vec<String>),
    /// In a file of weights.
    Blob {
        /// The file's path in the program's form.
        file: String,
        /// Offset of the blob's header in bytes.
        offset: u64,
    },
    /// Of a list or tuple.
    Many(Vec<Value>),
    /// Of a dictionary.
    Pairs(Vec<(Value, Value)>),
}

impl Data {
    /// Number of elements; `None` for a blob.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Floats(items) => Some(items.len()),
            Self::Ints(items) => Some(items.len()),
            Self::Bools(items) => Some(items.len()),
            Self::Texts(items) => Some(items.len()),
            Self::Many(items) => Some(items.len()),
            Self::Pairs(items) => Some(items.len()),
            Self::Blob { .. } => None,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl Value {
    /// A string.
    pub fn text(text: impl Into<String>) -> Self {
        let ty = ValueType::Tensor(TensorType::scalar(Element::Text));
        Self { ty, data: Data::Texts(vec![text.into()]) }
    }

    /// The string, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            Data::Texts(texts) => texts.first().map(String::as_str),
            _ => None,
        }
    }
}
