//! Pins.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use island_protocol::digest::Digest;

/// A verified file that is not removed while this exists: a shared lock that prevents eviction.
#[derive(Debug)]
pub struct Pinned {
    path: PathBuf,
    digest: Digest,
    size: u64,
    _lock: File,
}

impl Pinned {
    /// A pin on `file`, which must be `path` opened and locked by [`lock`].
    pub(crate) fn new(path: PathBuf, digest: Digest, size: u64, file: File) -> Self {
        Self { path, digest, size, _lock: file }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// Opens `path` and takes the shared lock that prevents eviction.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared)?;
    // Between opening and locking the file may have been evicted, and another one put at its path.
    if fs::metadata(path)?.ino() == file.metadata()?.ino() {
        Ok(file)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}
