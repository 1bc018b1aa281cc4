//! ONNX graphs in ONNX Runtime.
//!
//! | module | content |
//! | --- | --- |
//! | [`library`] | finding and opening the shared library |
//! | [`Gpu`](gpu::Gpu) | plugins for GPUs, and the devices that they run graphs on |
//! | [`files`] | choosing the file of a graph among those of a repository |
//! | [`Graph`] | one loaded graph: its inputs and outputs, running it |
//! | [`lanes`] | the sessions of one graph, which run concurrently on shared weights |
//! | [`inspect`], [`fields`] | checking a file before the library reads it |
//! | [`onnx`] | graphs as messages, for those that write them |
//! | [`tensor_trace`] | recording tensors for tests |

mod default_inputs;
pub mod fields;
pub mod files;
pub mod gpu;
mod graph;
pub mod inspect;
pub mod lanes;
pub mod library;
mod native;
pub mod onnx;
pub mod tensor_trace;
mod trial;
mod vulkan;
mod weights;

pub use graph::{Feed, Feeds, Graph, Input, Resources, Results, Written, builder, filled, floats, view};
