//! Files whose hash is not the one that their Cargo states: downloading them again gives the same bytes. They are remembered, over restarts, and
//! not requested for pauses that grow.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use island_protocol::digest::Digest;
use serde::{Deserialize, Serialize};

/// The first pause; doubles each time that the file is as wrong as before.
const FIRST: Duration = Duration::from_mins(10);
/// The longest pause.
const LONGEST: Duration = Duration::from_hours(7 * 24);
/// Files that are remembered.
const MAX_FILES: usize = 1000;

/// A file that is not what its Cargo states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// The hash in the Cargo.
    pub expected: Digest,
    /// The hash of the file, or the one that its server states.
    pub found: Digest,
    times: u32,
    /// Until when it is not requested again, milliseconds of Unix time.
    pub until_ms: u64,
}

/// Such files, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Table(BTreeMap<String, Mismatch>);

impl Table {
    /// The entry of a file that is not to be requested now.
    fn refused(&self, url: &str, expected: Digest, now_ms: u64) -> Option<&Mismatch> {
        let known = self.0.get(url).filter(|known| known.expected == expected)?;
        // A pause that is longer than any was noted before a step of the clock.
        let longest_ms = now_ms.saturating_add(ms(LONGEST));
        (now_ms < known.until_ms && known.until_ms <= longest_ms).then_some(known)
    }

    fn note(&mut self, url: &str, expected: Digest, found: Digest, now_ms: u64) {
        let is_same = |known: &&Mismatch| (known.expected, known.found) == (expected, found);
        let times = self.0.get(url).filter(is_same).map_or(0, |known| known.times).saturating_add(1);
        if self.0.len() >= MAX_FILES {
            self.0.retain(|_, known| now_ms < known.until_ms);
        }
        if self.0.len() < MAX_FILES || self.0.contains_key(url) {
            let pause = FIRST.saturating_mul(1 << (times - 1).min(16)).min(LONGEST);
            let until_ms = now_ms.saturating_add(ms(pause));
            self.0.insert(url.to_owned(), Mismatch { expected, found, times, until_ms });
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The table, and its file.
#[derive(Debug)]
pub(crate) struct Mismatches {
    path: PathBuf,
    table: Mutex<Table>,
}

impl Mismatches {
    /// Reads the table from this file, if it exists.
    pub(crate) fn load(path: PathBuf) -> Self {
        let table = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { path, table: Mutex::new(table.unwrap_or_default()) }
    }

    /// The entry of a file that is not to be requested now.
    pub(crate) fn refused(&self, url: &str, expected: Digest) -> Option<Mismatch> {
        self.lock().refused(url, expected, now_ms()).cloned()
    }

    /// Notes the hash of a file that differs from the expected one.
    pub(crate) fn note(&self, url: &str, expected: Digest, found: Digest) {
        let mut table = self.lock();
        table.note(url, expected, found, now_ms());
        self.store(&table);
    }

    /// Forgets a file that was downloaded.
    pub(crate) fn forget(&self, url: &str) {
        let mut table = self.lock();
        if table.0.remove(url).is_some() {
            self.store(&table);
        }
    }

    /// The files that are not requested now, by address.
    pub(crate) fn list(&self) -> Vec<(String, Mismatch)> {
        let (table, now) = (self.lock(), now_ms());
        let waiting = table.0.iter().filter(|(url, known)| table.refused(url, known.expected, now).is_some());
        waiting.map(|(url, known)| (url.clone(), known.clone())).collect()
    }

    fn store(&self, table: &Table) {
        if let Err(error) = write(&self.path, table) {
            tracing::warn!(%error, "files with another hash cannot be noted, and are downloaded again after a restart");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(path: &Path, table: &Table) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(table).map_err(io::Error::other)?)?;
    fs::rename(temporary, path)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::digest_of;

    #[test]
    fn a_changed_file_of_its_cargo_is_requested() {
        let mut table = Table::default();
        let [old, new, found] = [b"old", b"new", b"got"].map(|bytes| digest_of(bytes));
        table.note("a", old, found, 0);
        assert!(table.refused("a", old, 1).is_some());
        assert!(table.refused("a", new, 1).is_none(), "the catalogue was corrected");
        assert!(table.refused("b", old, 1).is_none());
        assert!(table.refused("a", old, ms(FIRST)).is_none());
        table.note("a", old, found, ms(LONGEST) * 9);
        assert!(table.refused("a", old, 1).is_none(), "the clock was wrong then");
    }

    proptest! {
        /// However often jobs come, a file that stays wrong is downloaded a few times in the first day, then less than daily.
        #[test]
        fn a_wrong_file_is_downloaded_rarely(every_s in 1..600_u64, days in 1..60_u64) {
            let (mut table, mut downloads) = (Table::default(), 0);
            let [expected, found] = [b"a", b"b"].map(|bytes| digest_of(bytes));
            for now in (0..days * 86_400_000).step_by(usize::try_from(every_s * 1000).expect("small")) {
                if table.refused("a", expected, now).is_none() {
                    downloads += 1;
                    table.note("a", expected, found, now);
                }
            }
            prop_assert!(downloads <= 10 + days / 7, "{} downloads in {} days", downloads, days);
        }

        #[test]
        fn the_number_of_files_is_bounded(count in 0..3 * MAX_FILES) {
            let mut table = Table::default();
            for number in 0..count {
                table.note(&number.to_string(), digest_of(b"a"), digest_of(b"b"), 0);
            }
            prop_assert!(table.0.len() <= MAX_FILES);
        }
    }
}
