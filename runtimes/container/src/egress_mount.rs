//! Egress of a container that has no network: a folder of the agent with a socket and a forwarder. The forwarder runs beside the program
//! and listens on the container's loopback; environment variables name it as proxy for HTTP clients.

use std::time::Duration;

use bollard::{
    container::LogOutput,
    errors::Error,
    exec::{StartExecOptions, StartExecResults},
    models::ExecConfig,
};
use futures::StreamExt;
use island_protocol::job::{Failure, FailureCode};
use tokio::time::timeout;

use crate::{
    body::USER,
    daemon::{Daemon, failed},
};

/// Path of the folder in a container.
pub const FOLDER: &str = "/.island";
/// Address on which the forwarder listens.
pub const PORT: u16 = 3128;
/// The line that it prints once it listens.
const READY: &str = "ready";
/// Time for that line.
const PATIENCE: Duration = Duration::from_secs(10);

/// Variables for HTTP clients. Each client reads some of them.
pub fn variables() -> impl Iterator<Item = String> {
    let proxied = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let direct = ["NO_PROXY", "no_proxy"].into_iter().map(|name| format!("{name}=localhost,127.0.0.1,::1"));
    proxied.into_iter().map(|name| format!("{name}=http://127.0.0.1:{PORT}")).chain(direct)
}

/// Starts the forwarder in a running container, and waits until it listens. It ends with the container.
pub(crate) async fn open(daemon: &Daemon, container: &str) -> Result<(), Failure> {
    let command = [format!("{FOLDER}/f"), format!("{FOLDER}/s"), PORT.to_string()];
    let config = ExecConfig {
        cmd: Some(command.to_vec()),
        user: Some(USER.to_owned()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    };
    let created = match daemon.quick.create_exec(container, config).await {
        // The program has already ended; the caller detects that.
        Err(error) if has_ended(&error) => return Ok(()),
        created => created.map_err(|error| failed("prepare egress of the container", &error))?,
    };
    let started = match daemon.quick.start_exec(&created.id, None::<StartExecOptions>).await {
        Err(error) if has_ended(&error) => return Ok(()),
        started => started.map_err(|error| failed("start the forwarder in the container", &error))?,
    };
    let StartExecResults::Attached { mut output, .. } = started else {
        return Err(broken("it is not attached"));
    };
    let mut said = String::new();
    let listening = async {
        while let Some(Ok(piece)) = output.next().await {
            if let LogOutput::StdOut { message } | LogOutput::StdErr { message } = piece {
                said.push_str(&String::from_utf8_lossy(&message));
            }
            if said.lines().any(|line| line == READY) {
                return true;
            }
        }
        false
    };
    match timeout(PATIENCE, listening).await {
        Ok(true) => Ok(()),
        Ok(false) if said.is_empty() && !runs(daemon, container).await => Ok(()),
        Ok(false) => Err(broken(said.trim())),
        Err(_) => Err(broken("it did not report that it listens")),
    }
}

async fn runs(daemon: &Daemon, container: &str) -> bool {
    let found = daemon.quick.inspect_container(container, None).await.ok();
    found.and_then(|found| found.state?.running).unwrap_or(false)
}

fn has_ended(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 409, .. })
}

fn broken(why: &str) -> Failure {
    tracing::warn!(why, "egress of a container cannot be started");
    Failure::of_host(FailureCode::RuntimeCrashed, "the container's egress could not be started")
}
