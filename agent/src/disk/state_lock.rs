//! The lock of a state folder: one agent runs on it, and its process id can be read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

const FILE: &str = "lock";

/// A state folder that cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent runs on it.
    #[error("another agent{} runs on {state}", pid.map_or_else(String::new, |pid| format!(" (process {pid})")))]
    Held {
        /// The folder.
        state: PathBuf,
        /// Process id of that agent, if it wrote one.
        pid: Option<u32>,
    },
    /// The file of the lock cannot be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        #[source]
        source: io::Error,
    },
}

/// A locked state folder; unlocked on drop, and by the kernel when the process ends.
#[derive(Debug)]
pub struct StateLock(#[expect(dead_code, reason = "holds the lock")] File);

impl StateLock {
    /// Locks `state`, and writes the id of this process into the file of the lock.
    pub fn acquire(state: &Path) -> Result<Self, LockError> {
        let path = state.join(FILE);
        let failed = |source| LockError::Write { path: path.clone(), source };
        // Not truncated before it is locked: it contains the process id of the agent that holds it.
        let options = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let mut file = options.map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
                return Err(LockError::Held { state: state.to_owned(), pid });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failed)?;
        Ok(Self(file))
    }

    /// Whether an agent runs on `state`; `false` if that cannot be determined.
    pub fn is_held(state: &Path) -> bool {
        let Ok(file) = File::open(state.join(FILE)) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_with_the_process_id_of_the_first() {
        let state = tempfile::tempdir().expect("temporary folder");
        assert!(!StateLock::is_held(state.path()), "never locked");
        // What an agent that ended left behind.
        fs::write(state.path().join(FILE), "4294967\n").expect("write");
        let first = StateLock::acquire(state.path()).expect("free");
        assert!(StateLock::is_held(state.path()));
        let error = StateLock::acquire(state.path()).expect_err("locked");
        let text =
            format!("another agent (process {}) runs on {}", std::process::id(), state.path().display());
        assert_eq!(error.to_string(), text);
        drop(first);
        assert!(!StateLock::is_held(state.path()));
        StateLock::acquire(state.path()).expect("free again");
    }
}
