//! The engine with the small models of the repository, in this process and in the worker.

mod architectures;
mod encoders;
mod engine;
mod sound;
mod vision;
#[cfg(target_os = "linux")]
mod vulkan;
mod worker;
