//! The lock of the embedded database: one coordinator uses it, because each takes the jobs of every other one over.
//! Backups, checks and the management of accounts do not need it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use island_coordinator_domain::config::Database;

/// A database that cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another coordinator uses it.
    #[error("another coordinator uses the database {0}; several coordinators share one PostgreSQL database")]
    Held(PathBuf),
    /// The file of the lock cannot be used.
    #[error("lock {path}")]
    Lock {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A locked database. Unlocked on drop, and by the kernel when the process ends.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "holds the lock")] File);

impl FileLock {
    /// Locks the embedded database. Returns `None` for PostgreSQL, which coordinators share.
    pub fn acquire(settings: &Database) -> Result<Option<Self>, LockError> {
        if settings.url.is_some() {
            return Ok(None);
        }
        let path = beside(&settings.path);
        let failed = |source| LockError::Lock { path: path.clone(), source };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Err(LockError::Held(settings.path.clone())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// A file of its own: SQLite locks ranges of the database, and a file that is replaced takes its lock with it.
fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-lock");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_locked_once_and_a_server_never() {
        let folder = tempfile::tempdir().expect("folder");
        let settings = Database { path: folder.path().join("island.db"), ..Database::default() };
        let lock = FileLock::acquire(&settings).expect("locked");
        assert!(lock.is_some());
        assert!(matches!(FileLock::acquire(&settings), Err(LockError::Held(_))));
        drop(lock);
        assert!(FileLock::acquire(&settings).expect("free again").is_some());
        let shared = Database { url: Some("postgres://h/d".parse().expect("a URL")), ..settings };
        assert!(FileLock::acquire(&shared).expect("shared").is_none());
    }
}
