//! WebAssembly programs, run by wasmtime: commands of WASI preview 1 and components of preview 2.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`] | wasmtime's settings, and the version that compiled code depends on |
//! | [`inspect`] | what a program is and asks for, before it is compiled |
//! | [`compile`] | program to compiled file, in a process of its own |
//! | `program` | compiled files mapped, linked with WASI, and kept |
//! | `guest`, `stdio` | what a running program sees: input, output, clocks, chance |
//! | `metered` | the same for programs charged by their instructions, where nothing depends on the host |
//! | `limits`, `drive`, `ticker` | how much memory, until when, and who gives way |
//! | `job` | one job, from its request to its outcome |
//! | `verdict` | how a program ended, in the words of the protocol |
//! | [`runtime`] | the [`island_runtimes_api::Runtime`] |
//! | [`worker`] | the worker binary's side |
//!
//! A program runs on a stack from the pool and gives way at every tick (2 ms), so that a deadline or a cancellation is met within one,
//! also while it waits in a host function. It has a thread of its own, as many at once as the engine has slots; only a program that is
//! alone or quick gets its first time slice on the async thread, which saves the two hand-overs that cost more than most jobs.
//! What starts is a fresh instance of mapped code: nothing of one job is there for the next.

pub mod compile;
mod drive;
pub mod engine;
mod guest;
pub mod inspect;
mod job;
mod limits;
mod metered;
mod program;
pub mod runtime;
mod stdio;
mod ticker;
mod verdict;
pub mod worker;
