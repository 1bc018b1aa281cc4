//! The record of the releases that this machine has seen.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use island_daemon::files::write_atomic;
use island_protocol::digest::Digest;
use semver::Version;
use serde::{Deserialize, Serialize};

/// Name of the file.
const FILE: &str = "record.json";
/// Name of the lock.
const LOCK: &str = "lock";

/// The stored facts: an older release must never be accepted as the newest, whatever server sends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Number of the newest release that was verified.
    pub number: u64,
    /// Hash of its text: there is only one release of a number.
    pub sha256: Option<Digest>,
    /// Highest minimum version of all of them.
    pub floor: Option<Version>,
    /// Versions that did not start here.
    pub failed: BTreeSet<Version>,
    /// Since when jobs have kept an update from starting, in seconds since 1970.
    pub busy_since: Option<i64>,
    /// An installation that was not completed.
    pub pending: Option<Pending>,
}

/// An installation that has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The version being installed.
    pub version: Version,
    /// The package of the former version.
    pub previous: PathBuf,
    /// Whether the Island was registered before: it must be again.
    pub was_connected: bool,
}

impl Record {
    /// Takes the lock of the record in `folder`, which is held until the result is dropped, in whatever way the process ends. Returns `None`
    /// while another run holds it: that one may be installing, and this one would settle its update.
    pub fn lock(folder: &Path) -> io::Result<Option<File>> {
        let file = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Loads the record in `folder`; empty if there is no file.
    pub fn read(folder: &Path) -> io::Result<Self> {
        match fs::read(folder.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Stores it atomically.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        write_atomic(&folder.join(FILE), &bytes, 0o600)
    }
}
