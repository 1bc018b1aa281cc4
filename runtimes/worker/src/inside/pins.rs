//! Shared locks on the model's files: eviction needs an exclusive lock.

use std::{
    fs::{File, TryLockError},
    path::PathBuf,
};

use island_protocol::job::{Failure, FailureCode};

/// Opens and locks every file until the result is dropped.
pub(super) fn hold<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<File>, Failure> {
    files.map(pin).collect()
}

fn pin(path: &PathBuf) -> Result<File, Failure> {
    let unavailable = |what: &str| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Failure::of_host(FailureCode::ModelUnavailable, format!("{what} {name}"))
    };
    let file = File::open(path).map_err(|error| unavailable(&format!("{error}: open")))?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Err(unavailable("the cache is about to remove")),
        // A file system without locks is not shared with the cache of another process.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}
