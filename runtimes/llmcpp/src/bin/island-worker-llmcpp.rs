//! A worker that runs one language model.

use std::process::ExitCode;

fn main() -> ExitCode {
    island_runtimes_worker::inside::main(island_runtimes_llmcpp::worker::LlmcppEngine::default())
}
