//! Leases and stalls, pure: whether an Island has lost its attempt, and whether a run makes progress.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum times without a renewal and, in each phase, without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimeouts {
    /// From the last renewal to the loss of the attempt.
    pub lease: Duration,
    /// Decoding without progress, measured from renewal to renewal.
    pub run: Duration,
    /// A download, a load or a prompt without progress.
    pub prepare: Duration,
}

/// Progress of an attempt as its renewals report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub phase: String,
    pub work: u64,
    /// When it last changed.
    pub since: Instant,
}

/// The lease of one attempt.
#[derive(Debug, Clone)]
pub struct Lease {
    renewed: Instant,
    progress: Option<Progress>,
}

/// Why an attempt is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No renewal was received.
    Expired,
    /// The lease is renewed, but the run makes no progress.
    Stalled,
}

impl Lease {
    /// A lease that begins now.
    pub fn new(now: Instant) -> Self {
        Self { renewed: now, progress: None }
    }

    /// When it was last renewed.
    pub fn renewed(&self) -> Instant {
        self.renewed
    }

    /// The phase of the last renewal; `None` before the first one.
    pub fn phase(&self) -> Option<&str> {
        self.progress.as_ref().map(|progress| progress.phase.as_str())
    }

    /// Renews the lease.
    pub fn renew(&mut self, now: Instant, phase: &str, work: u64) {
        self.renewed = self.renewed.max(now);
        let progressed = self.progress.as_ref().is_none_or(|last| last.phase != phase || last.work != work);
        if progressed {
            self.progress = Some(Progress { phase: phase.to_owned(), work, since: now });
        }
    }

    /// Records output, which counts as progress but not as a renewal.
    pub fn progressed(&mut self, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.since = progress.since.max(now);
        }
    }

    /// Checks the lease. `resumed` is when this coordinator could receive messages again after an outage on its side:
    /// no lease expires because of such an outage.
    pub fn verdict(&self, now: Instant, resumed: Instant, timeouts: &LeaseTimeouts) -> Option<Verdict> {
        if now.saturating_duration_since(self.renewed.max(resumed)) >= timeouts.lease {
            return Some(Verdict::Expired);
        }
        let progress = self.progress.as_ref()?;
        let limit = match progress.phase.as_str() {
            "run" => timeouts.run,
            "fetch" | "load" | "prompt" => timeouts.prepare,
            _ => return None,
        };
        // A missing renewal is not a standstill: only a renewal shows that nothing was done until then. Renewals from before
        // and after an outage on this side are not compared, because what was done meanwhile may still be in flight.
        let since = progress.since.max(resumed);
        (self.renewed.saturating_duration_since(since) >= limit).then_some(Verdict::Stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUTS: LeaseTimeouts = LeaseTimeouts {
        lease: Duration::from_secs(30),
        run: Duration::from_secs(13),
        prepare: Duration::from_mins(2),
    };

    proptest! {
        #[test]
        fn a_renewed_lease_is_never_expired(gaps in prop::collection::vec(0_u64..30_000, 1..50)) {
            let start = Instant::now();
            let mut now = start;
            let mut lease = Lease::new(start);
            for (work, gap) in gaps.into_iter().enumerate() {
                now += Duration::from_millis(gap);
                prop_assert_ne!(lease.verdict(now, start, &TIMEOUTS), Some(Verdict::Expired));
                lease.renew(now, "run", work as u64);
            }
        }

        #[test]
        fn an_outage_of_the_coordinator_expires_no_lease(outage in 0_u64..10_000_000, after in 0_u64..30_000) {
            let start = Instant::now();
            let mut lease = Lease::new(start);
            lease.renew(start, "wait", 1);
            let resumed = start + Duration::from_millis(outage);
            let now = resumed + Duration::from_millis(after);
            prop_assert_eq!(lease.verdict(now, resumed, &TIMEOUTS), None);
        }
    }

    #[test]
    fn lost_renewals_are_no_standstill() {
        let start = Instant::now();
        let mut lease = Lease::new(start);
        lease.renew(start, "run", 7);
        for s in 0..30 {
            assert_eq!(lease.verdict(start + Duration::from_secs(s), start, &TIMEOUTS), None, "{s} s");
        }
    }

    #[test]
    fn a_lease_expires_without_renewals() {
        let start = Instant::now();
        let lease = Lease::new(start);
        assert_eq!(lease.verdict(start + Duration::from_millis(29_999), start, &TIMEOUTS), None);
        assert_eq!(lease.verdict(start + Duration::from_secs(30), start, &TIMEOUTS), Some(Verdict::Expired));
    }

    #[test]
    fn a_frozen_decode_stalls_and_a_long_download_does_not() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut frozen = Lease::new(start);
        let mut loading = Lease::new(start);
        for s in [0, 5, 10, 15] {
            assert_eq!(frozen.verdict(at(s), start, &TIMEOUTS), None);
            frozen.renew(at(s), "run", 7);
            loading.renew(at(s), "load", s);
        }
        assert_eq!(frozen.verdict(at(15), start, &TIMEOUTS), Some(Verdict::Stalled));
        assert_eq!(loading.verdict(at(15), start, &TIMEOUTS), None);
        frozen.progressed(at(14));
        assert_eq!(frozen.verdict(at(15), start, &TIMEOUTS), None);
    }
}
