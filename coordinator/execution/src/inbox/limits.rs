//! Limits on what Islands may cause: messages of one Island, look-ups of unknown Islands, and lines in the log.

use std::{collections::HashMap, time::Duration};

use island_protocol::ids::HostId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Registrations and renewals of one Island: far more than an agent sends, which renews every few seconds.
const BURST: f64 = 200.0;
const PER_SECOND: f64 = 50.0;
/// Above this number, Islands that have sent nothing for some time are forgotten.
const MAX_BUCKETS: usize = 1_000;
/// Time for which an Island that SQL does not know is not looked up again.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
/// Unknown Islands that are remembered.
const MAX_UNKNOWN: usize = 10_000;

/// A token bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn refilled(self, now: Instant) -> f64 {
        (self.left + now.saturating_duration_since(self.at).as_secs_f64() * PER_SECOND).min(BURST)
    }
}

/// The rate of signed messages of each Island.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<HostId, Bucket>>);

impl Rates {
    /// Counts a message of an Island whose signature was verified. Returns `false` if the Island sends too many.
    pub(super) fn admit(&self, host: HostId, now: Instant) -> bool {
        let mut buckets = self.0.lock();
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&host) {
            buckets.retain(|_, bucket| bucket.refilled(now) < BURST);
        }
        let bucket = buckets.entry(host).or_insert(Bucket { left: BURST, at: now });
        let left = bucket.refilled(now);
        let is_admitted = left >= 1.0;
        *bucket = Bucket { left: if is_admitted { left - 1.0 } else { left }, at: now };
        is_admitted
    }
}

/// Islands that were looked up in SQL and not found.
#[derive(Debug, Default)]
pub(crate) struct Unknown(Mutex<HashMap<HostId, Instant>>);

impl Unknown {
    /// Whether an Island was not found moments ago.
    pub(super) fn contains(&self, host: HostId, now: Instant) -> bool {
        let found = self.0.lock().get(&host).copied();
        found.is_some_and(|since| now.saturating_duration_since(since) < UNKNOWN_FOR)
    }

    /// Records that an Island was not found.
    pub(super) fn insert(&self, host: HostId, now: Instant) {
        let mut unknown = self.0.lock();
        if unknown.len() >= MAX_UNKNOWN {
            unknown.retain(|_, since| now.saturating_duration_since(*since) < UNKNOWN_FOR);
        }
        // Made-up ids come once each, so remembering more of them saves nothing.
        if unknown.len() < MAX_UNKNOWN {
            unknown.insert(host, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn host(n: u128) -> HostId {
        HostId(Uuid::from_u128(n))
    }

    #[test]
    fn an_island_that_sends_too_much_is_limited_and_others_are_not() {
        let (rates, begin) = (Rates::default(), Instant::now());
        let admitted = (0..1_000).filter(|_| rates.admit(host(1), begin)).count();
        assert_eq!(admitted, BURST as usize);
        assert!(rates.admit(host(2), begin));
        let later = begin + Duration::from_secs(1);
        let admitted = (0..1_000).filter(|_| rates.admit(host(1), later)).count();
        assert_eq!(admitted, PER_SECOND as usize);
    }

    #[test]
    fn what_is_remembered_of_islands_is_bounded() {
        let (rates, unknown, begin) = (Rates::default(), Unknown::default(), Instant::now());
        for n in 0..20_000_u64 {
            let now = begin + Duration::from_millis(n);
            rates.admit(host(n.into()), now);
            unknown.insert(host(n.into()), now);
        }
        assert!(rates.0.lock().len() <= MAX_BUCKETS);
        assert!(unknown.0.lock().len() <= MAX_UNKNOWN);
        let now = begin + Duration::from_secs(20);
        assert!(unknown.contains(host(19_999), now) && !unknown.contains(host(1), now));
    }
}
