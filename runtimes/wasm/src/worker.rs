//! The loader for the worker binary: one process runs the programs of all wasm Cargos; another compiles one and ends.

use std::path::{Path, PathBuf};

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_worker::{
    inside::{EngineLoader, LoadProgress, Loaded},
    launch::Launch,
    lockdown::Profile,
};

use crate::{
    compile::{compile, compiled},
    runtime::{MODEL, Wasm, is_metered, probe},
};

/// The program of a launch.
fn program(launch: &Launch) -> Option<&Path> {
    let files = &launch.artifacts;
    files.get(MODEL).or_else(|| files.values().next()).map(PathBuf::as_path)
}

/// wasmtime in a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct WasmEngine;

impl EngineLoader for WasmEngine {
    type Runtime = Wasm;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Wasm
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        probe()
    }

    fn profile(&self, _launch: &Launch) -> Profile {
        // Compiled programs are mapped and executed.
        Profile { code: true, ..Profile::default() }
    }

    fn derive(self, launch: &Launch, into: &Path) -> Result<(), Failure> {
        let none = || Failure::of_job(FailureCode::ModelUnavailable, "the Cargo names no program");
        compile(program(launch).ok_or_else(none)?, into, is_metered(&launch.cargo))
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Wasm>, Failure> {
        // The worker of an Island has none: a check of an entry has.
        if let Some(program) = program(&launch) {
            compiled(program, is_metered(&launch.cargo))?;
        }
        let runtime = Wasm::new(launch.slots)?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: 0, version: runtime.version(), runtime })
    }
}
