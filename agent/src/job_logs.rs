//! Debug logs of jobs: what their programs wrote to standard error, one file for each attempt that wrote anything.
//!
//! Workers write them; only the newest are kept, so that they never fill the disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;

/// Logs that are kept; each is at most 64 KiB long.
const KEPT: usize = 500;
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
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log")) else {
            continue;
        };
        logs.push((name.to_owned(), fs::metadata(&path)?.modified()?, path));
    }
    logs.sort_by_key(|(_, written, _)| std::cmp::Reverse(*written));
    Ok(logs)
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
}
