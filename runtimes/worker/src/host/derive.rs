//! Runs a worker's program once to derive a file from a Cargo's file.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use island_protocol::job::{Failure, FailureCode};
use tokio::process::Child;

use super::{
    HostError, command,
    folder::{MAX_BYTES, MAX_FILES, is_too_large},
    prepare, read_scratch,
};
use crate::{
    launch::{DERIVED_FILE, EXIT_LOAD_FAILED, EXIT_OUT_OF_MEMORY, FAILURE_FILE, Launch, SCRATCH_DIR},
    lockdown::{WorkerMemory, most_mb},
};

/// Maximum bytes of the text that describes a failure.
const MAX_FAILURE_BYTES: u64 = 64 << 10;
/// Time between two measurements of what the process uses.
const MEASURE_INTERVAL: Duration = Duration::from_millis(500);
/// Time that it may take: processor time is limited, but one that was taken over may also wait.
const MAX_TIME: Duration = Duration::from_mins(10);

/// Starts `binary` in `dir` and waits for its end. Returns the derived file or the failure. Kills the process on drop, and where it exceeds limits
/// that it should keep to itself.
pub async fn derive(
    binary: &Path,
    dir: &Path,
    launch: &Launch,
) -> Result<Result<PathBuf, Failure>, HostError> {
    let stderr = prepare(dir, launch)?;
    let mut command = command(binary, dir, stderr);
    let child = command.arg("--derive").stdin(Stdio::null()).kill_on_drop(true).spawn();
    let mut child = child.map_err(|error| HostError::Start(binary.to_owned(), error))?;
    let ended = watched(&mut child, dir, launch.memory_limit_mb).await;
    let status = match ended.map_err(|error| HostError::Start(binary.to_owned(), error))? {
        Ok(status) => status,
        Err(excess) => return Ok(Err(excess)),
    };
    let scratch = dir.join(SCRATCH_DIR);
    let made = scratch.join(DERIVED_FILE);
    let is_file = fs::symlink_metadata(&made).is_ok_and(|about| about.is_file());
    let failure = verdict(status, launch, &scratch).or_else(|| (!is_file).then(|| crashed(status)));
    Ok(failure.map_or(Ok(made), Err))
}

/// Waits for the end of a process that works in `dir`. One that exceeds a limit is killed.
async fn watched(child: &mut Child, dir: &Path, limit_mb: u64) -> io::Result<Result<ExitStatus, Failure>> {
    // A process that has applied its sandbox by now may be hidden; then only its own watchdog measures it.
    let memory = child.id().and_then(|pid| WorkerMemory::open(pid).ok());
    let started = tokio::time::Instant::now();
    let mut measurements = tokio::time::interval(MEASURE_INTERVAL);
    let excess = loop {
        tokio::select! {
            biased;
            status = child.wait() => return Ok(Ok(status?)),
            _ = measurements.tick() => {}
        }
        let allocated_mb = memory.as_ref().and_then(WorkerMemory::allocated_mb);
        if allocated_mb.is_some_and(|allocated_mb| allocated_mb > most_mb(limit_mb)) {
            break too_much(&format!("{limit_mb} MB of memory"));
        }
        if is_too_large(dir, MAX_BYTES, MAX_FILES) {
            break too_much("the disk space that it may use");
        }
        if started.elapsed() > MAX_TIME {
            break too_much(&format!("{} minutes", MAX_TIME.as_secs() / 60));
        }
    };
    child.kill().await?;
    Ok(Err(excess))
}

fn too_much(what: &str) -> Failure {
    Failure::of_job(FailureCode::CompileLimit, format!("preparing the Cargo's file took more than {what}"))
}

fn verdict(status: ExitStatus, launch: &Launch, scratch: &Path) -> Option<Failure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(EXIT_OUT_OF_MEMORY), _) => Some(too_much(&format!("{} MB of memory", launch.memory_limit_mb))),
        (_, Some(libc::SIGXCPU | libc::SIGKILL)) if launch.cpu_limit_s > 0 => {
            Some(too_much(&format!("{} s of processor time", launch.cpu_limit_s)))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use island_protocol::ids::InstanceId;
    use serde_json::json;

    use super::*;

    /// What becomes of a program with this text, whose second argument is its folder.
    async fn outcome(text: &str) -> Result<PathBuf, Failure> {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, dir) = (folder.path().join("program"), folder.path().join("w"));
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make it a program");
        let cargo = serde_json::from_value(json!({"slug": "x", "runtime_type": "wasm"})).expect("a Cargo");
        let launch = Launch { memory_limit_mb: 256, ..Launch::new(InstanceId(uuid::Uuid::nil()), cargo) };
        loop {
            match derive(&program, &dir, &launch).await {
                // A process that another test starts at this moment has the file open until it is that other program.
                Err(HostError::Start(_, error)) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                outcome => return outcome.expect("it starts"),
            }
        }
    }

    #[tokio::test]
    async fn a_process_that_fills_the_disk_is_ended() {
        // Folders in folders, as a shell can make them without delay.
        let deep = "cd \"$2/scratch\"; for _ in $(seq 40); do mkdir f; cd f; done; exec sleep 600";
        let failure = outcome(deep).await.expect_err("it is ended");
        assert_eq!(failure.code, FailureCode::CompileLimit);
        assert!(failure.message.contains("disk space"), "{failure:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_only_waits_is_ended_after_ten_minutes() {
        let begun = tokio::time::Instant::now();
        // The minutes of the paused clock pass before these seconds do.
        let failure = outcome("exec sleep 60").await.expect_err("it is ended");
        assert_eq!(failure.code, FailureCode::CompileLimit);
        assert!(failure.message.contains("10 minutes"), "{failure:?}");
        assert!(begun.elapsed() > MAX_TIME, "not before: {:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_process_that_ends_is_not_ended_first() {
        let made = outcome("echo made >\"$2/scratch/derived\"").await.expect("it makes a file");
        assert!(made.ends_with("scratch/derived"));
        let failure = outcome("exit 3").await.expect_err("it fails");
        assert_eq!(failure.code, FailureCode::RuntimeCrashed);
    }
}
