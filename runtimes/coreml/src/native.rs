//! The native back end: the system's own library, on macOS, with the Neural Engine and Apple's GPUs, in the models' own precision.
//!
//! | module | content |
//! | --- | --- |
//! | [`files`] | a model's files as the folder that the library reads |
//! | [`numbers`] | arrays in the library's memory, with strides and padding |
//! | [`pixels`] | images as planes of numbers and as rows of pixels |
//! | `system` | features of this system, and texts of its errors |
//! | `compile` | packages to compiled models |
//! | `array`, `picture` | tensors and images as the library's objects |
//! | `feature` | the library's description of inputs and outputs, and its values |
//! | `session` | a loaded model |
//!
//! Modules without Apple's objects are plain Rust and tested on every system. In the others, each `unsafe` block
//! states why it is sound.

pub mod files;
pub mod numbers;
pub mod pixels;

#[cfg(target_os = "macos")]
mod array;
#[cfg(target_os = "macos")]
mod compile;
#[cfg(target_os = "macos")]
mod feature;
#[cfg(target_os = "macos")]
mod picture;
#[cfg(target_os = "macos")]
mod session;
#[cfg(target_os = "macos")]
pub mod system;

#[cfg(target_os = "macos")]
pub use session::Native;
