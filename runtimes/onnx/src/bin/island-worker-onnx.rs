//! The worker process of the ONNX engine.

use std::process::ExitCode;

use island_runtimes_graph::library;
use island_runtimes_onnx::worker::OnnxEngine;

fn main() -> ExitCode {
    if let Err(error) = library::set_environment() {
        eprintln!("island-worker-onnx cannot execute itself: {error}");
        return ExitCode::FAILURE;
    }
    island_runtimes_worker::inside::main(OnnxEngine)
}
