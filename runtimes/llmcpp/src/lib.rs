//! Language models in GGUF files, run by llama.cpp.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`gguf`] | checks a model file before llama.cpp reads it, in safe code |
//! | [`split`] | models in several files |
//! | [`backend`] | llama.cpp itself: processor variants and GPU back ends, loaded once |
//! | [`gpu`] | modules for GPUs, and the devices that they find |
//! | [`fit`] | distributes a model between GPUs and the processor |
//! | [`model`] | a loaded model, its vocabulary and its sizes |
//! | [`request`] | parses and checks the input of a job |
//! | [`prompt`] | encodes a conversation; a user's text never becomes control tokens |
//! | [`reasoning`] | separates reasoning from the answer |
//! | [`grammar`] | replies that match a JSON Schema |
//! | [`tools`] | functions that a reply may call |
//! | [`sampling`] | from logits to a token; random draws depend only on seed and position |
//! | [`logprobs`] | probabilities of tokens, kept until their text is sent |
//! | [`text`], [`stop`] | tokens to whole characters, and the end at a stop text |
//! | [`vision`] | pictures and sounds in a prompt |
//! | [`encoder`] | models that embed or rank texts |
//! | [`engine`] | the thread that owns the context and batches all running jobs |
//! | [`runtime`] | the engine interface |
//! | [`worker`] | the loader for the worker binary |

pub mod backend;
pub mod encoder;
pub mod engine;
pub mod fit;
pub mod gguf;
pub mod gpu;
pub mod grammar;
pub mod logprobs;
pub mod model;
pub mod prompt;
pub mod reasoning;
pub mod request;
pub mod runtime;
pub mod sampling;
pub mod split;
pub mod stop;
pub mod text;
pub mod tools;
pub mod vision;
pub mod worker;

pub use runtime::{Llmcpp, Settings};
