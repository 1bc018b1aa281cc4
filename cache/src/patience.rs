//! When a failed request is repeated.

use std::time::Duration;

use crate::web::WebError;

/// Maximum number of tries.
const TRIES: u32 = 6;
/// Time before the second try; doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Maximum time that is waited in total for a server that accepts no more requests.
const MAX_WAIT: Duration = Duration::from_mins(30);
/// Minimum time that is waited for it once.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The tries that are left for one request. A wait that a server requires does not count as a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Patience {
    tries_left: u32,
    next: Duration,
    wait_left: Duration,
}

impl Patience {
    /// All tries.
    pub(crate) fn new() -> Self {
        Self { tries_left: TRIES - 1, next: FIRST_WAIT, wait_left: MAX_WAIT }
    }

    /// How long to wait before the request is repeated; `None` if the error is final.
    pub(crate) fn after(&mut self, error: &WebError) -> Option<Duration> {
        match error {
            WebError::Busy { time, .. } => {
                let time = (*time).max(MIN_WAIT);
                self.wait_left = self.wait_left.checked_sub(time)?;
                Some(time)
            }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tries_are_limited_and_waits_do_not_count_as_such() {
        let host = || "hub.example".to_owned();
        let busy = |seconds| WebError::Busy { host: host(), time: Duration::from_secs(seconds) };
        let broken = WebError::Length { host: host(), expected: 2, got: 1 };
        let mut patience = Patience::new();
        let mut waits = Vec::new();
        while let Some(wait) = patience.after(&broken) {
            waits.push(wait.as_millis());
            assert_eq!(patience.after(&busy(7)), Some(Duration::from_secs(7)));
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600]);
        assert_eq!(Patience::new().after(&WebError::Redirects), None);
        assert_eq!(Patience::new().after(&busy(0)), Some(MIN_WAIT));
        assert_eq!(Patience::new().after(&busy(31 * 60)), None, "longer than any window of a hub");
        let mut patience = Patience::new();
        assert_eq!(std::iter::from_fn(|| patience.after(&busy(300))).count(), 6);
    }
}
