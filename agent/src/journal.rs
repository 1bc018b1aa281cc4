//! What runs here, written down before it is promised: one small file per attempt, replaced whole.
//!
//! A file that cannot be read costs its attempt alone, never the agent's start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use island_protocol::{fabric::Assignment, ids::AttemptKey, time::Timestamp};
use serde::{Deserialize, Serialize};

/// An attempt, as the next start of the agent must know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was promised.
    pub assignment: Assignment,
    /// When.
    pub accepted_at: Timestamp,
    /// The machine's boot: after another one, no worker can still hold the attempt.
    pub boot_id: String,
}

/// A journal that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("write journal {path}")]
pub struct JournalError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The folder of records.
#[derive(Debug, Clone)]
pub struct Journal {
    folder: PathBuf,
}

impl Journal {
    /// The journal in `folder`, which must exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Notes an attempt.
    pub fn write(&self, record: &Record) -> Result<(), JournalError> {
        let path = self.path(record.assignment.key);
        let temporary = path.with_extension("tmp");
        // Not synced: after a power cut the attempt is lost with its worker, and the coordinator places it again.
        serde_json::to_vec(record)
            .map_err(io::Error::other)
            .and_then(|bytes| fs::write(&temporary, bytes))
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|source| JournalError { path, source })
    }

    /// Forgets an attempt.
    pub fn remove(&self, key: AttemptKey) {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a journal record");
            }
            _ => {}
        }
    }

    /// Everything noted; what cannot be read is removed.
    pub fn read_all(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match Self::read(&path) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "dropping a journal record that cannot be read");
                    let _ = fs::remove_file(&path);
                }
            }
        }
        Ok(records)
    }

    fn read(path: &Path) -> io::Result<Record> {
        serde_json::from_slice(&fs::read(path)?).map_err(io::Error::from)
    }

    fn path(&self, key: AttemptKey) -> PathBuf {
        self.folder.join(format!("{}-{}-{}.json", key.job_id, key.attempt, key.epoch))
    }
}

/// Names the machine's current boot; the same text until the next one.
pub fn boot_id() -> String {
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        let told = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        told.map(|id| id.trim().to_owned()).unwrap_or_default()
    });
    BOOT.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn what_is_written_is_read_and_rubbish_is_dropped() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let journal = Journal::new(folder.path().to_owned());
        let record = Record {
            assignment: testing::assignment(1, 1),
            accepted_at: Timestamp::from_unix_ms(5),
            boot_id: boot_id(),
        };
        journal.write(&record).expect("write");
        journal.write(&record).expect("write again");
        fs::write(folder.path().join("rubbish.json"), "{\"assignment\": 3").expect("write rubbish");
        assert_eq!(journal.read_all().expect("read"), std::slice::from_ref(&record));
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 1);
        journal.remove(record.assignment.key);
        journal.remove(record.assignment.key);
        assert!(journal.read_all().expect("read").is_empty());
    }
}
