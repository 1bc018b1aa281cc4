//! Debug logs of jobs: what their programs wrote to standard error, one file for each run that wrote anything.
//!
//! Workers write them; the newest are kept, so that neither a talkative Cargo nor time fills the disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;

/// Logs that are kept; each is at most 64 KiB long.
const KEPT: usize = 500;
/// Time between two looks.
const EVERY: Duration = Duration::from_mins(1);

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

/// Logs in `dir`, newest first: name of the run, time of writing, path.
pub fn list(dir: &Path) -> io::Result<Vec<(String, SystemTime, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(dir)? {
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
    fn the_newest_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        for age in 0..10_u64 {
            let file = fs::File::create(dir.path().join(format!("run-{age}.log"))).expect("make a log");
            let written = SystemTime::now() - Duration::from_secs(age * 60);
            file.set_modified(written).expect("date it");
        }
        fs::write(dir.path().join("other"), "").expect("write");
        prune_once(dir.path(), 3).expect("prune");
        let names: Vec<_> = list(dir.path()).expect("list").into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["run-0", "run-1", "run-2"]);
        assert!(dir.path().join("other").exists());
    }
}
