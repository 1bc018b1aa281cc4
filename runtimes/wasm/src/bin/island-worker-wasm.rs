//! A worker that runs WebAssembly programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    island_runtimes_worker::inside::main(island_runtimes_wasm::worker::WasmEngine)
}
