//! The daemon: Docker Engine or Podman, only over a Unix socket.

mod abilities;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, Docker, errors::Error};
use island_protocol::job::{Failure, FailureCode};
use island_runtimes_api::Unavailable;

pub use abilities::Abilities;

/// Timeout of requests that a daemon answers at once.
const QUICK: Duration = Duration::from_mins(1);
/// Timeout of requests that unpack an image or wait for the end of a program; callers have deadlines of their own.
const SLOW: Duration = Duration::from_hours(24);
/// Timeout of the first request.
const FIRST: Duration = Duration::from_secs(5);
/// The sockets that are tried if the owner names none.
const USUAL: [&str; 3] = ["/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"];

/// A daemon that answers.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// For requests that are answered at once.
    pub quick: Docker,
    /// For requests that may take long.
    pub slow: Docker,
    /// What it supports.
    pub abilities: Abilities,
}

impl Daemon {
    /// Connects, and checks what the daemon supports. A daemon that cannot confine containers is not used.
    pub async fn connect(socket: &Path) -> Result<Self, Unavailable> {
        let unreachable = |error: &Error| Unavailable { reason: describe(socket, error) };
        let path = socket.to_string_lossy();
        let docker = Docker::connect_with_unix(&path, FIRST.as_secs(), API_DEFAULT_VERSION)
            .map_err(|error| unreachable(&error))?;
        let docker = docker.negotiate_version().await.map_err(|error| unreachable(&error))?;
        let version = docker.version().await.map_err(|error| unreachable(&error))?;
        let info = docker.info().await.map_err(|error| unreachable(&error))?;
        let abilities = Abilities::of(&version, &info)?;
        Ok(Self { quick: docker.clone().with_timeout(QUICK), slow: docker.with_timeout(SLOW), abilities })
    }
}

/// The socket to use: the owner's, or the first of the usual ones that exists.
pub fn socket(named: Option<&Path>) -> Result<PathBuf, Unavailable> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.iter().flat_map(|dir| [dir.join("docker.sock"), dir.join("podman/podman.sock")]);
    let all: Vec<_> = USUAL.into_iter().map(PathBuf::from).chain(own).collect();
    all.iter().find(|path| path.exists()).cloned().ok_or_else(|| {
        let looked: Vec<_> = all.iter().map(|path| path.display().to_string()).collect();
        let reason = format!(
            "no container daemon: there is no socket at {}. Install docker.io, or Podman with `systemctl enable --now podman.socket`, \
             or name a socket in [containers]",
            looked.join(", ")
        );
        Unavailable { reason }
    })
}

/// For the owner: which socket, what the problem is, and how to solve it.
fn describe(socket: &Path, error: &Error) -> String {
    let at = socket.display();
    match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) => format!(
            "the container daemon's socket {at} cannot be opened by this user: add the user to its group, or use rootless Docker or Podman"
        ),
        Some(io::ErrorKind::ConnectionRefused) => {
            format!("the container daemon is not running: no process listens at {at}")
        }
        Some(io::ErrorKind::NotFound) => format!("there is no container daemon's socket at {at}"),
        _ => match error {
            Error::SocketNotFoundError(_) => format!("there is no container daemon's socket at {at}"),
            Error::RequestTimeoutError => format!("the container daemon at {at} does not answer"),
            error => format!("the container daemon at {at} sent an invalid answer: {}", chain(error)),
        },
    }
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// A daemon that refuses a request is a fault of this host. Its message may contain paths: it goes to the log, and only its kind to the
/// consumer.
pub(crate) fn failed(what: &str, error: &Error) -> Failure {
    tracing::warn!(error = chain(error), "{what}");
    match error {
        Error::DockerResponseServerError { status_code, message } if is_disk_full(message) => {
            tracing::debug!(status_code, "out of disk");
            Failure::of_host(FailureCode::DiskFull, format!("{what}: the container daemon's disk is full"))
        }
        Error::DockerStreamError { error } if is_disk_full(error) => {
            Failure::of_host(FailureCode::DiskFull, format!("{what}: the container daemon's disk is full"))
        }
        Error::DockerResponseServerError { status_code, .. } => Failure::of_host(
            FailureCode::RuntimeCrashed,
            format!("{what}: the container daemon refused ({status_code})"),
        ),
        Error::RequestTimeoutError => Failure::of_host(
            FailureCode::RuntimeStalled,
            format!("{what}: the container daemon does not answer"),
        ),
        _ => Failure::of_host(
            FailureCode::RuntimeCrashed,
            format!("{what}: the connection to the container daemon was lost"),
        ),
    }
}

fn is_disk_full(message: &str) -> bool {
    message.contains("no space left on device")
}

/// Whether the daemon reports that an object does not exist.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}
