//! Errors of the cache.

use std::{io, path::PathBuf};

use island_protocol::{address::InvalidAddress, digest::Digest};

use crate::web::WebError;

/// A cache that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder cannot be created.
    #[error("create cache folder {path}")]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why it cannot be created.
        #[source]
        source: io::Error,
    },
    /// The HTTP client cannot be created.
    #[error("set up the web client")]
    Web(#[source] reqwest::Error),
    /// The hub's address is invalid.
    #[error("{0:?} is not the address of a hub")]
    Hub(String),
}

/// An artifact that cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// Its address is invalid.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        #[source]
        source: io::Error,
    },
    /// The disk is full, and nothing can be evicted.
    #[error("no space for {needed_bytes} bytes in the cache")]
    DiskFull {
        /// Requested bytes.
        needed_bytes: u64,
    },
    /// The file has another digest.
    #[error("the file has digest {found}, not {expected}")]
    HashMismatch {
        /// The digest in the artifact.
        expected: Digest,
        /// The computed digest.
        found: Digest,
    },
    /// The file at its address has another hash than its Cargo states, as it was downloaded or as its server states.
    #[error("the file {file} has the hash {found}, not {expected}")]
    Changed {
        /// Address of the file, without parameters.
        file: String,
        /// The digest in the artifact.
        expected: Digest,
        /// The digest of the file.
        found: Digest,
    },
    /// It is a file on this machine, and no hash of it is stated.
    #[error("{path} is a file on this machine, which is used only if its hash is stated")]
    NoHash {
        /// The file.
        path: PathBuf,
    },
    /// It is not cached, and cannot be downloaded.
    #[error("{url} is not cached and cannot be fetched: {reason}")]
    Unavailable {
        /// The address.
        url: String,
        /// Why it cannot be downloaded.
        reason: String,
    },
    /// It could not be downloaded.
    #[error("fetch the file from {host}")]
    Fetch {
        /// The first server.
        host: String,
        /// What the server did.
        #[source]
        source: WebError,
    },
    /// The hub does not have the repository, or refuses it.
    #[error("ask the hub for {repo}")]
    Hub {
        /// `owner/repo`.
        repo: String,
        /// What the hub answered.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No file of the repository is a model.
    #[error("{repo} has no file that is a model")]
    NothingToPick {
        /// `owner/repo`.
        repo: String,
    },
    /// It was cancelled.
    #[error("stopped")]
    Cancelled,
}

impl GetError {
    /// Whether the cause is a full disk.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::DiskFull { .. } => true,
            Self::Write { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether the pieces on disk may be of use to the next download. After any other error they are removed: the bytes are wrong, their
    /// source cannot be trusted, or the disk is full.
    pub(crate) fn leaves_partial(&self) -> bool {
        match self {
            Self::Cancelled | Self::DiskFull { .. } => true,
            Self::Fetch { source, .. } => !source.is_breach(),
            _ => false,
        }
    }
}
