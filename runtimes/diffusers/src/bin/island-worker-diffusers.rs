//! The worker process of the diffusers engine.

use std::process::ExitCode;

use island_runtimes_diffusers::worker::DiffusersEngine;
use island_runtimes_graph::library;

fn main() -> ExitCode {
    if let Err(error) = library::set_environment() {
        eprintln!("island-worker-diffusers cannot execute itself: {error}");
        return ExitCode::FAILURE;
    }
    island_runtimes_worker::inside::main(DiffusersEngine)
}
