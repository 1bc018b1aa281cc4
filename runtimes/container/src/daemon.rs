//! The daemon: Docker Engine, or Podman in its place, over a Unix socket and nothing else.

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

/// For answers that a daemon gives at once.
const QUICK: Duration = Duration::from_mins(1);
/// For answers that come when an image is unpacked or a program has ended; what waits for them has a deadline of its own.
const SLOW: Duration = Duration::from_hours(24);
/// For the first answer.
const FIRST: Duration = Duration::from_secs(5);
/// Where a socket is looked for when the owner names none.
const USUAL: [&str; 3] = ["/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"];

/// A daemon that answers.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// For requests that are answered at once.
    pub quick: Docker,
    /// For requests that may take as long as they like.
    pub slow: Docker,
    /// What it can do.
    pub abilities: Abilities,
}

impl Daemon {
    /// Connects, and asks what the daemon can do. One that could not hold a container in its bounds is not used at all.
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

/// For the owner: which socket, what is wrong with it, and what would help.
fn describe(socket: &Path, error: &Error) -> String {
    let at = socket.display();
    match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) => format!(
            "the container daemon's socket {at} is closed to this user: add the user to its group, or use rootless Docker or Podman"
        ),
        Some(io::ErrorKind::ConnectionRefused) => {
            format!("nobody listens at {at}: the container daemon is not running")
        }
        Some(io::ErrorKind::NotFound) => format!("there is no container daemon's socket at {at}"),
        _ => match error {
            Error::SocketNotFoundError(_) => format!("there is no container daemon's socket at {at}"),
            Error::RequestTimeoutError => format!("the container daemon at {at} does not answer"),
            error => format!("the container daemon at {at} gives no sensible answer: {}", chain(error)),
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

/// A daemon that does not do what is asked of it is this host's fault. What it says may name paths: it goes to the log, and of its
/// message only the kind to the consumer.
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
        _ => Failure::of_host(FailureCode::RuntimeCrashed, format!("{what}: the container daemon went away")),
    }
}

fn is_disk_full(message: &str) -> bool {
    message.contains("no space left on device")
}

/// Whether the daemon says that a thing does not exist.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}
