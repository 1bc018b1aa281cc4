//! Delays between tries: exponential with jitter, so that many clients do not retry at the same time.

use std::time::Duration;

/// When and how often a failed request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries after the first one; 0 for none.
    pub tries: u32,
    /// Delay before the second try; jitter reduces it by up to a half.
    pub first: Duration,
    /// Maximum delay without `Retry-After`.
    pub most: Duration,
    /// Maximum `Retry-After` that is honored. If a server requires a longer delay, the error is returned at once.
    pub patience: Duration,
}

impl RetryPolicy {
    /// Every request is sent once.
    pub const NONE: Self =
        Self { tries: 0, first: Duration::ZERO, most: Duration::ZERO, patience: Duration::ZERO };

    /// For requests: three more tries within a few seconds, and delays of up to half a minute if a server requires
    /// them.
    pub const REQUESTS: Self = Self {
        tries: 3,
        first: Duration::from_millis(200),
        most: Duration::from_secs(5),
        patience: Duration::from_secs(30),
    };

    /// For interrupted streams: long enough for a coordinator to restart. Every received event resets it.
    pub const STREAMS: Self = Self { tries: 12, ..Self::REQUESTS };

    /// The delays of one request.
    pub fn start(&self) -> Backoff {
        Backoff { patience: self.patience, ..Backoff::new(self.first, self.most, self.tries) }
    }
}

/// Delays between tries, up to a number of tries.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    patience: Duration,
    tries_left: u32,
    tried: u32,
}

impl Backoff {
    /// `tries` more tries, the first after about `first`, none later than `most`.
    pub fn new(first: Duration, most: Duration, tries: u32) -> Self {
        Self { first, most, patience: Duration::MAX, tries_left: tries, tried: 0 }
    }

    /// Returns the delay before the next try, or `None` if there are no tries left. `retry_after` is the server's; if
    /// it exceeds the maximum, there is no further try. `jitter` is a random number in 0..=1.
    pub fn next_delay(&mut self, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        if retry_after.is_some_and(|retry_after| retry_after > self.patience) {
            return None;
        }
        self.tries_left = self.tries_left.checked_sub(1)?;
        let grown = self.first.saturating_mul(1 << self.tried.min(16)).min(self.most);
        self.tried = self.tried.saturating_add(1);
        let jitter = jitter.clamp(0.0, 1.0) / 2.0;
        // Jitter is added to the server's delay, so that clients which were refused together do not retry together.
        Some(
            retry_after.map_or_else(
                || grown.mul_f64(0.5 + jitter),
                |retry_after| retry_after + grown.mul_f64(jitter),
            ),
        )
    }

    /// Sleeps before the next try. Returns `false` after the last one.
    pub async fn wait(&mut self, retry_after: Option<Duration>) -> bool {
        match self.next_delay(retry_after, rand::random()) {
            Some(delay) => {
                tokio::time::sleep(delay).await;
                true
            }
            None => false,
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        RetryPolicy::STREAMS.start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
        range.prop_map(Duration::from_millis)
    }

    proptest! {
        #[test]
        fn every_wait_lies_within_its_bounds(
            first in millis(1..5_000), most in millis(1..60_000), tries in 0_u32..40,
            steps in prop::collection::vec((prop::option::of(millis(0..90_000)), -1.0..2.0), 0..60)
        ) {
            let patience = Duration::from_secs(30);
            let mut backoff = RetryPolicy { tries, first, most, patience }.start();
            let mut tried = 0;
            for (retry_after, jitter) in steps {
                let Some(delay) = backoff.next_delay(retry_after, jitter) else {
                    prop_assert!(tried == tries || retry_after > Some(patience));
                    continue;
                };
                tried += 1;
                prop_assert!(tried <= tries);
                let ceiling = first.saturating_mul(1 << (tried - 1).min(16)).min(most);
                match retry_after {
                    Some(retry_after) => prop_assert!(delay >= retry_after && delay <= retry_after + ceiling),
                    None => prop_assert!(delay <= ceiling && delay >= ceiling.mul_f64(0.499)),
                }
            }
        }
    }

    #[test]
    fn grows_to_its_cap_and_ends() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), 6);
        let delays: Vec<u128> =
            std::iter::from_fn(|| backoff.next_delay(None, 1.0)).map(|d| d.as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn gives_up_when_the_server_requires_a_long_delay() {
        let mut backoff = RetryPolicy::REQUESTS.start();
        assert_eq!(backoff.next_delay(Some(Duration::from_secs(7)), 0.0), Some(Duration::from_secs(7)));
        assert_eq!(backoff.next_delay(Some(Duration::from_secs(31)), 0.0), None);
    }
}
