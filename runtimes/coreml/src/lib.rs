//! The Core ML engine: by Apple's library on macOS, elsewhere as ONNX graphs.
//!
//! | module | content |
//! | --- | --- |
//! | [`package`] | a model's files: packages, compiled models, weights |
//! | [`proto`], [`text`] | the two forms of a program |
//! | [`program`] | the parsed program of either form |
//! | [`lower`] | a program as an ONNX graph |
//! | [`model`] | the interface of models to drivers, for any back end |
//! | [`portable`] | the back end of every system |
//! | `native` | the back end of macOS |
//! | [`backend`] | the choice of a back end, and what an Island reports about it |
//! | [`drivers`] | tasks: from an input to an output |
//! | [`runtime`], [`worker`] | the engine, and its loader in a worker process |
//!
//! Weights are never in memory at once: each is read, expanded and handed on separately. Sizes and offsets in files are
//! checked before they are used.

pub mod backend;
pub mod drivers;
pub mod lower;
pub mod model;
#[cfg(any(target_os = "macos", test))]
pub mod native;
pub mod package;
pub mod portable;
pub mod program;
pub mod proto;
pub mod runtime;
pub mod text;
pub mod worker;
