//! Chooses the workers to stop when they use more memory of a GPU than jobs may have. Pure.
//!
//! Admission uses the requirements of Cargos; this uses what the driver measures.

use std::cmp::Reverse;

/// A worker and the GPU memory that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VramUser<K> {
    /// Its identifier.
    pub id: K,
    /// Running and queued jobs.
    pub jobs: u32,
    /// GPU memory, megabytes: measured, or all that was granted where nothing measures it.
    pub used_mb: u64,
    /// Requirement of its Cargo, megabytes.
    pub required_mb: u64,
}

impl<K> VramUser<K> {
    fn beyond_mb(&self) -> u64 {
        self.used_mb.saturating_sub(self.required_mb)
    }
}

/// Returns the workers to stop so that the others use at most `most_mb`: idle ones first, then the one that exceeds its requirement by the
/// largest amount.
pub fn choose<K: Copy>(users: &[VramUser<K>], most_mb: u64) -> Vec<K> {
    let used: u64 = users.iter().map(|user| user.used_mb).sum();
    let mut over = used.saturating_sub(most_mb);
    let mut order: Vec<&VramUser<K>> = users.iter().filter(|user| user.used_mb > 0).collect();
    order.sort_by_key(|user| (user.jobs > 0, Reverse(user.beyond_mb()), Reverse(user.used_mb)));
    let mut chosen = Vec::new();
    for user in order {
        if over == 0 {
            break;
        }
        over = over.saturating_sub(user.used_mb);
        chosen.push(user.id);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(id: usize, jobs: u32, used_mb: u64, required_mb: u64) -> VramUser<usize> {
        VramUser { id, jobs, used_mb, required_mb }
    }

    #[test]
    fn workers_within_their_requirement_are_kept() {
        let within = [user(0, 1, 4000, 4000), user(1, 1, 3000, 1000)];
        assert!(choose(&within, 7000).is_empty(), "together they are within the limit");
        assert_eq!(choose(&within, 6999), [1]);
        let idle = [user(0, 1, 4000, 1000), user(1, 0, 3000, 3000)];
        assert_eq!(choose(&idle, 6000), [1], "idle workers are stopped first");
        assert_eq!(choose(&idle, 3000), [1, 0]);
    }

    proptest! {
        #[test]
        fn the_remaining_workers_are_within_the_limit(
            users in prop::collection::vec((0_u32..3, 0_u64..5000, 0_u64..5000), 0..8),
            most in 0_u64..12_000,
        ) {
            let users: Vec<_> = users
                .into_iter()
                .enumerate()
                .map(|(id, (jobs, used, required))| user(id, jobs, used, required))
                .collect();
            let chosen = choose(&users, most);
            let left = |without: &[usize]| -> u64 {
                users.iter().filter(|user| !without.contains(&user.id)).map(|user| user.used_mb).sum()
            };
            prop_assert!(left(&chosen) <= most);
            if let Some((_, before)) = chosen.split_last() {
                prop_assert!(left(before) > most, "every stopped worker was needed");
            }
            if chosen.iter().any(|&id| users[id].jobs > 0) {
                let idle_left = users.iter().any(|user| user.jobs == 0 && user.used_mb > 0 && !chosen.contains(&user.id));
                prop_assert!(!idle_left);
            }
        }
    }
}
