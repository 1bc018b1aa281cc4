//! How an Island has treated attempts, pure: how it ranks.
//!
//! A circuit breaker for each Cargo opens after three failures in a row, so that an Island which fails in milliseconds,
//! and is therefore always free, does not get every job. While it is open, the Island gets a job only if no other one
//! can take it: a network in which everything fails must not stop trying. Refusals count as failures if the Island had
//! reported that it takes such jobs. Failures of one Cargo do not count for others: its files may be at fault. An Island that does not reply to offers comes last for every Cargo.

use std::{collections::BTreeMap, time::Duration};

use island_protocol::ids::Slug;
use tokio::time::Instant;

/// Failures in a row after which a breaker opens.
const MAX_FAILURES: u32 = 3;
/// Time for which a breaker is open, doubled each time that the next attempt fails, too.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_mins(10);
/// Time in which what was counted loses half of its weight.
const HALF_LIFE: Duration = Duration::from_mins(10);
/// Cargos with a breaker; the one with the oldest failure is forgotten for a new one.
const MAX_CARGOS: usize = 64;

/// How an Island treated an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conduct {
    /// It completed the attempt.
    Completed,
    /// It did not reply to the offer.
    Silent,
    /// It refused the offer for lack of capacity, and has not reported any since an earlier such refusal.
    Full,
    /// It refused the offer by its rules or its abilities, or for lack of capacity that it reports.
    Refused,
    /// It failed the attempt, or was lost.
    Failed,
}

/// Opens after failures in a row, and closes when one attempt succeeds after its pause.
#[derive(Debug, Clone, Copy)]
struct Breaker {
    failures: u32,
    last: Instant,
}

impl Breaker {
    fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last = now;
    }

    fn is_open(&self, now: Instant) -> bool {
        let Some(trips) = self.failures.checked_sub(MAX_FAILURES) else { return false };
        let pause = FIRST_PAUSE.saturating_mul(1 << trips.min(10)).min(MAX_PAUSE);
        now.saturating_duration_since(self.last) < pause
    }
}

/// Counts that lose their weight with time.
#[derive(Debug, Clone, Copy)]
struct Decayed {
    good: f64,
    bad: f64,
    at: Instant,
}

impl Decayed {
    fn at(self, now: Instant) -> Self {
        let halvings = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let weight = 0.5_f64.powf(halvings);
        Self { good: self.good * weight, bad: self.bad * weight, at: now }
    }
}

/// The conduct of one Island.
#[derive(Debug, Clone, Default)]
pub(super) struct Health {
    silent: Option<Breaker>,
    cargos: BTreeMap<Slug, Breaker>,
    counts: Option<Decayed>,
}

impl Health {
    /// Counts how the Island treated an attempt of a Cargo.
    pub(super) fn observe(&mut self, cargo: &Slug, conduct: Conduct, now: Instant) {
        let mut counts = self.counts.unwrap_or(Decayed { good: 0.0, bad: 0.0, at: now }).at(now);
        match conduct {
            Conduct::Completed => {
                counts.good += 1.0;
                self.silent = None;
                self.cargos.remove(cargo);
            }
            Conduct::Silent => {
                counts.bad += 1.0;
                self.silent.get_or_insert(Breaker { failures: 0, last: now }).fail(now);
            }
            Conduct::Failed => {
                counts.bad += 1.0;
                // It replied to the offer.
                self.silent = None;
                self.fail(cargo, now);
            }
            // Placement should have known. Other Cargos may be welcome.
            Conduct::Refused => {
                self.silent = None;
                self.fail(cargo, now);
            }
            // The job remembers who refused it; a full Island is not unreliable.
            Conduct::Full => self.silent = None,
        }
        self.counts = Some(counts);
    }

    /// Counts a failure of a Cargo.
    fn fail(&mut self, cargo: &Slug, now: Instant) {
        self.make_place(cargo);
        self.cargos.entry(cargo.clone()).or_insert(Breaker { failures: 0, last: now }).fail(now);
    }

    fn make_place(&mut self, cargo: &Slug) {
        if self.cargos.len() < MAX_CARGOS || self.cargos.contains_key(cargo) {
            return;
        }
        let oldest = self.cargos.iter().min_by_key(|(_, breaker)| breaker.last).map(|(slug, _)| slug.clone());
        if let Some(oldest) = oldest {
            self.cargos.remove(&oldest);
        }
    }

    /// Whether a breaker of a Cargo is open; without a Cargo, one that holds for all.
    pub(super) fn is_failing(&self, cargo: Option<&Slug>, now: Instant) -> bool {
        let of_cargo = cargo.and_then(|cargo| self.cargos.get(cargo));
        self.silent.iter().chain(of_cargo).any(|breaker| breaker.is_open(now))
    }

    /// How often attempts fail: 0 seldom or not known, 1 often, 2 mostly.
    pub(super) fn unreliability(&self, now: Instant) -> u8 {
        let Some(counts) = self.counts.map(|counts| counts.at(now)) else { return 0 };
        // Without further observations an Island counts as good.
        let share = counts.bad / (counts.good + counts.bad + 2.0);
        match share {
            share if share < 0.2 => 0,
            share if share < 0.5 => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slug(name: &str) -> Slug {
        name.parse().expect("slug")
    }

    proptest! {
        #[test]
        fn an_island_that_always_fails_gets_few_jobs_and_recovers_with_one_success(conduct in prop_oneof![Just(Conduct::Failed), Just(Conduct::Silent), Just(Conduct::Refused)]) {
            let start = Instant::now();
            let (mut health, mut attempts) = (Health::default(), 0);
            for second in 0..3600 {
                let now = start + Duration::from_secs(second);
                if !health.is_failing(Some(&slug("a")), now) {
                    attempts += 1;
                    health.observe(&slug("a"), conduct, now);
                }
            }
            prop_assert!((5..20).contains(&attempts), "{attempts} attempts in an hour");
            let later = start + Duration::from_hours(2);
            health.observe(&slug("a"), Conduct::Completed, later);
            prop_assert!(!health.is_failing(Some(&slug("a")), later));
            health.observe(&slug("a"), conduct, later);
            prop_assert!(!health.is_failing(Some(&slug("a")), later), "one failure after a success");
        }
    }

    #[test]
    fn failures_of_one_cargo_leave_others_alone_and_silence_does_not() {
        let now = Instant::now();
        let mut health = Health::default();
        for _ in 0..MAX_FAILURES {
            health.observe(&slug("broken"), Conduct::Failed, now);
        }
        assert!(health.is_failing(Some(&slug("broken")), now));
        assert!(!health.is_failing(Some(&slug("other")), now) && !health.is_failing(None, now));
        for _ in 0..MAX_FAILURES {
            health.observe(&slug("other"), Conduct::Silent, now);
        }
        assert!(health.is_failing(Some(&slug("third")), now) && health.is_failing(None, now));
    }

    #[test]
    fn full_islands_are_not_unreliable_and_failures_are_forgotten() {
        let now = Instant::now();
        let mut health = Health::default();
        for _ in 0..20 {
            health.observe(&slug("a"), Conduct::Full, now);
            health.observe(&slug("b"), Conduct::Refused, now);
        }
        assert!(!health.is_failing(Some(&slug("a")), now) && health.is_failing(Some(&slug("b")), now));
        assert_eq!((health.unreliability(now), health.is_failing(None, now)), (0, false));
        for _ in 0..20 {
            health.observe(&slug("a"), Conduct::Failed, now);
        }
        assert_eq!(health.unreliability(now), 2);
        assert_eq!(health.unreliability(now + Duration::from_hours(2)), 0);
    }

    #[test]
    fn the_number_of_breakers_is_bounded() {
        let now = Instant::now();
        let mut health = Health::default();
        for n in 0..200_u64 {
            health.observe(&slug(&format!("cargo-{n}")), Conduct::Failed, now + Duration::from_secs(n));
        }
        assert_eq!(health.cargos.len(), MAX_CARGOS);
        assert!(health.cargos.contains_key(&slug("cargo-199")));
    }
}
