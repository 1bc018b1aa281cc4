//! The folders of an agent, below its state folder.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::StartError;

/// Folders that only the agent reads and writes: they contain prompts, replies and sockets of the egress proxy.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) journal: PathBuf,
    pub(super) spool: PathBuf,
    pub(super) workers: PathBuf,
    pub(super) derived: PathBuf,
    pub(super) adopted: PathBuf,
    pub(super) job_logs: PathBuf,
    pub(super) egress: PathBuf,
}

impl Folders {
    /// Creates them, and the folder of the cache, which is not private.
    pub(super) fn create(state: &Path, cache: &Path) -> Result<Self, StartError> {
        let folders = ["journal", "spool", "w", "derived", "adopted", "job-logs", "egress"]
            .map(|name| state.join(name));
        for folder in folders.iter().map(PathBuf::as_path).chain([cache]) {
            fs::create_dir_all(folder)
                .map_err(|source| StartError::Folder { path: folder.to_owned(), source })?;
        }
        for folder in &folders {
            let private = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
            private.map_err(|source| StartError::Folder { path: folder.clone(), source })?;
        }
        let [journal, spool, workers, derived, adopted, job_logs, egress] = folders;
        Ok(Self { journal, spool, workers, derived, adopted, job_logs, egress })
    }
}
