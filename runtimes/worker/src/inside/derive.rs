//! A process that derives one file from another, such as the compiled code of a module. Its input is as untrusted as any model, so it runs
//! in the sandbox, with limits on memory and processor time.

use std::{fs, path::Path, process::ExitCode};

use island_protocol::job::{Failure, FailureCode};

use super::{EngineLoader, StartError, apply_sandbox, pins, read_launch, strong_enough};
use crate::{
    launch::{DERIVED_FILE, EXIT_LOAD_FAILED, FAILURE_FILE, SCRATCH_DIR},
    lockdown::Memory,
};

/// Derives in `dir` what its launch file requests; a failure is written in place of the result.
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

/// Synced: the result goes into a store in which a power loss must not leave partial files.
fn synced(path: &Path) -> Result<(), Failure> {
    let sync = fs::File::open(path).and_then(|file| file.sync_all());
    sync.map_err(|error| {
        Failure::of_host(FailureCode::InternalError, format!("store the derived file: {error}"))
    })
}
