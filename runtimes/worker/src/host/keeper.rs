//! Starts a keeper beside a worker: its program once more, which waits until the worker has ended and then removes what it left outside its
//! process. It does so when the agent that started both has ended, too.

use std::{
    io::{self, PipeWriter},
    path::Path,
    process::Stdio,
};

use tokio::process::Command;

use super::KEPT_VARIABLES;
use crate::launch::Launch;

/// Starts the keeper of a worker with this launch file; returns what the worker must hold open as long as it lives.
pub(super) fn start(binary: &Path, dir: &Path, launch: &Launch) -> io::Result<PipeWriter> {
    let (closed, held) = io::pipe()?;
    let mut command = Command::new(binary);
    command.arg("--reap").arg(dir.parent().unwrap_or(dir)).arg("--of").arg(launch.instance.to_string());
    command.arg("--when-closed").current_dir("/").env_clear();
    command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let daemon = launch.containers.socket.as_deref();
    command.envs(daemon.map(|socket| ("DOCKER_HOST", format!("unix://{}", socket.display()))));
    // The runtime waits for it; this agent may end first.
    command
        .stdin(Stdio::from(closed))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(held)
}
