//! The engine with small models of every task.

mod answers;
mod coverage;
mod flips;
mod models;
#[cfg(target_os = "macos")]
mod native;
mod published;
mod speech;
mod support;
