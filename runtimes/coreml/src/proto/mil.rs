//! A program as protobuf.
#![expect(missing_docs, reason = "the names are those of the published format")]

use std::collections::BTreeMap;

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct Program {
    #[prost(int64, tag = "1")]
    pub version: i64,
    #[prost(btree_map = "string, message", tag = "2")]
    pub functions: BTreeMap<String, Function>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    #[prost(string, tag = "2")]
    pub opset: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub block_specializations: BTreeMap<String, Block>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Block {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub operations: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Argument {
    #[prost(message, repeated, tag = "1")]
    pub arguments: Vec<Binding>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Binding {
    #[prost(oneof = "Bound", tags = "1, 2")]
    pub binding: Option<Bound>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Bound {
    #[prost(string, tag = "1")]
    Name(String),
    #[prost(message, tag = "2")]
    Value(Value),
}

#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub inputs: BTreeMap<String, Argument>,
    #[prost(message, repeated, tag = "3")]
    pub outputs: Vec<NamedValueType>,
    #[prost(message, repeated, tag = "4")]
    pub blocks: Vec<Block>,
    #[prost(btree_map = "string, message", tag = "5")]
    pub attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NamedValueType {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(oneof = "Type", tags = "1, 2, 3, 4, 5")]
    pub r#type: Option<Type>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Type {
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    #[prost(message, boxed, tag = "2")]
    List(Box<ListType>),
    #[prost(message, tag = "3")]
    Tuple(TupleType),
    #[prost(message, boxed, tag = "4")]
    Dictionary(Box<DictionaryType>),
    #[prost(message, boxed, tag = "5")]
    State(Box<StateType>),
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub data_type: i32,
    #[prost(int64, tag = "2")]
    pub rank: i64,
    #[prost(message, repeated, tag = "3")]
    pub dimensions: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListType {
    #[prost(message, optional, boxed, tag = "1")]
    pub r#type: Option<Box<ValueType>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TupleType {
    #[prost(message, repeated, tag = "1")]
    pub types: Vec<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DictionaryType {
    #[prost(message, optional, boxed, tag = "1")]
    pub key: Option<Box<ValueType>>,
    #[prost(message, optional, boxed, tag = "2")]
    pub value: Option<Box<ValueType>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StateType {
    #[prost(message, optional, boxed, tag = "1")]
    pub wrapped: Option<Box<ValueType>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Dimension {
    #[prost(oneof = "Extent", tags = "1, 2")]
    pub extent: Option<Extent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub enum Extent {
    #[prost(message, tag = "1")]
    Constant(ConstantDimension),
    #[prost(message, tag = "2")]
    Unknown(UnknownDimension),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ConstantDimension {
    #[prost(uint64, tag = "1")]
    pub size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct UnknownDimension {
    #[prost(bool, tag = "1")]
    pub variadic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<ValueType>,
    #[prost(oneof = "Content", tags = "3, 5")]
    pub content: Option<Content>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    #[prost(message, tag = "3")]
    Immediate(Immediate),
    #[prost(message, tag = "5")]
    Blob(BlobFile),
}

#[derive(Clone, PartialEq, Message)]
pub struct BlobFile {
    #[prost(string, tag = "1")]
    pub file_name: String,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Immediate {
    #[prost(oneof = "Here", tags = "1, 2, 3, 4")]
    pub value: Option<Here>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Here {
    #[prost(message, tag = "1")]
    Tensor(TensorValue),
    #[prost(message, tag = "2")]
    Tuple(Values),
    #[prost(message, tag = "3")]
    List(Values),
    #[prost(message, tag = "4")]
    Dictionary(DictionaryValue),
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorValue {
    #[prost(oneof = "Elements", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<Elements>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Elements {
    #[prost(message, tag = "1")]
    Floats(Floats),
    #[prost(message, tag = "2")]
    Ints(Ints),
    #[prost(message, tag = "3")]
    Bools(Bools),
    #[prost(message, tag = "4")]
    Texts(Texts),
    #[prost(message, tag = "5")]
    LongInts(LongInts),
    #[prost(message, tag = "6")]
    Doubles(Doubles),
    #[prost(message, tag = "7")]
    Bytes(Bytes),
}

#[derive(Clone, PartialEq, Message)]
pub struct Floats {
    #[prost(float, repeated, tag = "1")]
    pub values: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ints {
    #[prost(int32, repeated, tag = "1")]
    pub values: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Bools {
    #[prost(bool, repeated, tag = "1")]
    pub values: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LongInts {
    #[prost(int64, repeated, tag = "1")]
    pub values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Doubles {
    #[prost(double, repeated, tag = "1")]
    pub values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Bytes {
    #[prost(bytes = "vec", tag = "1")]
    pub values: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Values {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DictionaryValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Pair>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Pair {
    #[prost(message, optional, tag = "1")]
    pub key: Option<Value>,
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}
