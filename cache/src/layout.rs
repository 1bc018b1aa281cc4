//! Paths in the cache's folder. Names are built from digests: no external text becomes part of a path.

use std::path::{Path, PathBuf};

use island_protocol::digest::Digest;

use crate::hash;

/// Marks a folder as a cache: nothing is ever removed from a folder without it.
pub(crate) const MARK: &str = "ISLAND_CACHE";

/// The cache's folder.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Verified files, by digest.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// One verified file.
    pub(crate) fn blob(&self, digest: Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    /// What each address resolved to.
    pub(crate) fn refs(&self) -> PathBuf {
        self.root.join("refs")
    }

    /// What one address resolved to.
    pub(crate) fn reference(&self, url: &str) -> PathBuf {
        self.refs().join(hash::bytes(url.as_bytes()).hex()).with_extension("json")
    }

    /// Partial files.
    pub(crate) fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    /// A partial file, without its extension.
    pub(crate) fn part(&self, url: &str) -> PathBuf {
        self.partial().join(hash::bytes(url.as_bytes()).hex())
    }

    /// The lock that is held while space is claimed.
    pub(crate) fn room_lock(&self) -> PathBuf {
        self.root.join("room.lock")
    }

    /// Files whose hash is not the one that their Cargo states.
    pub(crate) fn mismatches(&self) -> PathBuf {
        self.root.join("mismatches.json")
    }

    /// Records of files that were hashed in place.
    pub(crate) fn markers(&self) -> PathBuf {
        self.root.join("local")
    }
}
