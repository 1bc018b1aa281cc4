//! Runs a worker's program once to remove what workers that have ended left outside their processes, such as containers.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use island_protocol::ids::InstanceId;
use tokio::process::Command;

use super::KEPT_VARIABLES;

/// Time that the program has.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Whose remains are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Orphans {
    /// Those of these workers.
    Of(Vec<InstanceId>),
    /// Those of all others. Only while no worker starts.
    AllBut(Vec<InstanceId>),
}

impl Orphans {
    /// Whether what this worker left is removed.
    pub fn include(&self, worker: InstanceId) -> bool {
        match self {
            Self::Of(ended) => ended.contains(&worker),
            Self::AllBut(alive) => !alive.contains(&worker),
        }
    }
}

/// Remains that could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum ReapError {
    /// The program cannot be run.
    #[error("run {}", .0.display())]
    Run(PathBuf, #[source] std::io::Error),
    /// It did not remove everything.
    #[error("{} ended with {status}: {output}", .binary.display())]
    Left {
        /// The program.
        binary: PathBuf,
        /// Its status.
        status: std::process::ExitStatus,
        /// The last of what it wrote.
        output: String,
    },
}

/// Removes the remains of workers whose folders are in `workers`. `daemon` is the socket of the container daemon, unless it is the usual one.
pub async fn reap(
    binary: &Path,
    workers: &Path,
    orphans: &Orphans,
    daemon: Option<&Path>,
) -> Result<(), ReapError> {
    let failed = |error| ReapError::Run(binary.to_owned(), error);
    let mut command = Command::new(binary);
    command.arg("--reap").arg(workers).env_clear();
    command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(daemon.map(|socket| ("DOCKER_HOST", format!("unix://{}", socket.display()))));
    let (option, named) = match orphans {
        Orphans::Of(ended) => ("--of", ended),
        Orphans::AllBut(alive) => ("--except", alive),
    };
    for worker in named {
        command.arg(option).arg(worker.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.unwrap_or(Err(std::io::ErrorKind::TimedOut.into())).map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let output = ReapError::Left {
        binary: binary.to_owned(),
        status: output.status,
        output: text.lines().last().unwrap_or_default().to_owned(),
    };
    Err(output)
}

#[cfg(test)]
mod tests {
    use std::{fs, io, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_does_not_end_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\nexec sleep 3600\n").expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make it a program");
        let orphans = Orphans::Of(Vec::new());
        let error = loop {
            let removal = reap(&program, folder.path(), &orphans, None);
            let ended = tokio::time::timeout(Duration::from_hours(1), removal).await;
            match ended.expect("it has a limit of its own").expect_err("it removes nothing") {
                // A process that another test starts at this moment has the file open until it is that other program.
                ReapError::Run(_, error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    tokio::task::yield_now().await;
                }
                error => break error,
            }
        };
        let is_late = matches!(&error, ReapError::Run(_, error) if error.kind() == io::ErrorKind::TimedOut);
        assert!(is_late, "{error:?}");
    }
}
