//! Types of values: elements, dimensions.

/// Stored element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub enum Element {
    Bool,
    Text,
    F16,
    F32,
    F64,
    Bf16,
    F8E4M3,
    F8E5M2,
    I4,
    I8,
    I16,
    I32,
    I64,
    U1,
    U2,
    U3,
    U4,
    U6,
    U8,
    U16,
    U32,
    U64,
}

/// Class of computed elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// `f32`, whatever the stored type.
    Float,
    /// `i64`, whatever the stored type.
    Int,
    /// Flags.
    Bool,
    /// Not computed with.
    Text,
}

/// Element types by their number in protobuf, their number in files of weights (0 for none) and their name in text.
const ELEMENTS: [(Element, i32, u32, &str); 22] = [
    (Element::Bool, 1, 0, "bool"),
    (Element::Text, 2, 0, "string"),
    (Element::F16, 10, 1, "fp16"),
    (Element::F32, 11, 2, "fp32"),
    (Element::F64, 12, 0, "fp64"),
    (Element::Bf16, 13, 5, "bf16"),
    (Element::F8E4M3, 40, 16, "fp8e4m3fn"),
    (Element::F8E5M2, 41, 17, "fp8e5m2"),
    (Element::I4, 25, 8, "int4"),
    (Element::I8, 21, 4, "int8"),
    (Element::I16, 22, 6, "int16"),
    (Element::I32, 23, 14, "int32"),
    (Element::I64, 24, 0, "int64"),
    (Element::U1, 37, 9, "uint1"),
    (Element::U2, 36, 10, "uint2"),
    (Element::U3, 39, 12, "uint3"),
    (Element::U4, 35, 11, "uint4"),
    (Element::U6, 38, 13, "uint6"),
    (Element::U8, 31, 3, "uint8"),
    (Element::U16, 32, 7, "uint16"),
    (Element::U32, 33, 15, "uint32"),
    (Element::U64, 34, 0, "uint64"),
];

impl Element {
    /// The element type with this number in protobuf.
    pub fn of_proto(number: i32) -> Option<Self> {
        ELEMENTS.iter().find(|(_, proto, ..)| *proto == number).map(|(element, ..)| *element)
    }

    /// The element type with this number in a file of weights.
    pub fn of_blob(number: u32) -> Option<Self> {
        ELEMENTS.iter().find(|(_, _, blob, _)| number > 0 && *blob == number).map(|(element, ..)| *element)
    }

    /// The element type with this name in text.
    pub fn of_name(name: &str) -> Option<Self> {
        ELEMENTS.iter().find(|(.., known)| *known == name).map(|(element, ..)| *element)
    }

    /// Size in bits; 0 for strings.
    pub fn bits(self) -> u64 {
        match self {
            Self::Text => 0,
            Self::U1 => 1,
            Self::U2 => 2,
            Self::U3 => 3,
            Self::I4 | Self::U4 => 4,
            Self::U6 => 6,
            Self::Bool | Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 => 8,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 16,
            Self::F32 | Self::I32 | Self::U32 => 32,
            Self::F64 | Self::I64 | Self::U64 => 64,
        }
    }

    /// Whether it is signed.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::I4 | Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Whether its elements are numbers from 0 to 255: codes, flags of a mask, and quantized weights.
    pub fn fits_byte(self) -> bool {
        self.class() == Class::Int && !self.is_signed() && self.bits() <= 8
    }

    /// The class it is computed in.
    pub fn class(self) -> Class {
        match self {
            Self::Bool => Class::Bool,
            Self::Text => Class::Text,
            Self::F16 | Self::F32 | Self::F64 | Self::Bf16 | Self::F8E4M3 | Self::F8E5M2 => Class::Float,
            _ => Class::Int,
        }
    }
}

/// Maximum dimension, and maximum elements of one tensor: twice those of the largest published ones.
pub const MAX_ELEMENTS: u64 = 1 << 32;

/// Element type and dimensions; a dimension that is known only when the model runs is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorType {
    /// Element type.
    pub element: Element,
    /// Its dimensions.
    pub shape: Vec<Option<u64>>,
}

impl TensorType {
    /// A scalar.
    pub fn scalar(element: Element) -> Self {
        Self { element, shape: Vec::new() }
    }

    /// Number of its dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Its dimensions, if all are known.
    pub fn fixed(&self) -> Option<Vec<u64>> {
        self.shape.iter().copied().collect()
    }
}

/// The type of a name or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueType {
    /// A tensor.
    Tensor(TensorType),
    /// A list of elements of one type.
    List(Box<ValueType>),
    /// A tuple.
    Tuple(Vec<ValueType>),
    /// A dictionary.
    Dictionary(Box<(ValueType, ValueType)>),
    /// A state: a tensor that persists between runs.
    State(TensorType),
}

impl ValueType {
    /// The type of the tensor or of the state's tensor.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Self::Tensor(tensor) | Self::State(tensor) => Some(tensor),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_are_found_by_each_of_their_names() {
        for (element, proto, blob, name) in ELEMENTS {
            assert_eq!(Element::of_proto(proto), Some(element));
            assert_eq!(Element::of_name(name), Some(element));
            assert!(blob == 0 || Element::of_blob(blob) == Some(element));
        }
        assert_eq!((Element::of_blob(0), Element::of_proto(99), Element::of_name("x")), (None, None, None));
    }
}
