//! Models by the system's own library, on macOS: the Neural Engine and Apple's GPUs, in the numbers that models were made in.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`files`] | a model's files as the folder that the library reads |
//! | [`numbers`] | numbers in memory whose order is the library's affair |
//! | [`pixels`] | pictures between planes of numbers and rows of pixels |
//! | `system` | what this system offers, and its errors in words |
//! | `compile` | packages to compiled models |
//! | `array`, `picture` | numbers and pictures as the library's own objects |
//! | `feature` | what the library says of inputs, and outputs as it gives them |
//! | `session` | a loaded model |
//!
//! What is above the line between memory and Apple's objects is plain Rust and tested on every system. Below it, each `unsafe` block
//! says why it may be there.

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
