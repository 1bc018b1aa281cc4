//! Exclusive locks that are released when the process ends, in any way.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use crate::GetError;

/// Time before the second try; doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Takes the lock at `path`, which is created if it does not exist. Returns `None` while it is held elsewhere.
pub(crate) fn attempt(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // Between opening and locking the file may have been removed, and another one created and locked at its path.
    let is_current =
        fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino()));
    Ok(is_current.then_some(file))
}

/// Waits for the lock at `path`.
pub(crate) async fn wait(path: &Path, cancel: &CancellationToken) -> Result<File, GetError> {
    let mut wait = FIRST_WAIT;
    loop {
        let attempt = attempt(path).map_err(|source| GetError::Write { path: path.to_owned(), source })?;
        if let Some(file) = attempt {
            return Ok(file);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(GetError::Cancelled),
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Whether the lock at `path` is held. Concurrent calls do not affect each other.
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}
