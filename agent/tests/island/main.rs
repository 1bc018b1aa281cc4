//! The real agent with real workers and a real fabric, against a coordinator scripted by each test.

mod commands;
mod containers;
mod coordinator;
mod damage;
mod failpoints;
mod fixture;
mod gpu;
#[cfg(target_os = "linux")]
mod gpu_driver;
mod settings;
mod stories;
mod withheld;
