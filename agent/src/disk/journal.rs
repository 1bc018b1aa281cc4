//! The accepted attempts, written before they are confirmed to the coordinator: one small file per attempt, replaced atomically.
//!
//! A file that cannot be read affects only its attempt, never the start of the agent.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use fail::fail_point;
use island_protocol::{fabric::Assignment, ids::AttemptKey};
use serde::{Deserialize, Serialize};

/// Extension of a record that is being written.
const UNFINISHED: &str = "tmp";

/// An attempt, as the next start of the agent needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was accepted.
    pub assignment: Assignment,
    /// When it was accepted, in milliseconds since the boot: the wall-clock time may jump.
    pub accepted_ms: u64,
    /// The boot of the machine: after another one, no worker can still hold the attempt.
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
    /// Opens the journal in `folder`, which must exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Records an attempt.
    pub fn write(&self, record: &Record) -> Result<(), JournalError> {
        let path = self.path(record.assignment.key);
        let temporary = path.with_extension(UNFINISHED);
        // Not synced: after a power cut the attempt is lost with its worker, and the coordinator places it again.
        serde_json::to_vec(record)
            .map_err(io::Error::other)
            .and_then(|bytes| write(&temporary, &bytes))
            .and_then(|()| rename(&temporary, &path))
            .map_err(|source| {
                // An attempt that was not recorded is refused.
                let _ = fs::remove_file(&temporary);
                JournalError { path, source }
            })
    }

    /// Removes the record of an attempt.
    pub fn remove(&self, key: AttemptKey) {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a journal record");
            }
            _ => {}
        }
    }

    /// Returns all records; files that cannot be read are removed.
    pub fn read_all(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == UNFINISHED) {
                // The agent ended before it accepted the attempt.
                let _ = fs::remove_file(&path);
                continue;
            }
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
        fail_point!("journal.read", |_| Err(rustix::io::Errno::IO.into()));
        serde_json::from_slice(&fs::read(path)?).map_err(io::Error::from)
    }

    fn path(&self, key: AttemptKey) -> PathBuf {
        self.folder.join(format!("{}-{}-{}.json", key.job_id, key.attempt, key.epoch))
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fail_point!("journal.write", |_| Err(rustix::io::Errno::NOSPC.into()));
    fail_point!("journal.write_half", |_| {
        fs::write(path, &bytes[..bytes.len() / 2]).and(Err(rustix::io::Errno::NOSPC.into()))
    });
    fs::write(path, bytes)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fail_point!("journal.rename", |_| Err(rustix::io::Errno::IO.into()));
    fs::rename(from, to)
}

/// Identifies the current boot of the machine.
pub fn boot_id() -> String {
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.map(|id| id.trim().to_owned()).unwrap_or_default()
    });
    BOOT.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn records_are_read_back_and_invalid_files_removed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let journal = Journal::new(folder.path().to_owned());
        let record = Record { assignment: testing::assignment(1, 1), accepted_ms: 5, boot_id: boot_id() };
        journal.write(&record).expect("write");
        journal.write(&record).expect("write again");
        fs::write(folder.path().join("invalid.json"), "{\"assignment\": 3").expect("write an invalid file");
        assert_eq!(journal.read_all().expect("read"), std::slice::from_ref(&record));
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 1);
        let unfinished = journal.path(record.assignment.key).with_extension(UNFINISHED);
        fs::copy(journal.path(record.assignment.key), &unfinished).expect("copy");
        assert_eq!(
            journal.read_all().expect("read").len(),
            1,
            "a record that was being written was not accepted"
        );
        assert!(!unfinished.exists());
        journal.remove(record.assignment.key);
        journal.remove(record.assignment.key);
        assert!(journal.read_all().expect("read").is_empty());
    }
}
