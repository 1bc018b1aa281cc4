//! Whether work that cannot be undone may go by this machine's clock, pure.
//!
//! A start with a clock that is weeks ahead would delete what is kept for weeks, and close sums in which the jobs of those weeks belong.

use std::time::Duration;

use island_protocol::time::Timestamp;

/// How far the clock may be past the newest time that the database has seen. A coordinator that was stopped for longer needs a witness.
pub(crate) const LEEWAY: Duration = Duration::from_hours(2);
/// How far the clock of a witness may differ.
const TOLERANCE: Duration = Duration::from_mins(10);

/// Whether `now` is plausible: not far past the newest time that the database has `seen`, or confirmed by more than half of the clocks of
/// other machines, which differ from this one by `differences` in milliseconds.
pub fn is_trusted(now: Timestamp, seen: Option<Timestamp>, differences: &[i64]) -> bool {
    let is_near = |ms: i64, limit: Duration| u128::from(ms.unsigned_abs()) <= limit.as_millis();
    let Some(seen) = seen else { return true };
    let ahead = now.unix_ms().saturating_sub(seen.unix_ms());
    let agreeing = differences.iter().filter(|ms| is_near(**ms, TOLERANCE)).count();
    ahead <= 0 || is_near(ahead, LEEWAY) || agreeing * 2 > differences.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    proptest! {
        #[test]
        fn a_clock_far_ahead_needs_a_majority(ahead in 3_i64..10_000, agreeing in 0_usize..5, others in 0_usize..5) {
            let seen = Timestamp::from_unix_ms(1_700_000_000_000);
            let mut differences = vec![60_000; agreeing];
            differences.extend(vec![-ahead * HOUR_MS; others]);
            let trusted = is_trusted(seen.plus_ms(ahead * HOUR_MS), Some(seen), &differences);
            prop_assert_eq!(trusted, agreeing > others);
        }

        #[test]
        fn a_clock_that_is_behind_or_little_ahead_is_trusted(ahead in -10_000_i64..=2) {
            let seen = Timestamp::from_unix_ms(1_700_000_000_000);
            prop_assert!(is_trusted(seen.plus_ms(ahead * HOUR_MS), Some(seen), &[]));
        }
    }

    #[test]
    fn a_new_database_has_seen_no_time() {
        assert!(is_trusted(Timestamp::from_unix_ms(i64::MAX), None, &[]));
    }
}
