//! Is a worker hung? Pure: pulses and the time they came at go in.
//!
//! A worker that says nothing at all is judged by its pulses; a job that produces output by its work counter. Fetching,
//! loading and reading a long prompt may take as long as they like.

use std::{collections::BTreeMap, time::Duration};

use island_protocol::ids::AttemptKey;
use island_runtimes_api::Phase;
use island_runtimes_worker::frame::JobWork;
use tokio::time::Instant;

/// Time between two judgements while jobs run.
const JUDGE_EVERY: Duration = Duration::from_millis(500);
/// Time without any frame after which a worker counts as hung.
const SILENCE: Duration = Duration::from_secs(10);
/// Time that output may stand still.
const FROZEN: Duration = Duration::from_secs(3);
/// Pulses that must agree that it does, so that an agent which slept blames nobody.
const FROZEN_PULSES: u32 = 3;

/// What was seen of a worker.
#[derive(Debug)]
pub struct StallDetector {
    last_frame: Instant,
    jobs: BTreeMap<AttemptKey, Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    phase: Phase,
    work: u64,
    since: Instant,
    pulses: u32,
}

/// Why a worker counts as hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// It says nothing.
    Silent,
    /// This attempt produces nothing.
    Frozen(AttemptKey),
}

impl StallDetector {
    /// A watch over a worker just met.
    pub fn new(now: Instant) -> Self {
        Self { last_frame: now, jobs: BTreeMap::new() }
    }

    /// Any frame came.
    pub fn frame_received(&mut self, now: Instant) {
        self.last_frame = now;
    }

    /// A pulse came.
    pub fn pulse(&mut self, now: Instant, work: &[JobWork]) {
        self.frame_received(now);
        let before = std::mem::take(&mut self.jobs);
        for job in work {
            let fresh = Seen { phase: job.phase, work: job.work, since: now, pulses: 0 };
            let seen = match before.get(&job.key) {
                Some(seen) if (seen.phase, seen.work) == (job.phase, job.work) => {
                    Seen { pulses: seen.pulses + 1, ..*seen }
                }
                _ => fresh,
            };
            self.jobs.insert(job.key, seen);
        }
    }

    /// When to judge it, last having done so then. Nothing but silence can come over a worker without jobs.
    pub fn due(&self, judged: Instant) -> Instant {
        if self.jobs.is_empty() { self.last_frame + SILENCE } else { judged + JUDGE_EVERY }
    }

    /// Whether it is hung.
    pub fn check(&self, now: Instant) -> Option<Stall> {
        if now.duration_since(self.last_frame) >= SILENCE {
            return Some(Stall::Silent);
        }
        let frozen = |seen: &Seen| {
            seen.phase == Phase::Run
                && seen.pulses >= FROZEN_PULSES
                && self.last_frame.duration_since(seen.since) >= FROZEN
        };
        self.jobs.iter().find(|(_, seen)| frozen(seen)).map(|(key, _)| Stall::Frozen(*key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use island_protocol::ids::JobId;

    fn key() -> AttemptKey {
        AttemptKey { job_id: JobId(uuid::Uuid::nil()), attempt: 1, epoch: 1 }
    }

    fn watch_of(phase: Phase, work: impl Fn(u64) -> u64, seconds: u64) -> Option<Stall> {
        let start = Instant::now();
        let mut watch = StallDetector::new(start);
        for second in 0..=seconds {
            let now = start + Duration::from_secs(second);
            watch.pulse(now, &[JobWork { key: key(), phase, work: work(second) }]);
        }
        watch.check(start + Duration::from_secs(seconds))
    }

    #[test]
    fn a_frozen_decode_is_a_stall_within_3_s() {
        assert_eq!(watch_of(Phase::Run, |_| 5, 2), None);
        assert_eq!(watch_of(Phase::Run, |_| 5, 3), Some(Stall::Frozen(key())));
        assert_eq!(watch_of(Phase::Run, |second| second, 60), None);
    }

    #[test]
    fn a_long_load_or_prompt_is_none() {
        for phase in [Phase::Wait, Phase::Fetch, Phase::Load, Phase::Prompt] {
            assert_eq!(watch_of(phase, |_| 5, 60), None);
        }
    }

    #[test]
    fn silence_is_one_after_10_s() {
        let start = Instant::now();
        let watch = StallDetector::new(start);
        assert_eq!(watch.due(start), start + Duration::from_secs(10), "nobody looks before");
        assert_eq!(watch.check(start + Duration::from_secs(9)), None);
        assert_eq!(watch.check(start + Duration::from_secs(10)), Some(Stall::Silent));
    }

    #[test]
    fn an_agent_that_slept_blames_nobody() {
        let start = Instant::now();
        let mut watch = StallDetector::new(start);
        let work = [JobWork { key: key(), phase: Phase::Run, work: 1 }];
        watch.pulse(start, &work);
        let woke = start + Duration::from_hours(1);
        watch.pulse(woke, &work);
        assert_eq!(watch.check(woke), None);
    }
}
