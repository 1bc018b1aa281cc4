//! The engine with small models of every family.

mod company;
mod conformance;
mod fixtures;
mod flips;
#[cfg(target_os = "linux")]
mod gpu;
mod hostile;
mod hostile_pictures;
mod precisions;
mod sounds;
mod speaking;
mod word_times;
