//! Runs a worker's program once to derive a file from a Cargo's file.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use island_protocol::job::{Failure, FailureCode};

use super::{HostError, command, prepare, read_scratch};
use crate::launch::{DERIVED_FILE, EXIT_LOAD_FAILED, EXIT_OUT_OF_MEMORY, FAILURE_FILE, Launch, SCRATCH_DIR};

/// Maximum bytes of the text that describes a failure.
const MAX_FAILURE_BYTES: u64 = 64 << 10;

/// Starts `binary` in `dir` and waits for its end. Returns the derived file or the failure. Kills the process on drop.
pub async fn derive(
    binary: &Path,
    dir: &Path,
    launch: &Launch,
) -> Result<Result<PathBuf, Failure>, HostError> {
    let stderr = prepare(dir, launch)?;
    let mut command = command(binary, dir, stderr);
    let child = command.arg("--derive").stdin(Stdio::null()).kill_on_drop(true).spawn();
    let mut child = child.map_err(|error| HostError::Start(binary.to_owned(), error))?;
    let status = child.wait().await.map_err(|error| HostError::Start(binary.to_owned(), error))?;
    let scratch = dir.join(SCRATCH_DIR);
    let made = scratch.join(DERIVED_FILE);
    let is_file = fs::symlink_metadata(&made).is_ok_and(|about| about.is_file());
    let failure = verdict(status, launch, &scratch).or_else(|| (!is_file).then(|| crashed(status)));
    Ok(failure.map_or(Ok(made), Err))
}

fn verdict(status: ExitStatus, launch: &Launch, scratch: &Path) -> Option<Failure> {
    let too_much = |what: String| {
        Failure::of_job(
            FailureCode::CompileLimit,
            format!("preparing the Cargo's file took more than {what}"),
        )
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(EXIT_OUT_OF_MEMORY), _) => Some(too_much(format!("{} MB of memory", launch.memory_limit_mb))),
        (_, Some(libc::SIGXCPU | libc::SIGKILL)) if launch.cpu_limit_s > 0 => {
            Some(too_much(format!("{} s of processor time", launch.cpu_limit_s)))
        }
        (Some(EXIT_LOAD_FAILED), _) => read_scratch(&scratch.join(FAILURE_FILE), MAX_FAILURE_BYTES)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .or_else(|| Some(crashed(status))),
        _ => Some(crashed(status)),
    }
}

fn crashed(status: ExitStatus) -> Failure {
    let message = format!("the engine failed while preparing the Cargo's file ({status})");
    Failure::of_host(FailureCode::RuntimeCrashed, message)
}
