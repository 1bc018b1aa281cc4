//! When a delivery is tried again, and when its address is given up. Pure.

use island_protocol::time::Timestamp;

use island_coordinator_domain::config;

const HOUR_MS: i64 = 3_600_000;
/// Maximum pause.
const MAX_PAUSE_MS: i64 = 6 * HOUR_MS;
/// What each pause is of the one before.
const FACTOR: i64 = 3;

/// Pauses between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pauses {
    first_ms: i64,
    give_up_ms: i64,
}

impl Pauses {
    pub(super) fn of(settings: &config::Webhooks) -> Self {
        Self {
            first_ms: i64::from(settings.first_retry_ms),
            give_up_ms: i64::from(settings.give_up_h) * HOUR_MS,
        }
    }

    /// The time of the attempt after `attempts` that failed, or `None` if the event of `created_at` is given up. `jitter`
    /// from 0 to 1 shortens the pause by up to half, so that deliveries which failed together are not repeated together. The address may want a longer
    /// pause, but none above the longest.
    pub(super) fn next(
        self,
        attempts: u32,
        created_at: Timestamp,
        now: Timestamp,
        not_before: Option<Timestamp>,
        jitter: f64,
    ) -> Option<Timestamp> {
        let growth = FACTOR.saturating_pow(attempts.saturating_sub(1));
        let pause = self.first_ms.saturating_mul(growth).clamp(1, MAX_PAUSE_MS);
        let shortened = (pause as f64 * (1.0 - jitter.clamp(0.0, 1.0) / 2.0)) as i64;
        let wanted = not_before.map_or(now, |at| at.min(now.plus_ms(MAX_PAUSE_MS)));
        let next = now.plus_ms(shortened.max(1)).max(wanted);
        (next <= created_at.plus_ms(self.give_up_ms)).then_some(next)
    }

    /// A failed attempt, which is repeated at `next`, disables its webhook if the address has failed since this time or
    /// longer, and does not if this is `None`. Only an event that is given up disables an address, because such an event
    /// was tried for days, and not once long ago and once now. How rare events are does not matter: an address that gets
    /// one in a week is disabled with the second one that is given up, because it has failed since the first.
    pub(super) fn disables_since(
        self,
        next: Option<Timestamp>,
        is_gone: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        match next {
            Some(_) => None,
            None if is_gone => Some(now),
            None => Some(now.plus_ms(-self.give_up_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pauses_grow_within_their_bounds(first_ms in 1_i64..100_000, attempts in 1_u32..100, jitter in 0.0..1.0_f64) {
            let pauses = Pauses { first_ms, give_up_ms: i64::MAX / 4 };
            let now = Timestamp::from_unix_ms(0);
            let pause = |attempts, jitter| pauses.next(attempts, now, now, None, jitter).expect("not given up").unix_ms();
            prop_assert!(pause(attempts, 0.0) <= MAX_PAUSE_MS);
            prop_assert!(pause(attempts, 0.0) <= pause(attempts + 1, 0.0));
            let shortened = pause(attempts, jitter);
            prop_assert!(shortened <= pause(attempts, 0.0));
            prop_assert!(shortened >= pause(attempts, 0.0) / 2);
        }

        #[test]
        fn nothing_is_tried_after_the_last_hour(attempts in 1_u32..40, age_ms in 0..80 * HOUR_MS, jitter in 0.0..1.0_f64) {
            let pauses = Pauses { first_ms: 5_000, give_up_ms: 72 * HOUR_MS };
            let (created, now) = (Timestamp::from_unix_ms(0), Timestamp::from_unix_ms(age_ms));
            if let Some(next) = pauses.next(attempts, created, now, None, jitter) {
                prop_assert!(next > now && next.unix_ms() <= 72 * HOUR_MS);
            }
        }
    }

    #[test]
    fn an_address_may_want_a_longer_pause_within_bounds() {
        let pauses = Pauses { first_ms: 5_000, give_up_ms: 72 * HOUR_MS };
        let now = Timestamp::from_unix_ms(0);
        let next = |wanted_ms| pauses.next(1, now, now, Some(now.plus_ms(wanted_ms)), 0.0);
        assert_eq!(next(1_000), Some(now.plus_ms(5_000)));
        assert_eq!(next(60_000), Some(now.plus_ms(60_000)));
        assert_eq!(next(1_000 * HOUR_MS), Some(now.plus_ms(MAX_PAUSE_MS)));
    }

    /// Whether an event disables its webhook when it is given up. All attempts fail.
    fn failing(created: Timestamp, failing_since: &mut Option<Timestamp>) -> bool {
        let pauses = Pauses { first_ms: 5_000, give_up_ms: 72 * HOUR_MS };
        let (mut now, mut attempts) = (created, 0);
        loop {
            attempts += 1;
            let since = *failing_since.get_or_insert(now);
            let next = pauses.next(attempts, created, now, None, 0.0);
            let is_disabled = pauses.disables_since(next, false, now).is_some_and(|limit| since <= limit);
            assert!(next.is_none() || !is_disabled, "attempt {attempts} is repeated");
            match next {
                Some(next) => now = next,
                None => return is_disabled,
            }
        }
    }

    #[test]
    fn an_address_is_disabled_by_the_second_event_that_it_did_not_accept_however_rare_events_are() {
        let at = |hours| Timestamp::from_unix_ms(hours * HOUR_MS);
        for pause_h in [1, 71, 73, 24 * 7, 24 * 365] {
            let mut failing_since = None;
            assert!(!failing(at(0), &mut failing_since), "one event is not enough");
            assert!(failing(at(pause_h + 6), &mut failing_since), "{pause_h} h later");
            // An event was delivered between the two.
            assert!(!failing(at(pause_h + 6), &mut None));
        }
    }

    #[test]
    fn an_address_that_wants_no_more_events_is_disabled_at_once() {
        let pauses = Pauses { first_ms: 5_000, give_up_ms: 72 * HOUR_MS };
        let now = Timestamp::from_unix_ms(0);
        assert_eq!(pauses.disables_since(None, true, now), Some(now));
        assert_eq!(pauses.disables_since(None, false, now), Some(now.plus_ms(-72 * HOUR_MS)));
        assert_eq!(pauses.disables_since(Some(now), false, now), None);
    }

    #[test]
    fn an_address_that_never_replies_is_tried_some_twenty_times() {
        let pauses = Pauses { first_ms: 5_000, give_up_ms: 72 * HOUR_MS };
        let created = Timestamp::from_unix_ms(0);
        let (mut now, mut attempts) = (created, 0);
        loop {
            attempts += 1;
            match pauses.next(attempts, created, now, None, 0.0) {
                Some(next) => now = next,
                None => break,
            }
        }
        assert_eq!(attempts, 20);
    }
}
