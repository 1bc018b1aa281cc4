//! The folder that a container mounts, the socket in it, and its connections.

use std::{
    convert::Infallible,
    fmt, fs,
    future::pending,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use island_protocol::egress::Place;
use island_runtimes_api::JobLog;
use tokio::net::UnixListener;

use crate::{
    Bounds, Outside,
    bounds::Allowance,
    connection::{self, Rules},
};

/// Name of the socket in the folder. Short, because the path of a socket has at most 107 bytes.
pub const SOCKET_FILE: &str = "s";
/// Name of the forwarder in the folder.
pub const FORWARDER_FILE: &str = "f";
/// Time before the next try if a connection cannot be accepted.
const PAUSE: Duration = Duration::from_millis(50);
/// The answer to a connection beyond the limit, before its request is read.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 45\r\n\r\nisland: too many connections at once, or all\n";

/// A gate that cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The folder cannot be created.
    #[error("create the folder {0}")]
    Folder(PathBuf, #[source] io::Error),
    /// The forwarder cannot be copied into it.
    #[error("copy the forwarder into {0}")]
    Forwarder(PathBuf, #[source] io::Error),
    /// The socket cannot be created.
    #[error("listen in {0}")]
    Socket(PathBuf, #[source] io::Error),
}

/// The egress of one job. On drop the folder is removed; open connections end with [`Gate::serve`].
pub struct Gate {
    folder: PathBuf,
    listener: Option<UnixListener>,
    rules: Rules,
}

impl Gate {
    /// Creates one in `folder`, which an earlier agent may have left and a container may have mounted: then the program finds the new
    /// socket at the path of the old one.
    pub fn open(
        folder: PathBuf,
        forwarder: &Path,
        places: Vec<Place>,
        outside: Arc<dyn Outside>,
        bounds: Bounds,
        log: JobLog,
    ) -> Result<Self, GateError> {
        make_folder(&folder).map_err(|error| GateError::Folder(folder.clone(), error))?;
        // From here on it removes what it has created.
        let allowance = Arc::new(Allowance::new(bounds.bytes));
        let rules = Rules { places, outside, bounds, allowance, log };
        let mut gate = Self { folder, listener: None, rules };
        let put = put_forwarder(forwarder, &gate.folder.join(FORWARDER_FILE));
        put.map_err(|error| GateError::Forwarder(gate.folder.clone(), error))?;
        let listener = listen(&gate.folder.join(SOCKET_FILE));
        gate.listener = Some(listener.map_err(|error| GateError::Socket(gate.folder.clone(), error))?);
        Ok(gate)
    }

    /// The folder for the container.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Serves the program's connections for as long as this is awaited.
    pub async fn serve(&mut self) -> Infallible {
        let Self { listener, rules, .. } = self;
        let Bounds { at_once, in_all, .. } = rules.bounds;
        let mut connections = FuturesUnordered::new();
        let mut refused = 0_usize;
        for number in 1..=in_all {
            let Some(listener) = listener.as_ref() else { break };
            let stream = loop {
                tokio::select! {
                    biased;
                    Some(()) = connections.next() => {}
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => break stream,
                        Err(error) => {
                            tracing::warn!(%error, "a connection of a container cannot be accepted");
                            tokio::time::sleep(PAUSE).await;
                        }
                    },
                }
            };
            if connections.len() < at_once {
                connections.push(connection::run(stream, rules));
            } else {
                refused += 1;
                // Into a new socket, whose buffer is empty; what does not fit is dropped.
                let _ = stream.into_std().and_then(|mut stream| stream.write(TOO_MANY));
                if refused == 1 {
                    rules.log.note(&format!("egress: more than {at_once} connections at once are refused"));
                }
            }
            if number == in_all {
                rules.log.note(&format!("egress: that was connection {in_all}, the last one allowed"));
            }
        }
        // Later connections are refused.
        *listener = None;
        while connections.next().await.is_some() {}
        pending().await
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("folder", &self.folder)
            .field("places", &self.rules.places)
            .finish_non_exhaustive()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "an egress folder could not be removed; the next start removes it");
        }
    }
}

/// A folder that every user may access, because the container's user is `nobody`. On the host, its parent folder is private.
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

fn put_forwarder(forwarder: &Path, place: &Path) -> io::Result<()> {
    if place.exists() {
        return Ok(());
    }
    // A megabyte, which is copied only from another file system.
    if fs::hard_link(forwarder, place).is_ok() {
        return Ok(());
    }
    fs::copy(forwarder, place)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o555))
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}
