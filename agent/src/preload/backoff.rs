//! Files that could not be preloaded: a file that is downloaded in full and has the wrong hash costs traffic each time.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// Time after the first failure; doubles with each further one.
const FIRST: Duration = Duration::from_hours(1);
/// Doublings at most: about ten days.
const MAX_DOUBLINGS: u32 = 8;
/// Files that are remembered; recommendations name a few dozen.
const MAX_FILES: usize = 1000;

/// Failed files by address, with the number of failures and the time of the next try.
#[derive(Debug, Default)]
pub(super) struct Backoff(HashMap<String, (u32, Instant)>);

impl Backoff {
    /// Whether the file is not tried yet.
    pub(super) fn is_waiting(&self, url: &str, now: Instant) -> bool {
        self.0.get(url).is_some_and(|(_, next)| now < *next)
    }

    /// Counts a failure.
    pub(super) fn failed(&mut self, url: &str, now: Instant) {
        if self.0.len() >= MAX_FILES {
            self.0.retain(|_, (_, next)| now < *next);
        }
        let before = self.0.get(url).map_or(0, |(times, _)| *times);
        if before > 0 || self.0.len() < MAX_FILES {
            let wait = FIRST * 2_u32.pow(before.min(MAX_DOUBLINGS));
            self.0.insert(url.to_owned(), (before.saturating_add(1), now + wait));
        }
    }

    /// Forgets the failures of a file.
    pub(super) fn succeeded(&mut self, url: &str) {
        self.0.remove(url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_time_to_the_next_try() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        assert!(!backoff.is_waiting("a", start));
        let mut tries = 0;
        for quarter in 0..4 * 24 * 30 {
            let now = start + Duration::from_mins(15) * quarter;
            if !backoff.is_waiting("a", now) {
                backoff.failed("a", now);
                tries += 1;
            }
        }
        assert!((9..13).contains(&tries), "{tries} tries in a month, not one each quarter of an hour");
        assert!(!backoff.is_waiting("b", start));
        backoff.succeeded("a");
        assert!(!backoff.is_waiting("a", start));
    }

    #[test]
    fn the_number_of_remembered_files_is_bounded() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        for number in 0..2 * MAX_FILES {
            backoff.failed(&number.to_string(), now);
        }
        assert_eq!(backoff.0.len(), MAX_FILES);
    }
}
