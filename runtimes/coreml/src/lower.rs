//! Lowers a program to an ONNX graph, for Islands without Apple's library.
//!
//! | module | content |
//! | --- | --- |
//! | [`graph`] | the graph under construction: names, weights, states |
//! | [`call`] | one operation: its arguments, and the nodes it becomes |
//! | [`expand`] | compressed weights |
//! | the others | the operations, by kind: one small function each |
//!
//! Real numbers are computed in `f32` and integers in `i64`, whatever the program's types: it runs on CPUs, where
//! f16 is slow, and wider numbers give no wrong results.

pub mod activation;
pub mod binary;
pub mod call;
pub mod control;
pub mod convolution;
pub mod detection;
pub mod expand;
pub mod gather;
pub mod graph;
pub mod linear;
pub mod normalization;
pub mod picture;
pub mod quantization;
pub mod recurrent;
pub mod reduction;
pub mod sample;
pub mod shape;
pub mod slice;
pub mod tensor;
pub mod unary;

use call::Call;
use island_runtimes_kit::error::EngineError;

/// Adds the nodes of an operation, and returns the names of its outputs.
pub(crate) type Lower = fn(&mut Call<'_, '_>) -> Result<Vec<String>, EngineError>;

/// Operations by name.
pub(crate) type Table = &'static [(&'static str, Lower)];

const TABLES: [Table; 16] = [
    activation::OPERATIONS,
    binary::OPERATIONS,
    control::OPERATIONS,
    convolution::OPERATIONS,
    detection::OPERATIONS,
    gather::OPERATIONS,
    linear::OPERATIONS,
    normalization::OPERATIONS,
    picture::OPERATIONS,
    quantization::OPERATIONS,
    recurrent::OPERATIONS,
    reduction::OPERATIONS,
    sample::OPERATIONS,
    shape::OPERATIONS,
    slice::OPERATIONS,
    tensor::OPERATIONS,
];

fn find(kind: &str) -> Option<Lower> {
    let mut all = TABLES.iter().chain([&unary::OPERATIONS]).flat_map(|table| table.iter());
    all.find(|(name, _)| *name == kind).map(|(_, lower)| *lower)
}

/// Names of all supported operations, with those of compressed weights.
pub fn operations() -> Vec<&'static str> {
    let lowered =
        TABLES.iter().chain([&unary::OPERATIONS]).flat_map(|table| table.iter().map(|(name, _)| *name));
    let mut names: Vec<&str> = lowered.chain(expand::OPERATIONS).chain(graph::OPERATIONS).collect();
    names.sort_unstable();
    names
}
