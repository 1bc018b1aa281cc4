//! The real agent with real workers and a real fabric, against a coordinator scripted by each test. Besides, two parts of it alone: the models
//! that it keeps, over a day of demand, and its files when writes fail.

mod commands;
mod containers;
mod coordinator;
mod damage;
mod demand;
mod failpoints;
mod fixture;
mod gpu;
#[cfg(target_os = "linux")]
mod gpu_driver;
mod settings;
mod stories;
mod withheld;
mod writes;
