//! Islands that report that a file of a Cargo has another hash than its entry states, pure.

use std::{collections::HashMap, time::Duration};

use island_protocol::ids::{AccountId, Slug};
use tokio::time::Instant;

/// Owners whose Islands must report a file: one owner cannot pause a Cargo.
const OWNERS: usize = 3;
/// How long a report counts.
const LIFE: Duration = Duration::from_hours(6);
/// Cargos with reports; others are not recorded before these expire.
const MAX_CARGOS: usize = 1_000;

/// The reports, by Cargo and owner.
#[derive(Debug, Default)]
pub(super) struct FileReports(HashMap<Slug, HashMap<AccountId, Instant>>);

impl FileReports {
    /// Records a report of an owner's Island. Returns `true`, and forgets the reports, if they suffice to pause the Cargo.
    pub(super) fn add(&mut self, cargo: &Slug, owner: AccountId, now: Instant) -> bool {
        self.0.retain(|_, reports| {
            reports.retain(|_, at| now.saturating_duration_since(*at) < LIFE);
            !reports.is_empty()
        });
        if self.0.len() >= MAX_CARGOS && !self.0.contains_key(cargo) {
            return false;
        }
        let reports = self.0.entry(cargo.clone()).or_default();
        reports.insert(owner, now);
        let is_enough = reports.len() >= OWNERS;
        if is_enough {
            self.0.remove(cargo);
        }
        is_enough
    }

    /// Forgets the reports of a Cargo: an Island completed a job with its files.
    pub(super) fn clear(&mut self, cargo: &Slug) {
        self.0.remove(cargo);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn reports_of_three_owners_pause_a_cargo() {
        let (mut reports, now) = (FileReports::default(), Instant::now());
        let (slug, other): (Slug, Slug) = ("a".parse().expect("slug"), "b".parse().expect("slug"));
        let mut add = |slug: &Slug, owner, hours| {
            reports.add(slug, AccountId(Uuid::from_u128(owner)), now + Duration::from_hours(hours))
        };
        assert!(!add(&slug, 1, 0) && !add(&slug, 1, 0) && !add(&slug, 2, 0) && !add(&other, 3, 0));
        assert!(!add(&slug, 3, 6), "the first ones have expired");
        assert!(!add(&slug, 1, 7) && add(&slug, 2, 7));
        assert!(!add(&slug, 3, 7), "they count once");
        reports.clear(&slug);
        assert!(reports.0.is_empty());
    }
}
