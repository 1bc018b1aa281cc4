//! Chooses what is removed so that a file fits: the least recently used first.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::SystemTime,
};

use island_protocol::digest::Digest;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// What may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Removable {
    /// A verified file.
    Blob(Digest),
    /// A partial file that is not being downloaded, without its extension.
    Partial(PathBuf),
    /// A file of a folder beside the cache. Processes that have opened it keep it.
    Beside(PathBuf),
}

/// Something that may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) what: Removable,
    pub(crate) size: u64,
    pub(crate) used: SystemTime,
}

/// What is used, and the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stock {
    /// Bytes of verified files, of partial files, of the folders beside the cache and of reservations: files that are being downloaded count
    /// with their final length.
    pub(crate) held: u64,
    /// Bytes of `held` that are not on the disk yet.
    pub(crate) unwritten: u64,
    /// Bytes free on the disk; `None` if unknown.
    pub(crate) free: Option<u64>,
    /// Maximum of `held`, bytes.
    pub(crate) max_bytes: u64,
    /// Bytes of the disk that stay free.
    pub(crate) min_free_bytes: u64,
}

impl Stock {
    /// Bytes to remove so that `size` more fit, of which `written` are already on the disk and not in `held`.
    pub(crate) fn shortfall(&self, size: u64, written: u64) -> u64 {
        let over_the_cap = self.held.saturating_add(size).saturating_sub(self.max_bytes);
        let due = self.unwritten.saturating_add(size.saturating_sub(written));
        let due = due.saturating_add(self.min_free_bytes);
        let beyond_the_disk = self.free.map_or(0, |free| due.saturating_sub(free));
        over_the_cap.max(beyond_the_disk)
    }

    /// Bytes that fit without removing anything.
    pub(crate) fn spare(&self) -> u64 {
        self.spare_without(0)
    }

    /// Bytes that fit if `removable` bytes are removed.
    pub(crate) fn spare_without(&self, removable: u64) -> u64 {
        let under_the_cap = self.max_bytes.saturating_sub(self.held.saturating_sub(removable));
        let kept = self.unwritten.saturating_add(self.min_free_bytes);
        let free = self.free.map_or(u64::MAX, |free| free.saturating_add(removable).saturating_sub(kept));
        under_the_cap.min(free)
    }
}

/// Returns the order in which `candidates` are removed; `None` if all of them together do not suffice, so that nothing is removed without need.
pub(crate) fn plan(mut candidates: Vec<Candidate>, shortfall: u64) -> Option<Vec<Candidate>> {
    let removable = candidates.iter().fold(0_u64, |sum, candidate| sum.saturating_add(candidate.size));
    candidates.sort_by_key(|candidate| candidate.used);
    (removable >= shortfall).then_some(candidates)
}

/// Whether a file is pinned, by this process or another one. A pin that is taken meanwhile waits until this returns.
pub(crate) fn is_pinned(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let is_locked = |operation| flock(&file, operation) == Err(Errno::WOULDBLOCK);
    // Another test or removal of the file holds the exclusive lock for a moment, and beside that lock there is no pin.
    is_locked(FlockOperation::NonBlockingLockExclusive)
        && !is_locked(FlockOperation::NonBlockingLockShared)
        && is_locked(FlockOperation::NonBlockingLockExclusive)
}

/// Removes a file unless it is pinned.
pub(crate) fn remove_unpinned(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // A pin is a shared lock: while this process holds the exclusive lock there is no pin, and a later one finds no file.
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && fs::remove_file(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn stock() -> impl Strategy<Value = Stock> {
        let free = prop::option::of(0_u64..5000);
        (0_u64..3000, 0_u64..2000, free, 0_u64..5000, 0_u64..1000).prop_map(
            |(held, unwritten, free, max_bytes, min_free_bytes)| Stock {
                held,
                unwritten: unwritten.min(held),
                free,
                max_bytes,
                min_free_bytes,
            },
        )
    }

    /// The state after reserving `size`.
    fn with(stock: Stock, size: u64) -> Stock {
        Stock { held: stock.held + size, unwritten: stock.unwritten + size, ..stock }
    }

    #[test]
    fn a_file_that_is_tested_meanwhile_is_not_pinned() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("blob");
        fs::write(&path, "a model").expect("write");
        assert!(!is_pinned(&path));
        let other = File::open(&path).expect("open");
        flock(&other, FlockOperation::NonBlockingLockExclusive).expect("the lock of a test");
        assert!(!is_pinned(&path), "the lock of another test counts as a pin");
        flock(&other, FlockOperation::NonBlockingLockShared).expect("a pin");
        assert!(is_pinned(&path));
        drop(other);
        assert!(!is_pinned(&path));
    }

    proptest! {
        #[test]
        fn the_plan_is_in_order_and_suffices(
            sizes in prop::collection::vec((0_u64..1000, 0_u64..1000), 0..20),
            shortfall in 0_u64..12_000,
        ) {
            let candidate = |(number, &(size, age)): (usize, &(u64, u64))| Candidate {
                what: Removable::Partial(number.to_string().into()),
                size,
                used: SystemTime::UNIX_EPOCH + Duration::from_secs(age),
            };
            let all: u64 = sizes.iter().map(|(size, _)| size).sum();
            match plan(sizes.iter().enumerate().map(candidate).collect(), shortfall) {
                Some(order) => {
                    prop_assert!(order.is_sorted_by_key(|candidate| candidate.used));
                    prop_assert_eq!(order.len(), sizes.len());
                    prop_assert!(all >= shortfall);
                }
                None => prop_assert!(all < shortfall),
            }
        }

        #[test]
        fn a_file_fits_if_it_is_at_most_the_spare_bytes(stock in stock(), size in 1_u64..6000) {
            prop_assert_eq!(stock.shortfall(size, 0) == 0, size <= stock.spare());
        }

        /// What fits after removals is what has no shortfall after them.
        #[test]
        fn a_file_fits_after_removals_if_it_is_at_most_the_spare_bytes(
            stock in stock(), removable in 0_u64..3000, size in 1_u64..6000
        ) {
            let removable = removable.min(stock.held - stock.unwritten);
            let free = stock.free.map(|free| free + removable);
            let after = Stock { held: stock.held - removable, free, ..stock };
            prop_assert_eq!(after.shortfall(size, 0) == 0, size <= stock.spare_without(removable));
        }

        /// All files that are accepted one after the other fit together.
        #[test]
        fn reservations_never_exceed_the_space(
            stock in stock(),
            sizes in prop::collection::vec(1_u64..2000, 1..10),
        ) {
            let mut now = stock;
            for size in sizes {
                if now.shortfall(size, 0) == 0 {
                    now = with(now, size);
                }
            }
            if now != stock {
                prop_assert!(now.held <= now.max_bytes);
                let free = now.free.unwrap_or(u64::MAX);
                prop_assert!(now.unwritten + now.min_free_bytes <= free);
            }
        }

        /// Bytes of the same file that are already on the disk need no space on it, but count as held.
        #[test]
        fn a_resumed_file_needs_the_rest_of_it(stock in stock(), size in 0_u64..3000, written in 0_u64..4000) {
            let rest = size.saturating_sub(written);
            let shortfall = stock.shortfall(size, written);
            prop_assert!(shortfall <= stock.shortfall(size, 0));
            prop_assert!(shortfall >= stock.shortfall(rest, 0));
        }

        /// Removing the missing bytes suffices.
        #[test]
        fn the_shortfall_is_enough(stock in stock(), size in 0_u64..3000) {
            let shortfall = stock.shortfall(size, 0);
            prop_assume!(shortfall <= stock.held - stock.unwritten);
            let free = stock.free.map(|free| free + shortfall);
            let after = Stock { held: stock.held - shortfall, free, ..stock };
            prop_assert_eq!(after.shortfall(size, 0), 0);
        }
    }
}
