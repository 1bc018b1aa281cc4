//! The worker process of the Core ML engine.

use std::process::ExitCode;

use island_runtimes_coreml::worker::CoreMlEngine;
use island_runtimes_graph::library;

fn main() -> ExitCode {
    if let Err(error) = library::set_environment() {
        eprintln!("island-worker-coreml cannot execute itself: {error}");
        return ExitCode::FAILURE;
    }
    island_runtimes_worker::inside::main(CoreMlEngine)
}
