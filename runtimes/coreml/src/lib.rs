//! Core ML models on any Island: on Apple's machines by Apple's library, elsewhere as ONNX graphs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`package`] | a model's files: packages, compiled models, weights |
//! | [`proto`], [`text`] | the two forms that a program is written in |
//! | [`program`] | what both are read into |
//! | [`lower`] | a program as an ONNX graph |
//! | [`model`] | what drivers see of a model, whatever runs it |
//! | [`portable`] | the back end that runs anywhere |
//! | `native` | the back end of macOS |
//! | [`backend`] | which of the two takes a model, and what an Island says it has |
//! | [`drivers`] | what a model is asked, and how its numbers become an answer |
//! | [`runtime`], [`worker`] | the seams to the rest |
//!
//! Weights never leave their files whole: each is read, expanded and handed on by itself. What a file says of sizes and places is
//! checked before it is believed.

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
