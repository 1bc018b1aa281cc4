//! Waiting between tries: exponential with jitter, so that many clients do not come back together.

use std::time::Duration;

/// When a failed request is sent again, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// More tries after the first; 0 for none.
    pub tries: u32,
    /// Wait before the second try, less up to a half of it.
    pub first: Duration,
    /// Longest wait of our own making.
    pub most: Duration,
    /// Longest wait a server may ask for with `Retry-After`; when it asks for more, the error is returned at once.
    pub patience: Duration,
}

impl RetryPolicy {
    /// Every request is sent once.
    pub const NONE: Self =
        Self { tries: 0, first: Duration::ZERO, most: Duration::ZERO, patience: Duration::ZERO };

    /// For requests: three more tries within a few seconds, and up to half a minute if a server asks for it.
    pub const REQUESTS: Self = Self {
        tries: 3,
        first: Duration::from_millis(200),
        most: Duration::from_secs(5),
        patience: Duration::from_secs(30),
    };

    /// For streams that broke off: long enough for a coordinator to restart. Every event received starts it anew.
    pub const STREAMS: Self = Self { tries: 12, ..Self::REQUESTS };

    /// The waits of one request.
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
    /// `tries` more tries, the first after about `first`, none after more than `most`.
    pub fn new(first: Duration, most: Duration, tries: u32) -> Self {
        Self { first, most, patience: Duration::MAX, tries_left: tries, tried: 0 }
    }

    /// How long to wait before the next try, or `None` when there is none left. `asked` is a server's `Retry-After`,
    /// which is kept to or, beyond our patience, given up for; `jitter` is a random number in 0..=1.
    pub fn next_delay(&mut self, asked: Option<Duration>, jitter: f64) -> Option<Duration> {
        if asked.is_some_and(|asked| asked > self.patience) {
            return None;
        }
        self.tries_left = self.tries_left.checked_sub(1)?;
        let grown = self.first.saturating_mul(1 << self.tried.min(16)).min(self.most);
        self.tried = self.tried.saturating_add(1);
        let jitter = jitter.clamp(0.0, 1.0) / 2.0;
        // Jitter is added to what a server asks for: clients it turned away together must not come back together.
        Some(asked.map_or_else(|| grown.mul_f64(0.5 + jitter), |asked| asked + grown.mul_f64(jitter)))
    }

    /// Sleeps before the next try; false when there is none left.
    pub async fn wait(&mut self, asked: Option<Duration>) -> bool {
        match self.next_delay(asked, rand::random()) {
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
            for (asked, jitter) in steps {
                let Some(delay) = backoff.next_delay(asked, jitter) else {
                    prop_assert!(tried == tries || asked > Some(patience));
                    continue;
                };
                tried += 1;
                prop_assert!(tried <= tries);
                let ceiling = first.saturating_mul(1 << (tried - 1).min(16)).min(most);
                match asked {
                    Some(asked) => prop_assert!(delay >= asked && delay <= asked + ceiling),
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
    fn gives_up_rather_than_sleep_for_long() {
        let mut backoff = RetryPolicy::REQUESTS.start();
        assert_eq!(backoff.next_delay(Some(Duration::from_secs(7)), 0.0), Some(Duration::from_secs(7)));
        assert_eq!(backoff.next_delay(Some(Duration::from_secs(31)), 0.0), None);
    }
}
