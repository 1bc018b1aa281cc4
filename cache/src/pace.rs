//! Limits the speed of all downloads together.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Time for which unused capacity is kept: a download that starts may be this far ahead.
const AHEAD: Duration = Duration::from_millis(200);

/// A shared limit in bytes per second.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second; `None` means no limit.
    limit: Option<u64>,
    /// When the bytes taken so far are within the limit.
    due: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { limit, due: Mutex::default() }
    }

    /// Waits until `bytes` are within the limit. Reading late makes the sender wait.
    pub(crate) async fn take(&self, bytes: u64) {
        let Some(limit) = self.limit else { return };
        tokio::time::sleep_until(self.reserve(bytes, limit, Instant::now())).await;
    }

    /// Adds `bytes` and returns the time at which they are within the limit.
    fn reserve(&self, bytes: u64, limit: u64, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let idle_since = now.checked_sub(AHEAD).unwrap_or(now);
        let from = due.map_or(idle_since, |due| due.max(idle_since));
        let paid = from + Duration::from_secs_f64(bytes as f64 / limit.max(1) as f64);
        *due = Some(paid);
        paid
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In any period no more bytes pass than the limit and the unused capacity.
        #[test]
        fn never_faster_than_allowed(
            asks in prop::collection::vec((0_u64..3000, 1_u64..500_000), 1..50),
            limit in 1_000_u64..10_000_000,
        ) {
            let (pace, begin) = (Pace::new(Some(limit)), Instant::now());
            let (mut now, mut sum, mut last) = (begin, 0, begin);
            for (pause, bytes) in asks {
                now = now.max(last) + Duration::from_millis(pause);
                last = pace.reserve(bytes, limit, now);
                sum += bytes;
                let allowed = ((last - begin) + AHEAD).as_secs_f64() * limit as f64;
                prop_assert!(sum as f64 <= allowed * 1.000_001 + 1.0, "{sum} of {allowed}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_share_one_limit() {
        let (pace, begin) = (std::sync::Arc::new(Pace::new(Some(1000))), Instant::now());
        let takers = (0..4).map(|_| {
            let pace = pace.clone();
            tokio::spawn(async move { pace.take(1000).await })
        });
        for taker in takers.collect::<Vec<_>>() {
            taker.await.expect("no panic");
        }
        assert_eq!(begin.elapsed(), Duration::from_millis(3800), "four seconds, minus the unused capacity");
        Pace::new(None).take(u64::MAX).await;
        assert_eq!(begin.elapsed(), Duration::from_millis(3800), "there is no wait without a limit");
    }
}
