//! A partial file: its bytes, and a side file that records which pieces are on disk.
//!
//! The first line of the side file names the version of the file, if it can be resumed; then follows one byte per piece. A kill leaves both
//! unchanged. Neither is synced: after a power loss the hash at the end decides.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_protocol::digest::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{GetError, pieces::Pieces, size::FileSize, web::About};

/// Length of the side file's first line.
const HEADER: usize = 512;
/// Bytes that are hashed between two checks of the cancellation token.
const HASH_BYTES: usize = 1 << 20;

/// The version of a file to which the pieces belong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    total: Option<u64>,
    validator: Option<String>,
}

/// A partial file.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    file: Arc<File>,
    marks: File,
}

impl Part {
    /// Opens what an earlier download of the same version left, or starts from the beginning.
    pub(super) fn resume(path: &Path, about: &About, size: FileSize) -> Result<(Self, Pieces), GetError> {
        let mut pieces = Pieces::new(size);
        let (version, marks) = left(path);
        let is_same = about.can_be_resumed() && version == Some(Version::of(about));
        if !is_same || length(path) != Some(size.bytes()) {
            return Ok((Self::start_over(path, about, size.bytes())?, pieces));
        }
        pieces.restore(&marks);
        Ok((Self::open(path)?, pieces))
    }

    /// Creates a file of this version with `length` bytes and no piece.
    pub(super) fn start_over(path: &Path, about: &About, length: u64) -> Result<Self, GetError> {
        Self::remove(path);
        let part = Self::open(path)?;
        let failed = |source| GetError::Write { path: path.to_owned(), source };
        if about.can_be_resumed() {
            let mut header = serde_json::to_vec(&Version::of(about)).map_err(|error| failed(error.into()))?;
            // A version whose name is too long cannot be resumed.
            header.resize(HEADER.max(header.len()), b' ');
            part.marks.write_all_at(&header, 0).map_err(failed)?;
        }
        part.set_length(length).map_err(failed)?;
        Ok(part)
    }

    /// Whether a download of the same version can continue it.
    pub(crate) fn can_be_resumed(path: &Path) -> bool {
        let (version, _) = left(path);
        version.is_some_and(|version| version.validator.is_some() && length(path) == version.total)
    }

    /// Removes it.
    pub(crate) fn remove(path: &Path) {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(marks_path(path));
    }

    /// Sets the length of the file.
    pub(super) fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    /// Records that piece `index` is on disk.
    pub(super) fn mark(&self, index: usize) -> io::Result<()> {
        self.marks.write_all_at(&[1], (HEADER + index) as u64)
    }

    /// Writes `bytes` and returns the emptied buffer.
    pub(super) async fn write_at(&self, mut bytes: Vec<u8>, start: u64) -> io::Result<Vec<u8>> {
        let file = Arc::clone(&self.file);
        let write = tokio::task::spawn_blocking(move || {
            file.write_all_at(&bytes, start)?;
            bytes.clear();
            Ok(bytes)
        });
        write.await.map_err(io::Error::other)?
    }

    /// Hashes the first `total` bytes.
    pub(super) async fn hash(&self, total: u64, cancel: &CancellationToken) -> Result<Digest, GetError> {
        let (_sender, seen) = watch::channel(total);
        self.follow(total, seen, cancel).await
    }

    /// Hashes the file while it grows, up to the `prefix` without a hole. Fails if `prefix` ends early.
    pub(super) async fn follow(
        &self,
        total: u64,
        mut prefix: watch::Receiver<u64>,
        cancel: &CancellationToken,
    ) -> Result<Digest, GetError> {
        let mut hasher = Sha256::new();
        let mut done = 0;
        while done < total {
            let known = prefix.wait_for(|known| *known > done).await.map(|known| *known);
            let Ok(upto) = known else { return Err(GetError::Cancelled) };
            let (file, stop, from) = (Arc::clone(&self.file), cancel.clone(), done);
            let span = tokio::task::spawn_blocking(move || hash_span(hasher, &file, from, upto, &stop)).await;
            let span = span.map_err(io::Error::other).and_then(|read| read);
            let span = span.map_err(|source| GetError::Read { path: self.path.clone(), source })?;
            hasher = span.ok_or(GetError::Cancelled)?;
            done = upto;
        }
        Ok(Digest::from_bytes(hasher.finalize().into()))
    }

    fn open(path: &Path) -> Result<Self, GetError> {
        let open = |path: PathBuf| {
            let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
            opened.map_err(|source| GetError::Write { path, source })
        };
        let (file, marks) = (open(path.to_owned())?, open(marks_path(path))?);
        Ok(Self { path: path.to_owned(), file: Arc::new(file), marks })
    }
}

impl Version {
    fn of(about: &About) -> Self {
        Self { total: about.total, validator: about.version() }
    }
}

fn marks_path(path: &Path) -> PathBuf {
    path.with_extension("pieces")
}

/// The content of the side file: the version, and a byte per piece.
fn left(path: &Path) -> (Option<Version>, Vec<u8>) {
    let mut header = fs::read(marks_path(path)).unwrap_or_default();
    let marks = header.split_off(header.len().min(HEADER));
    (serde_json::from_slice(&header).ok(), marks)
}

fn length(path: &Path) -> Option<u64> {
    Some(fs::metadata(path).ok()?.len())
}

fn hash_span(
    mut hasher: Sha256,
    file: &File,
    from: u64,
    upto: u64,
    stop: &CancellationToken,
) -> io::Result<Option<Sha256>> {
    let mut buffer = vec![0; HASH_BYTES];
    let mut done = from;
    while done < upto {
        if stop.is_cancelled() {
            return Ok(None);
        }
        let wanted = HASH_BYTES.min((upto - done) as usize);
        file.read_exact_at(&mut buffer[..wanted], done)?;
        hasher.update(&buffer[..wanted]);
        done += wanted as u64;
    }
    Ok(Some(hasher))
}
