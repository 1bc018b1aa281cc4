//! The worker's socket, also if its path is longer than a socket address can be.

use std::{
    fs, io,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
};

#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, OwnedFd};

#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};

use tokio::net::UnixStream;

use crate::launch::SOCKET_FILE;

/// Maximum length of a path in a socket address.
const MAX_SOCKET_PATH: usize = 107;

/// Listens on a socket in `dir`; replaces one that an ended worker left.
pub(super) fn listen(dir: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(dir.join(SOCKET_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let address = Address::of(dir)?;
    UnixListener::bind(&address.path)
}

/// Connects to the socket in `dir`.
pub(super) async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let address = Address::of(dir)?;
    UnixStream::connect(&address.path).await
}

/// A path that is short enough for a socket address, and what keeps it valid.
struct Address {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    _dir: Option<OwnedFd>,
}

impl Address {
    #[cfg(target_os = "linux")]
    fn of(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SOCKET_FILE);
        if path.as_os_str().len() <= MAX_SOCKET_PATH {
            return Ok(Self { path, _dir: None });
        }
        let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_FILE}", dir.as_raw_fd()));
        Ok(Self { path, _dir: Some(dir) })
    }

    #[cfg(not(target_os = "linux"))]
    fn of(dir: &Path) -> io::Result<Self> {
        let path = dir.join(SOCKET_FILE);
        if path.as_os_str().len() < MAX_SOCKET_PATH.min(103) {
            return Ok(Self { path });
        }
        let message =
            format!("{} is too long for a socket; choose a shorter state directory", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}
