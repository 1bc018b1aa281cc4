//! The real agent with a worker that was taken over. This program is the test when the test runner starts it, and that worker when the agent
//! starts it, which the usual test harness cannot.

#![expect(clippy::print_stdout, reason = "what the agent expects of a worker")]

#[path = "../island/coordinator.rs"]
#[expect(dead_code, reason = "shared with the other tests of whole agents")]
mod coordinator;
#[path = "../island/fixture.rs"]
#[expect(dead_code, reason = "shared with the other tests of whole agents")]
mod fixture;
#[path = "../island/gpu.rs"]
#[expect(dead_code, reason = "shared with the other tests of whole agents")]
mod gpu;
mod stories;
mod worker;

use std::{path::Path, process::ExitCode};

use island_testing::harness;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("--probe") {
        println!(r#"{{"kind":"onnx","version":"1","devices":[],"sandbox":{{"level":"full"}}}}"#);
        return ExitCode::SUCCESS;
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--dir") {
        let ended = worker::main(Path::new(&arguments[at + 1]));
        eprintln!("the worker has ended: {ended:?}");
        return ExitCode::FAILURE;
    }
    harness::run(stories::ALL)
}
