//! The engine with small pipelines of random weights.

mod conformance;
mod flips;
mod goldens;
#[cfg(target_os = "linux")]
mod gpu;
mod hostile;
mod support;
