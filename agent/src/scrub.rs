//! Hashes the files of the model cache again, slowly and while no job runs: disks return wrong bytes without an error, and memory of a machine that
//! lost its power may not have reached them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use island_cache::{Cache, Entry};
use island_daemon::{chain::Chain, files::write_atomic};
use island_protocol::{digest::Digest, time::Timestamp};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{clock, supervisor::Supervisor};

/// Time after which a file is hashed again.
const CYCLE: Duration = Duration::from_hours(24 * 30);
/// Time between two searches for a file that is due.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Pause after each megabyte: at most 64 MB are read in a second.
const PAUSE: Duration = Duration::from_micros(15_625);
/// Time between two looks whether the machine is idle.
const IDLE_EVERY: Duration = Duration::from_millis(200);
/// The state, in the state folder.
const FILE: &str = "checked.json";
/// Exists while an agent runs, in the state folder.
const RUNNING: &str = "running";

/// When files were hashed, in milliseconds of Unix time; 0 for those that may have changed since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checked(BTreeMap<Digest, i64>);

impl Checked {
    /// The file to hash now, if one is due: the one whose last check is the oldest. Files that are new count as hashed now, because they were
    /// when they were downloaded; those that are gone are forgotten.
    pub fn next_due(&mut self, files: &[Digest], now: Timestamp) -> Option<Digest> {
        let now = now.unix_ms();
        self.0.retain(|digest, _| files.contains(digest));
        for digest in files {
            self.0.entry(*digest).or_insert(now);
        }
        let cycle = i64::try_from(CYCLE.as_millis()).unwrap_or(i64::MAX);
        let (digest, checked) = self.0.iter().min_by_key(|(_, checked)| **checked)?;
        (*checked == 0 || now.saturating_sub(*checked) >= cycle).then_some(*digest)
    }

    /// Notes that a file was hashed.
    pub fn note(&mut self, digest: Digest, now: Timestamp) {
        self.0.insert(digest, now.unix_ms());
    }

    /// Notes that the last agent, or the machine, did not stop in order: all of these files are due.
    pub fn note_unclean(&mut self, files: &[Digest]) {
        self.0.extend(files.iter().map(|digest| (*digest, 0)));
    }
}

/// The task that hashes, and its state on disk.
#[derive(Debug)]
pub struct Scrub {
    cache: Cache,
    supervisor: Arc<Supervisor>,
    state: PathBuf,
}

impl Scrub {
    /// Hashes the files of `cache` while `supervisor` has no jobs; its state is in the folder `state`.
    pub fn new(cache: Cache, supervisor: Arc<Supervisor>, state: PathBuf) -> Self {
        Self { cache, supervisor, state }
    }

    /// Hashes what is due until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        let mut checked = load(&self.state);
        if begin(&self.state) {
            tracing::warn!(
                "the agent or the machine did not stop in order: the files of models are hashed again"
            );
            checked.note_unclean(&self.digests());
            self.store(&checked);
        }
        loop {
            let due = self.due(&mut checked);
            let pause = if due.is_some() { Duration::ZERO } else { LOOK_EVERY };
            if let Some(entry) = due {
                self.check(&entry, &stop).await;
                if stop.is_cancelled() {
                    break;
                }
                checked.note(entry.digest, clock::now());
            }
            self.store(&checked);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        end(&self.state);
    }

    fn due(&self, checked: &mut Checked) -> Option<Entry> {
        let due = checked.next_due(&self.digests(), clock::now())?;
        self.cache.list().into_iter().find(|entry| entry.digest == due)
    }

    fn digests(&self) -> Vec<Digest> {
        self.cache.list().into_iter().map(|entry| entry.digest).collect()
    }

    async fn check(&self, entry: &Entry, stop: &CancellationToken) {
        let (supervisor, stop) = (Arc::clone(&self.supervisor), stop.clone());
        // In a thread that may block.
        let slowly = move |_| {
            while !supervisor.is_idle() && !stop.is_cancelled() {
                std::thread::sleep(IDLE_EVERY);
            }
            std::thread::sleep(PAUSE);
            !stop.is_cancelled()
        };
        match self.cache.is_intact(entry, slowly).await {
            Ok(true) => {}
            Ok(false) => tracing::error!(
                url = entry.url, path = %entry.path.display(),
                "a file of a model is damaged on this machine's disk, and is downloaded again when a job needs it"
            ),
            Err(error) => tracing::warn!(error = %Chain(&error), "a file of a model cannot be hashed again"),
        }
    }

    fn store(&self, checked: &Checked) {
        let bytes = serde_json::to_vec(checked).unwrap_or_default();
        if let Err(error) = write_atomic(&self.state.join(FILE), &bytes, 0o600) {
            tracing::warn!(%error, "the times at which files were hashed cannot be stored");
        }
    }
}

/// Marks that an agent runs; returns whether the last one did not remove the mark.
fn begin(state: &Path) -> bool {
    let mark = state.join(RUNNING);
    let was_there = mark.exists();
    if let Err(error) = fs::write(&mark, "An agent runs, or did not stop in order.\n") {
        tracing::warn!(%error, "an end out of order will not be noticed");
    }
    was_there
}

fn end(state: &Path) {
    let _ = fs::remove_file(state.join(RUNNING));
}

fn load(state: &Path) -> Checked {
    fs::read(state.join(FILE)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;

    fn digest(number: u8) -> Digest {
        island_cache::digest_of(&[number])
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn files_are_due_after_a_cycle_the_oldest_first() {
        let mut checked = Checked::default();
        assert_eq!(checked.next_due(&[digest(1)], at(1)), None, "it was hashed when it was downloaded");
        assert_eq!(checked.next_due(&[digest(1), digest(2)], at(DAY)), None);
        assert_eq!(checked.next_due(&[digest(1), digest(2)], at(40 * DAY)), Some(digest(1)));
        checked.note(digest(1), at(40 * DAY));
        assert_eq!(checked.next_due(&[digest(1), digest(2)], at(40 * DAY)), Some(digest(2)));
        assert_eq!(checked.next_due(&[digest(1)], at(40 * DAY)), None, "the other one is gone");
    }

    #[test]
    fn a_mark_shows_an_end_out_of_order() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!begin(folder.path()), "the first start");
        assert!(begin(folder.path()), "nothing removed the mark");
        end(folder.path());
        assert!(!begin(folder.path()));
    }

    proptest! {
        /// After an end out of order each file that was there is hashed once, and then none until a cycle is over.
        #[test]
        fn all_files_are_due_after_an_unclean_end(count in 1..20_u8, later in 0..20_u8) {
            let mut checked = Checked::default();
            let files: Vec<Digest> = (0..count).map(digest).collect();
            checked.next_due(&files, at(1));
            let text = serde_json::to_vec(&checked).expect("valid");
            let mut checked: Checked = serde_json::from_slice(&text).expect("as it was stored");
            checked.note_unclean(&files);
            let all: Vec<Digest> = (0..count + later).map(digest).collect();
            let mut hashed = Vec::new();
            while let Some(due) = checked.next_due(&all, at(DAY)) {
                checked.note(due, at(DAY));
                hashed.push(due);
            }
            hashed.sort();
            let mut files = files;
            files.sort();
            prop_assert_eq!(hashed, files);
        }
    }
}
