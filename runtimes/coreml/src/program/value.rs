//! Values that stand in the program or in a file of weights.

use super::types::{Element, TensorType, ValueType};

/// A value with what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// What it is.
    pub ty: ValueType,
    /// Its content.
    pub data: Data,
}

/// Content of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Real numbers.
    Floats(Vec<f32>),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Flags.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
    /// In a file of weights.
    Blob {
        /// The file's path, as the program writes it.
        file: String,
        /// Where the blob's own head begins, bytes.
        offset: u64,
    },
    /// Of a list or tuple.
    Many(Vec<Value>),
    /// Of a dictionary.
    Pairs(Vec<(Value, Value)>),
}

impl Data {
    /// How many elements stand here; of a blob it is not known yet.
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
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        let ty = ValueType::Tensor(TensorType::scalar(Element::Text));
        Self { ty, data: Data::Texts(vec![text.into()]) }
    }

    /// The text it is.
    pub fn as_text(&self) -> Option<&str> {
        match &self.data {
            Data::Texts(texts) => texts.first().map(String::as_str),
            _ => None,
        }
    }
}
