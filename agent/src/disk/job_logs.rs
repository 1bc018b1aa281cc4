//! Debug logs of jobs: what their programs wrote to standard error, one file for each attempt that wrote anything.
//!
//! A worker writes a log into its own scratch folder, and the agent moves it here: no worker can read, change or add logs here. Only the
//! newest are kept, so that they never fill the disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use island_protocol::ids::AttemptKey;
use island_runtimes_worker::{host::read_scratch, launch::log_file};
use tokio_util::sync::CancellationToken;

/// Logs that are kept.
const KEPT: usize = 500;
/// Maximum bytes of one: 64 KiB, the line that names how many are missing, and what the replacement of invalid bytes adds.
const MAX_BYTES: u64 = 256 << 10;
/// Time between two removals of old logs.
const EVERY: Duration = Duration::from_mins(1);

/// A folder of logs that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("list {dir}")]
pub struct ListError {
    /// The folder.
    pub dir: PathBuf,
    /// Why it cannot be read.
    #[source]
    pub source: io::Error,
}

/// Removes the oldest logs of `dir` until stopped.
pub async fn prune(dir: PathBuf, stop: CancellationToken) {
    loop {
        if let Err(error) = prune_once(&dir, KEPT) {
            tracing::warn!(dir = %dir.display(), %error, "old debug logs of jobs cannot be removed");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Logs in `dir`, newest first: name of the attempt, time of writing, path. Empty if the folder does not exist yet.
pub fn list(dir: &Path) -> io::Result<Vec<(String, SystemTime, PathBuf)>> {
    let mut logs = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(logs),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (path, is_file) = (entry.path(), entry.file_type()?.is_file());
        let Some(name) =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log")).filter(|_| is_file)
        else {
            continue;
        };
        logs.push((name.to_owned(), entry.metadata()?.modified()?, path));
    }
    logs.sort_by_key(|(_, written, _)| std::cmp::Reverse(*written));
    Ok(logs)
}

/// Moves the log of an attempt from a worker's scratch folder to `dir`, without characters that control a terminal.
pub fn collect(scratch: &Path, dir: &Path, key: AttemptKey) {
    let written = log_file(scratch, key);
    match read_scratch(&written, MAX_BYTES) {
        Ok(content) => {
            let text = printable(&String::from_utf8_lossy(&content));
            if let Err(error) = fs::write(log_file(dir, key), text) {
                tracing::warn!(%key, %error, "a job's debug log cannot be stored");
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => tracing::warn!(%key, %error, "a worker wrote no proper debug log"),
    }
    // A folder in its place stays until the worker ends.
    let _ = fs::remove_file(written);
}

/// Replaces characters that control a terminal, except line ends and tabs.
pub fn printable(text: &str) -> String {
    let kept =
        |letter: char| if letter.is_control() && !"\n\t".contains(letter) { '\u{fffd}' } else { letter };
    text.chars().map(kept).collect()
}

fn prune_once(dir: &Path, kept: usize) -> io::Result<()> {
    list(dir)?.into_iter().skip(kept).try_for_each(|(.., path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prune_keeps_the_newest_logs() {
        let dir = tempfile::tempdir().expect("a folder");
        for age in 0..10_u64 {
            let file = fs::File::create(dir.path().join(format!("run-{age}.log"))).expect("create a log");
            let written = SystemTime::now() - Duration::from_secs(age * 60);
            file.set_modified(written).expect("set its time");
        }
        fs::write(dir.path().join("other"), "").expect("write");
        prune_once(dir.path(), 3).expect("prune");
        let names: Vec<_> = list(dir.path()).expect("list").into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["run-0", "run-1", "run-2"]);
        assert!(dir.path().join("other").exists());
    }

    #[test]
    fn a_log_is_moved_from_its_worker_and_cannot_be_something_else() {
        let (scratch, dir) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let collect = |job| {
            let key = crate::testing::assignment(job, 1).key;
            collect(scratch.path(), dir.path(), key);
            fs::read_to_string(log_file(dir.path(), key)).ok()
        };
        let written = |job| log_file(scratch.path(), crate::testing::assignment(job, 1).key);
        assert_eq!(collect(1), None, "most programs write nothing");
        fs::write(written(1), "one\n\x1b]0;title\x07two").expect("write");
        assert_eq!(collect(1).as_deref(), Some("one\n\u{fffd}]0;title\u{fffd}two"));
        assert!(!written(1).exists());
        fs::write(dir.path().join("secret"), "secret").expect("write");
        std::os::unix::fs::symlink(dir.path().join("secret"), written(2)).expect("a link");
        assert_eq!(collect(2), None);
        fs::create_dir(written(3)).expect("a folder");
        assert_eq!(collect(3), None);
        fs::File::create(written(4)).expect("create").set_len(MAX_BYTES + 1).expect("its length");
        assert_eq!(collect(4), None);
    }

    #[test]
    fn a_folder_with_the_name_of_a_log_does_not_end_the_pruning() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("a.log")).expect("a folder");
        fs::write(dir.path().join("b.log"), "").expect("write");
        prune_once(dir.path(), 0).expect("prune");
        assert!(!dir.path().join("b.log").exists());
    }
}
