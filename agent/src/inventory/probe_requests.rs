//! Requests to probe the engines again, and when they are met.
//!
//! The devices of an engine change without a change of the machine: a driver is updated while the former one runs, resets a GPU, or takes too
//! long at the start. What notices it requests a probe. A probe opens drivers and takes GPU memory, so those that follow each other are
//! further and further apart.

use std::time::Duration;

use tokio::{sync::Notify, time::Instant};

/// Time between a request and its probe.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest such time.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Time without a request after which the next one is a first one.
const FORGOTTEN: Duration = Duration::from_mins(30);

/// Requests to probe the engines again. Several before a probe are one.
#[derive(Debug, Default)]
pub struct ProbeRequests(Notify);

impl ProbeRequests {
    /// Requests a probe.
    pub fn request(&self) {
        self.0.notify_one();
    }

    /// Resolves when one was requested since the last time. Cancel safe.
    pub async fn requested(&self) {
        self.0.notified().await;
    }
}

/// When the next requested probe is due.
#[derive(Debug, Default)]
pub struct Schedule {
    due: Option<Instant>,
    /// The last request, and the time that it waited.
    last: Option<(Instant, Duration)>,
}

impl Schedule {
    /// Notes a request.
    pub fn request(&mut self, now: Instant) {
        if self.due.is_some() {
            return;
        }
        let recent = self.last.filter(|(at, _)| now.saturating_duration_since(*at) < FORGOTTEN);
        let wait = recent.map_or(FIRST_WAIT, |(_, wait)| (wait * 2).min(LONGEST_WAIT));
        self.last = Some((now, wait));
        self.due = Some(now + wait);
    }

    /// When a probe is due, if one was requested.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a probe is due now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Notes a probe: the requests until now are met.
    pub fn met(&mut self) {
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_that_follow_each_other_are_further_and_further_apart() {
        let start = Instant::now();
        let mut now = start;
        let mut schedule = Schedule::default();
        assert!(schedule.due().is_none() && !schedule.is_due(now));
        let mut waits = Vec::new();
        for _ in 0..9 {
            schedule.request(now);
            let due = schedule.due().expect("one was requested");
            schedule.request(now + Duration::from_secs(1));
            assert_eq!(schedule.due(), Some(due), "two requests are met by one probe");
            assert!(!schedule.is_due(now) && schedule.is_due(due));
            waits.push((due - now).as_secs());
            schedule.met();
            now = due;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        schedule.request(now + FORGOTTEN);
        assert_eq!(schedule.due(), Some(now + FORGOTTEN + FIRST_WAIT), "after a long time it is the first");
    }

    #[tokio::test]
    async fn a_request_is_kept_until_somebody_waits_for_it() {
        let requests = ProbeRequests::default();
        requests.request();
        requests.request();
        requests.requested().await;
    }
}
