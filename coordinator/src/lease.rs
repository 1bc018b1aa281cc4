//! Leases and stalls, pure: has an Island lost its attempt, and does a run still move?

use std::time::Duration;

use tokio::time::Instant;

/// How long an attempt may go unheard of, and how long each phase may stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// From the last renewal to the loss of the attempt.
    pub lease: Duration,
    /// A decode that stands still. Renewals come at most a heartbeat apart and two of them are needed to see a
    /// standstill, so the setting is added to two heartbeats.
    pub run: Duration,
    /// A download, a load or a prompt that stands still.
    pub prepare: Duration,
}

/// What a renewal tells about the work of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    pub phase: String,
    pub work: u64,
    /// Since when it is so.
    pub since: Instant,
}

/// The lease of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    renewed: Instant,
    progress: Option<Progress>,
}

/// Why an attempt is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The Island was not heard of.
    Expired,
    /// The Island is there, the run does not move.
    Stalled,
}

impl Lease {
    /// A lease that begins now.
    pub(crate) fn new(now: Instant) -> Self {
        Self { renewed: now, progress: None }
    }

    /// The Island spoke for this attempt.
    pub(crate) fn renew(&mut self, now: Instant, phase: &str, work: u64) {
        self.renewed = self.renewed.max(now);
        let moved = self.progress.as_ref().is_none_or(|seen| seen.phase != phase || seen.work != work);
        if moved {
            self.progress = Some(Progress { phase: phase.to_owned(), work, since: now });
        }
    }

    /// Output arrived: as good as moving, but no renewal.
    pub(crate) fn moved(&mut self, now: Instant) {
        if let Some(progress) = &mut self.progress {
            progress.since = progress.since.max(now);
        }
    }

    /// Whether the attempt is lost. `resumed` is when this coordinator could hear again after an outage of its own:
    /// nobody loses a lease because we were deaf.
    pub(crate) fn verdict(&self, now: Instant, resumed: Instant, patience: &Patience) -> Option<Verdict> {
        if now.saturating_duration_since(self.renewed.max(resumed)) >= patience.lease {
            return Some(Verdict::Expired);
        }
        let progress = self.progress.as_ref()?;
        let limit = match progress.phase.as_str() {
            "run" => patience.run,
            "fetch" | "load" | "prompt" => patience.prepare,
            _ => return None,
        };
        (now.saturating_duration_since(progress.since.max(resumed)) >= limit).then_some(Verdict::Stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Patience = Patience {
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
                prop_assert_ne!(lease.verdict(now, start, &PATIENCE), Some(Verdict::Expired));
                lease.renew(now, "run", work as u64);
            }
        }

        #[test]
        fn an_outage_of_ours_expires_nothing(outage in 0_u64..10_000_000, after in 0_u64..30_000) {
            let start = Instant::now();
            let mut lease = Lease::new(start);
            lease.renew(start, "wait", 1);
            let resumed = start + Duration::from_millis(outage);
            let now = resumed + Duration::from_millis(after);
            prop_assert_eq!(lease.verdict(now, resumed, &PATIENCE), None);
        }
    }

    #[test]
    fn silence_expires() {
        let start = Instant::now();
        let lease = Lease::new(start);
        assert_eq!(lease.verdict(start + Duration::from_millis(29_999), start, &PATIENCE), None);
        assert_eq!(lease.verdict(start + Duration::from_secs(30), start, &PATIENCE), Some(Verdict::Expired));
    }

    #[test]
    fn a_frozen_decode_stalls_and_a_long_download_does_not() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut frozen = Lease::new(start);
        let mut loading = Lease::new(start);
        for s in [0, 5, 10, 15] {
            frozen.renew(at(s), "run", 7);
            loading.renew(at(s), "load", s);
        }
        assert_eq!(frozen.verdict(at(15), start, &PATIENCE), Some(Verdict::Stalled));
        assert_eq!(loading.verdict(at(15), start, &PATIENCE), None);
        frozen.moved(at(14));
        assert_eq!(frozen.verdict(at(15), start, &PATIENCE), None);
    }
}
