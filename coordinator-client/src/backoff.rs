//! Waiting between tries: exponential with full jitter, so that many clients do not come back together.

use std::time::Duration;

/// Delays between tries, up to a number of tries.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    tries_left: u32,
    tried: u32,
}

impl Backoff {
    /// `tries` more tries, the first after about `first`, none after more than `most`.
    pub fn new(first: Duration, most: Duration, tries: u32) -> Self {
        Self { first, most, tries_left: tries, tried: 0 }
    }

    /// How long to wait before the next try, or `None` when there is none left. `asked` is a server's `Retry-After`,
    /// which is kept to; `jitter` is a random number in 0..=1.
    pub fn next_delay(&mut self, asked: Option<Duration>, jitter: f64) -> Option<Duration> {
        self.tries_left = self.tries_left.checked_sub(1)?;
        let grown = self.first.saturating_mul(1 << self.tried.min(16)).min(self.most);
        self.tried += 1;
        let jittered = grown.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        Some(asked.map_or(jittered, |asked| asked.max(jittered)))
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
        Self::new(Duration::from_millis(200), Duration::from_secs(5), 12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_cap_and_ends() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), 6);
        let delays: Vec<u128> =
            std::iter::from_fn(|| backoff.next_delay(None, 1.0)).map(|d| d.as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn keeps_to_retry_after() {
        let mut backoff = Backoff::default();
        let asked = Duration::from_secs(30);
        assert_eq!(backoff.next_delay(Some(asked), 0.0), Some(asked));
    }
}
