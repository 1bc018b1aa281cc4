//! What this Island earned, day by day, as the coordinator reported it when it committed the end of a job. A copy for the owner; the
//! coordinator's ledger decides.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use island_daemon::files::write_atomic;
use island_protocol::{credits::MicroCredits, time::Timestamp};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::clock;

const FILE: &str = "earnings.json";
/// Days that are kept separately.
const DAYS: usize = 90;

/// Jobs and credits of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Jobs whose end was committed, completed or not.
    pub jobs: u64,
    /// Jobs that were paid.
    pub paid: u64,
    /// Credits.
    pub credits: MicroCredits,
}

impl Share {
    fn add(&mut self, earned: MicroCredits) {
        self.jobs += 1;
        self.paid += u64::from(earned > MicroCredits::ZERO);
        self.credits = MicroCredits(self.credits.0.saturating_add(earned.0));
    }
}

/// All earnings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    /// Of all days.
    pub total: Share,
    /// By day in the owner's time zone, `2026-11-22`.
    pub days: BTreeMap<String, Share>,
    /// When the end of the last job was committed.
    #[serde(default)]
    pub last: Option<Timestamp>,
    /// Completed jobs by the device that ran them, such as `vulkan: NAME`.
    #[serde(default)]
    pub devices: BTreeMap<String, u64>,
}

impl Book {
    fn add(&mut self, day: &str, now: Timestamp, earned: MicroCredits, device: Option<&str>) {
        self.last = Some(now);
        if let Some(device) = device {
            *self.devices.entry(device.to_owned()).or_default() += 1;
        }
        self.total.add(earned);
        self.days.entry(day.to_owned()).or_default().add(earned);
        while self.days.len() > DAYS {
            self.days.pop_first();
        }
    }
}

/// The earnings, kept on disk.
#[derive(Debug)]
pub struct Earnings {
    file: PathBuf,
    book: Mutex<Book>,
}

impl Earnings {
    /// Loads the earnings from the folder `state`. A file that cannot be read is replaced: the coordinator's ledger decides.
    pub fn load(state: &Path) -> Self {
        let file = state.join(FILE);
        let read = fs::read(&file).and_then(|text| serde_json::from_slice(&text).map_err(io::Error::other));
        let book = read.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(path = %file.display(), %error, "the earnings cannot be read and start at zero");
            }
            Book::default()
        });
        Self { file, book: Mutex::new(book) }
    }

    /// Records the end of a job, and the device that ran it if it completed.
    pub fn add(&self, earned: MicroCredits, device: Option<&str>) {
        let mut book = self.lock();
        book.add(&today(), clock::now(), earned, device);
        let kept = serde_json::to_vec(&*book).map_err(io::Error::other);
        if let Err(error) = kept.and_then(|text| write_atomic(&self.file, &text, 0o600)) {
            tracing::warn!(path = %self.file.display(), %error, "the earnings cannot be stored");
        }
    }

    /// Returns a copy of all earnings.
    pub fn book(&self) -> Book {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }
}

/// The date in the time zone of this machine.
pub fn today() -> String {
    jiff::Zoned::now().date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_summed_and_survive_a_restart() {
        let state = tempfile::tempdir().expect("a folder");
        let earnings = Earnings::load(state.path());
        for credits in [1000, 0, 2500] {
            earnings.add(MicroCredits(credits), (credits > 0).then_some("cpu"));
        }
        let book = Earnings::load(state.path()).book();
        assert_eq!(book.total, Share { jobs: 3, paid: 2, credits: MicroCredits(3500) });
        assert_eq!(book.days[&today()], book.total);
        assert_eq!(book.devices, [("cpu".to_owned(), 2)].into());
        assert!(book.last.is_some(), "the time of the last job");
    }

    #[test]
    fn old_days_remain_in_the_total() {
        let mut book = Book::default();
        for day in 0..200 {
            book.add(&format!("2026-{day:04}"), Timestamp::from_unix_ms(day), MicroCredits(1), None);
        }
        assert_eq!((book.days.len(), book.total.jobs), (DAYS, 200));
    }

    #[test]
    fn an_invalid_file_is_replaced() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE), "nonsense").expect("write");
        assert_eq!(Earnings::load(state.path()).book(), Book::default());
    }
}
