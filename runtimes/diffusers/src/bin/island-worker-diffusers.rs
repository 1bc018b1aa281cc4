//! The worker process of the diffusers engine.

use std::process::ExitCode;

use island_runtimes_diffusers::worker::DiffusersEngine;

fn main() -> ExitCode {
    island_runtimes_worker::inside::main(DiffusersEngine)
}
