//! ONNX graphs in ONNX Runtime.
//!
//! | module | content |
//! | --- | --- |
//! | [`library`] | finding and opening the shared library |
//! | [`devices`] | the execution providers of a session |
//! | [`files`] | choosing the file of a graph among those of a repository |
//! | [`Graph`] | one loaded graph: its inputs and outputs, running it |
//! | [`lanes`] | the sessions of one graph, which run concurrently on shared weights |
//! | [`inspect`], [`fields`] | checking a file before the library reads it |
//! | [`tensor_trace`] | recording tensors for tests |

mod default_inputs;
pub mod devices;
pub mod fields;
pub mod files;
mod graph;
pub mod inspect;
pub mod lanes;
pub mod library;
pub mod tensor_trace;
mod weights;

pub use graph::{Feed, Feeds, Graph, Input, Results, Threads, filled, floats, view};
