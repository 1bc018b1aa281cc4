//! A process that makes one file of another and ends: compiled code of a module, say. What it reads is as hostile as any model, so
//! it does so inside the walls, with a limit on memory and on processor time.

use std::{fs, path::Path, process::ExitCode};

use island_protocol::job::{Failure, FailureCode};

use super::{EngineLoader, StartError, apply_sandbox, pins, read_launch, strong_enough};
use crate::{
    launch::{DERIVED_FILE, EXIT_LOAD_FAILED, FAILURE_FILE, SCRATCH_DIR},
    lockdown::Memory,
};

/// Derives in `dir` what its launch file asks for; a failure is written beside the result that is missing.
pub(super) fn run<E: EngineLoader>(mut engine: E, dir: &Path) -> Result<ExitCode, StartError> {
    let launch = read_launch(dir)?;
    let memory = Memory::open().map_err(StartError::Memory)?;
    let pins = pins::hold(launch.artifacts.values());
    let prepared = engine.prepare(&launch);
    let sandbox = apply_sandbox(&engine, &launch, dir);
    memory.watch(launch.memory_limit_mb).map_err(StartError::Memory)?;
    let scratch = dir.join(SCRATCH_DIR);
    let derived = prepared
        .and_then(|()| strong_enough(&launch, &sandbox))
        .and_then(|()| {
            let _pins = pins?;
            engine.derive(&launch, &scratch.join(DERIVED_FILE))
        })
        .and_then(|()| synced(&scratch.join(DERIVED_FILE)));
    let Err(failure) = derived else { return Ok(ExitCode::SUCCESS) };
    tracing::info!(code = %failure.code, message = failure.message, "nothing could be derived");
    let text = serde_json::to_vec(&failure).expect("a failure is plain data");
    fs::write(scratch.join(FAILURE_FILE), text).map_err(StartError::Verdict)?;
    Ok(ExitCode::from(EXIT_LOAD_FAILED as u8))
}

/// The result goes into a store that a loss of power must not fill with halves.
fn synced(path: &Path) -> Result<(), Failure> {
    let sync = fs::File::open(path).and_then(|file| file.sync_all());
    sync.map_err(|error| {
        Failure::of_host(FailureCode::InternalError, format!("keep what was derived: {error}"))
    })
}
