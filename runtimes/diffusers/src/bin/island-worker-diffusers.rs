//! A worker with Stable Diffusion inside.

use std::process::ExitCode;

use island_runtimes_diffusers::worker::DiffusersEngine;

fn main() -> ExitCode {
    island_runtimes_worker::inside::main(DiffusersEngine)
}
