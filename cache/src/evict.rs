//! Which files go when room is needed: the least recently used first.

use std::{
    fs::{self, File},
    path::Path,
    time::SystemTime,
};

use island_protocol::digest::Digest;
use rustix::fs::{FlockOperation, flock};

/// A file that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) used: SystemTime,
}

/// The order in which files would go, and how many bytes have to. Pure.
pub(crate) fn plan(mut files: Vec<Candidate>, incoming: u64, max_bytes: u64) -> (Vec<Candidate>, u64) {
    let held: u64 = files.iter().map(|file| file.size).sum();
    files.sort_by_key(|file| file.used);
    (files, held.saturating_add(incoming).saturating_sub(max_bytes))
}

/// Removes a file unless somebody has it pinned.
pub(crate) fn remove_unpinned(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // Whoever pins holds a shared lock; with the exclusive one in hand nobody does, and who comes later finds no file.
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && fs::remove_file(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn the_plan_is_enough_and_in_order(
            sizes in prop::collection::vec((0_u64..1000, 0_u64..1000), 0..20),
            incoming in 0_u64..3000,
            max in 0_u64..5000,
        ) {
            let file = |&(size, age): &(u64, u64)| Candidate {
                digest: Digest::from_bytes([0; 32]),
                size,
                used: SystemTime::UNIX_EPOCH + Duration::from_secs(age),
            };
            let held: u64 = sizes.iter().map(|(size, _)| size).sum();
            let (order, excess) = plan(sizes.iter().map(file).collect(), incoming, max);
            prop_assert!(order.is_sorted_by_key(|file| file.used));
            prop_assert_eq!(order.len(), sizes.len());
            prop_assert!(held + incoming <= max + excess);
            prop_assert!(excess == 0 || held + incoming == max + excess);
        }
    }
}
