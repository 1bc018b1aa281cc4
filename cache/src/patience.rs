//! When a failed request is repeated.

use std::time::Duration;

use crate::web::WebError;

/// Maximum number of tries of a request whose answers are incomplete or failures of the server.
const TRIES: u32 = 6;
/// Time before the second try; doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Maximum time between two tries while a server cannot be reached.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Maximum time that is waited in total for a server that cannot be reached: a router restarts within it, or an address is assigned again.
const MAX_OUTAGE: Duration = Duration::from_mins(4);
/// Maximum time that is waited in total for a server that accepts no more requests.
const MAX_WAIT: Duration = Duration::from_mins(30);
/// Minimum time that is waited for it once.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The tries that are left for one request. A wait that a server requires does not count as a try, and neither does one for a server that
/// cannot be reached: both are limited by their total time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Patience {
    tries_left: u32,
    next: Duration,
    wait_left: Duration,
    /// Tries during which the server could not be reached.
    missed: u32,
    outage_left: Duration,
}

impl Patience {
    /// All tries.
    pub(crate) fn new() -> Self {
        Self {
            tries_left: TRIES - 1,
            next: FIRST_WAIT,
            wait_left: MAX_WAIT,
            missed: 0,
            outage_left: MAX_OUTAGE,
        }
    }

    /// How long to wait before the request is repeated; `None` if the error is final. `jitter` is a random number in 0..=1, so that several
    /// connections do not return at the same moment.
    pub(crate) fn after(&mut self, error: &WebError, jitter: f64) -> Option<Duration> {
        match error {
            WebError::Busy { time, .. } => {
                let time = (*time).max(MIN_WAIT);
                self.wait_left = self.wait_left.checked_sub(time)?;
                Some(time)
            }
            error if error.is_unreachable() => self.during_outage(jitter),
            error if error.is_transient() => self.again(),
            _ => None,
        }
    }

    /// The same for an error that another try may avoid, whatever it is.
    pub(crate) fn again(&mut self) -> Option<Duration> {
        self.tries_left = self.tries_left.checked_sub(1)?;
        let wait = self.next;
        self.next *= 2;
        Some(wait)
    }

    /// The same for a server that cannot be reached. The wait grows to its maximum; jitter reduces it by up to a half.
    fn during_outage(&mut self, jitter: f64) -> Option<Duration> {
        let grown = FIRST_WAIT.saturating_mul(1 << self.missed.min(16)).min(LONGEST_PAUSE);
        let wait = grown.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        self.outage_left = self.outage_left.checked_sub(wait)?;
        self.missed = self.missed.saturating_add(1);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A server that cannot be reached is waited for during at least three minutes, and no longer than the maximum.
        #[test]
        fn an_outage_is_waited_for_whatever_the_jitter(jitters in prop::collection::vec(-1.0..2.0, 60)) {
            let mut patience = Patience::new();
            let waits: Vec<Duration> =
                jitters.into_iter().map_while(|jitter| patience.during_outage(jitter)).collect();
            let total: Duration = waits.iter().sum();
            prop_assert!(total + LONGEST_PAUSE > MAX_OUTAGE && total <= MAX_OUTAGE, "{total:?}");
            prop_assert!(waits.iter().all(|wait| *wait <= LONGEST_PAUSE));
            prop_assert_eq!(patience.tries_left, TRIES - 1);
        }
    }

    #[test]
    fn waits_for_a_server_that_cannot_be_reached_grow_to_their_maximum() {
        let mut patience = Patience::new();
        let waits: Vec<u128> =
            std::iter::from_fn(|| patience.during_outage(1.0)).map(|wait| wait.as_millis()).take(9).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 15_000]);
        assert_eq!(Patience::new().during_outage(0.0), Some(FIRST_WAIT / 2));
    }

    #[test]
    fn answers_that_another_try_does_not_change_are_final() {
        for status in [400, 401, 403, 404, 410, 451] {
            let error = WebError::Status { host: "hub.example".to_owned(), status };
            assert_eq!(Patience::new().after(&error, 0.0), None, "{status}");
        }
    }

    #[test]
    fn failed_tries_are_limited_and_waits_do_not_count_as_such() {
        let host = || "hub.example".to_owned();
        let busy = |seconds| WebError::Busy { host: host(), time: Duration::from_secs(seconds) };
        let broken = WebError::Length { host: host(), expected: 2, got: 1 };
        let mut patience = Patience::new();
        let mut waits = Vec::new();
        while let Some(wait) = patience.after(&broken, 0.5) {
            waits.push(wait.as_millis());
            assert_eq!(patience.after(&busy(7), 0.5), Some(Duration::from_secs(7)));
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600]);
        assert_eq!(Patience::new().after(&WebError::Redirects, 0.5), None);
        assert_eq!(Patience::new().after(&busy(0), 0.5), Some(MIN_WAIT));
        assert_eq!(Patience::new().after(&busy(31 * 60), 0.5), None, "longer than any window of a hub");
        let mut patience = Patience::new();
        assert_eq!(std::iter::from_fn(|| patience.after(&busy(300), 0.5)).count(), 6);
    }
}
