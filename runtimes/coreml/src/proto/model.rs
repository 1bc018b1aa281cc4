//! A model and its description of inputs and outputs.
#![expect(missing_docs, reason = "the names are those of the published format")]

use std::collections::BTreeMap;

use prost::{Message, Oneof};

use super::mil::Program;

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int32, tag = "1")]
    pub specification_version: i32,
    #[prost(message, optional, tag = "2")]
    pub description: Option<Description>,
    #[prost(message, optional, tag = "502")]
    pub program: Option<Program>,
    /// Kinds of models before programs: only their presence matters.
    #[prost(oneof = "Older", tags = "200, 201, 202, 302, 303, 402, 403, 500, 555, 556, 3000")]
    pub older: Option<Older>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Older {
    #[prost(message, tag = "200")]
    PipelineClassifier(Unread),
    #[prost(message, tag = "201")]
    PipelineRegressor(Unread),
    #[prost(message, tag = "202")]
    Pipeline(Unread),
    #[prost(message, tag = "302")]
    TreeEnsembleRegressor(Unread),
    #[prost(message, tag = "303")]
    NeuralNetworkRegressor(Unread),
    #[prost(message, tag = "402")]
    TreeEnsembleClassifier(Unread),
    #[prost(message, tag = "403")]
    NeuralNetworkClassifier(Unread),
    #[prost(message, tag = "500")]
    NeuralNetwork(Unread),
    #[prost(message, tag = "555")]
    CustomModel(Unread),
    #[prost(message, tag = "556")]
    LinkedModel(Unread),
    #[prost(message, tag = "3000")]
    SerializedModel(Unread),
}

/// A message whose content does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Unread {}

#[derive(Clone, PartialEq, Message)]
pub struct Description {
    #[prost(message, repeated, tag = "1")]
    pub input: Vec<Feature>,
    #[prost(message, repeated, tag = "10")]
    pub output: Vec<Feature>,
    #[prost(string, tag = "11")]
    pub predicted_feature_name: String,
    #[prost(string, tag = "12")]
    pub predicted_probabilities_name: String,
    #[prost(message, repeated, tag = "13")]
    pub state: Vec<Feature>,
    #[prost(message, repeated, tag = "20")]
    pub functions: Vec<FunctionDescription>,
    #[prost(string, tag = "21")]
    pub default_function_name: String,
    #[prost(message, optional, tag = "100")]
    pub metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(btree_map = "string, string", tag = "100")]
    pub user_defined: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FunctionDescription {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub input: Vec<Feature>,
    #[prost(message, repeated, tag = "3")]
    pub output: Vec<Feature>,
    #[prost(string, tag = "4")]
    pub predicted_feature_name: String,
    #[prost(string, tag = "5")]
    pub predicted_probabilities_name: String,
    #[prost(message, repeated, tag = "6")]
    pub state: Vec<Feature>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Feature {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub r#type: Option<FeatureType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FeatureType {
    #[prost(oneof = "FeatureKind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<FeatureKind>,
    #[prost(bool, tag = "1000")]
    pub is_optional: bool,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum FeatureKind {
    #[prost(message, tag = "1")]
    Int64(Unread),
    #[prost(message, tag = "2")]
    Double(Unread),
    #[prost(message, tag = "3")]
    Text(Unread),
    #[prost(message, tag = "4")]
    Image(ImageType),
    #[prost(message, tag = "5")]
    Array(ArrayType),
    #[prost(message, tag = "6")]
    Dictionary(Unread),
    #[prost(message, tag = "7")]
    Sequence(Unread),
    #[prost(message, tag = "8")]
    State(StateType),
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageType {
    #[prost(int64, tag = "1")]
    pub width: i64,
    #[prost(int64, tag = "2")]
    pub height: i64,
    /// 10 grayscale, 20 RGB, 30 BGR, 40 grayscale in f16.
    #[prost(int32, tag = "3")]
    pub color_space: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ArrayType {
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
    /// 0x10000 and the bits for floats, 0x20000 and the bits for integers.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(message, optional, tag = "21")]
    pub enumerated_shapes: Option<EnumeratedShapes>,
    #[prost(message, optional, tag = "31")]
    pub shape_range: Option<ShapeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnumeratedShapes {
    #[prost(message, repeated, tag = "1")]
    pub shapes: Vec<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ShapeRange {
    #[prost(message, repeated, tag = "1")]
    pub size_ranges: Vec<SizeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SizeRange {
    #[prost(uint64, tag = "1")]
    pub lower: u64,
    /// Negative for no bound.
    #[prost(int64, tag = "2")]
    pub upper: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct StateType {
    #[prost(message, optional, tag = "1")]
    pub array: Option<ArrayType>,
}
