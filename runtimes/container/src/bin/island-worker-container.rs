//! A worker that runs Cargos in containers.

use std::process::ExitCode;

fn main() -> ExitCode {
    island_runtimes_worker::inside::main(island_runtimes_container::worker::ContainerEngine::default())
}
