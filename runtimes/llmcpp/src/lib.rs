//! Language models in GGUF files, run by llama.cpp.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`gguf`] | the check of a model file before llama.cpp sees it, in safe code |
//! | [`backend`] | llama.cpp itself: processor variants and GPU back ends, loaded once |
//! | [`offload`] | how many layers fit on the GPU |
//! | [`model`] | a loaded model, its vocabulary and its sizes |
//! | [`request`] | what a job asks for, checked |
//! | [`prompt`] | conversation to tokens; a user's text is never taken for control tokens |
//! | [`grammar`] | replies held to a JSON Schema |
//! | [`tools`] | functions that a reply may call |
//! | [`sampling`] | from logits to a token; the draw is a function of seed and position |
//! | [`text`], [`stop`] | tokens to whole characters, and the end at a stop text |
//! | [`engine`] | the one thread that owns the context and batches all running jobs |
//! | [`runtime`] | the seam to the rest |
//! | [`worker`] | what the worker binary brings |

pub mod backend;
pub mod engine;
pub mod gguf;
pub mod grammar;
pub mod model;
pub mod offload;
pub mod prompt;
pub mod request;
pub mod runtime;
pub mod sampling;
pub mod stop;
pub mod text;
pub mod tools;
pub mod worker;

pub use runtime::{Llmcpp, Settings};
