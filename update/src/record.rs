//! What an Island remembers of the releases it has seen.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use island_daemon::files::write_atomic;
use island_protocol::digest::Digest;
use semver::Version;
use serde::{Deserialize, Serialize};

/// Name of the file.
const FILE: &str = "record.json";

/// What must outlive a run: an older release is never taken for the newest, whoever serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Number of the newest release that was verified.
    pub number: u64,
    /// Hash of its text: there is one release of a number.
    pub sha256: Option<Digest>,
    /// Highest floor of all of them.
    pub floor: Option<Version>,
    /// Versions that did not come up here.
    pub failed: BTreeSet<Version>,
    /// An installation whose end nobody saw.
    pub pending: Option<Pending>,
}

/// An installation that began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// What is being installed.
    pub version: Version,
    /// The package of what was there before.
    pub previous: PathBuf,
    /// Whether the Island was registered before: it must be again.
    pub was_connected: bool,
    /// Whether the owner had it take no work: then it stays so.
    pub held: bool,
}

impl Record {
    /// What is remembered in `folder`; nothing yet where there is no file.
    pub fn read(folder: &Path) -> io::Result<Self> {
        match fs::read(folder.join(FILE)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes it down, whole or not at all.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        write_atomic(&folder.join(FILE), &bytes, 0o600)
    }
}
