//! WebAssembly programs, run by wasmtime: commands of WASI preview 1 and components of preview 2.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine`] | wasmtime's settings, and the version that compiled code depends on |
//! | [`inspect`] | inspects a program before it is compiled |
//! | [`compile`] | compiles a program, in a separate process |
//! | `program` | compiled files: mapped, linked with WASI, and kept |
//! | `guest`, `stdio` | what a running program has: input, output, clocks, random numbers |
//! | `metered` | the same for programs charged by their instructions, where nothing depends on the host |
//! | `limits`, `drive`, `ticker` | limits of memory, deadlines, time slices |
//! | `job` | one job, from its request to its outcome |
//! | `verdict` | converts how a program ended into an outcome |
//! | [`runtime`] | the [`island_runtimes_api::Runtime`] |
//! | [`worker`] | the loader for the worker binary |
//!
//! A program runs on a stack from the pool and yields at every tick (2 ms), so that a deadline or a cancellation takes effect within one,
//! also while it waits in a host function. It has a thread, as many at once as the engine has slots; only a program that is alone or quick
//! gets its first time slice on the async thread, which saves the two hand-overs that cost more than most jobs. Each job runs in a new
//! instance of the mapped code: no state of a job remains for the next.

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
