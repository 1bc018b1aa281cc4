//! Files used in place: hashed once, then recognized by size, modification time and inode.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use island_protocol::digest::Digest;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{GetError, Pinned, Progress, Transfer, hash, pin};

/// The record of a hashed file. Any change to the file invalidates it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    path: PathBuf,
    size: u64,
    mtime_ns: i128,
    inode: u64,
    digest: Digest,
}

impl Marker {
    /// The recorded digest of `path`, if the file is still the one that was hashed.
    pub(crate) fn lookup(folder: &Path, path: &Path) -> Option<(Digest, u64)> {
        let marker: Self = serde_json::from_slice(&fs::read(Self::file(folder, path)).ok()?).ok()?;
        let now = Self::of(path, &fs::metadata(path).ok()?, marker.digest);
        (marker == now).then_some((marker.digest, marker.size))
    }

    fn of(path: &Path, metadata: &fs::Metadata, digest: Digest) -> Self {
        Self {
            path: path.to_owned(),
            size: metadata.len(),
            mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            inode: metadata.ino(),
            digest,
        }
    }

    fn file(folder: &Path, path: &Path) -> PathBuf {
        folder.join(hash::bytes(path.as_os_str().as_encoded_bytes()).hex()).with_extension("json")
    }

    fn store(&self, folder: &Path) -> io::Result<()> {
        let target = Self::file(folder, &self.path);
        let temporary = target.with_extension(format!("{}.tmp", std::process::id()));
        // Not synced: a file whose record a power cut destroys is hashed again, not downloaded.
        fs::write(&temporary, serde_json::to_vec(self).map_err(io::Error::other)?)?;
        fs::rename(temporary, target)
    }
}

/// Records the digest of a file that was hashed while it was downloaded.
pub(crate) fn remember(markers: &Path, path: &Path, digest: Digest) -> io::Result<()> {
    Marker::of(path, &fs::metadata(path)?, digest).store(markers)
}

/// Removes the record of a file, which is hashed again before its next use.
pub(crate) fn forget(markers: &Path, path: &Path) {
    let _ = fs::remove_file(Marker::file(markers, path));
}

/// Opens, verifies and pins `path`, which must be an ordinary file: a pipe blocks, and a device has no end. Blocks.
pub(crate) fn pin(
    markers: &Path,
    path: &Path,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<Pinned, GetError> {
    let failed = |source| GetError::Read { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("it is not an ordinary file")));
    }
    let file = pin::lock(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let size = metadata.len();
    if let Some((digest, _)) = Marker::lookup(markers, path) {
        return Ok(Pinned::new(path.to_owned(), digest, size, file));
    }
    let hashed = hash::file(&file, &|done| progress(Transfer::Bytes { done, total: Some(size) }), cancel)
        .map_err(failed)?;
    let digest = hashed.ok_or(GetError::Cancelled)?;
    // If the record cannot be written, the file is hashed again next time.
    if let Err(error) = Marker::of(path, &metadata, digest).store(markers) {
        tracing::warn!(%error, "cannot record a verified file");
    }
    Ok(Pinned::new(path.to_owned(), digest, size, file))
}
