//! What can go wrong.

use std::{io, path::PathBuf};

use island_protocol::{address::InvalidAddress, digest::Digest};

use crate::web::WebError;

/// A cache that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder cannot be made.
    #[error("create cache folder {path}")]
    Create {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The web cannot be used at all.
    #[error("set up the web client")]
    Web(#[source] reqwest::Error),
    /// The hub's address makes no sense.
    #[error("{0:?} is not the address of a hub")]
    Hub(String),
}

/// An artifact that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// Its address makes no sense.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// A file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The disk is full, and nothing can be evicted.
    #[error("no room for {needed_bytes} bytes in the cache")]
    DiskFull {
        /// Bytes asked for.
        needed_bytes: u64,
    },
    /// The bytes are not the ones named.
    #[error("the file has digest {found}, not {expected}")]
    HashMismatch {
        /// As the artifact says.
        expected: Digest,
        /// As computed.
        found: Digest,
    },
    /// Not cached, and fetching is out.
    #[error("{url} is not cached and cannot be fetched: {reason}")]
    Unavailable {
        /// The address.
        url: String,
        /// Why not.
        reason: String,
    },
    /// It could not be fetched.
    #[error("fetch the file from {host}")]
    Fetch {
        /// The server asked first.
        host: String,
        /// Why.
        #[source]
        source: WebError,
    },
    /// The hub does not know it, or does not give it.
    #[error("ask the hub for {repo}")]
    Hub {
        /// `owner/repo`.
        repo: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No file of the repository is a model.
    #[error("{repo} has no file that is a model")]
    NothingToPick {
        /// `owner/repo`.
        repo: String,
    },
    /// Stopped from outside.
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

    /// Whether what landed before this error may be of use to the next fetch. After any other error it is removed: the bytes are
    /// wrong, their source cannot be trusted, or the disk is full.
    pub(crate) fn leaves_partial(&self) -> bool {
        match self {
            Self::Cancelled | Self::DiskFull { .. } => true,
            Self::Fetch { source, .. } => !source.is_breach(),
            _ => false,
        }
    }
}
