//! The loader for the worker binary: one process runs the programs of all wasm Cargos; another compiles one and ends.

use std::path::Path;

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
    compile::compile,
    runtime::{MODEL, Wasm, is_metered, probe},
};

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
        let program = launch.artifacts.get(MODEL).or_else(|| launch.artifacts.values().next());
        let none = || Failure::of_job(FailureCode::ModelUnavailable, "the Cargo names no program");
        compile(program.ok_or_else(none)?, into, is_metered(&launch.cargo))
    }

    async fn load(self, launch: Launch, _progress: LoadProgress) -> Result<Loaded<Wasm>, Failure> {
        let runtime = Wasm::new(launch.slots)?;
        Ok(Loaded { slots: runtime.slots(), vram_mb: 0, version: runtime.version(), runtime })
    }
}
