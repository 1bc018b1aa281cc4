//! Detects workers that hang. Pure: pulses and their times are arguments.
//!
//! A worker that sends nothing is judged by the time since its last frame; a job that produces output by its work counter. Downloading,
//! loading and reading a long prompt have no limit.

use std::{collections::BTreeMap, time::Duration};

use island_protocol::ids::AttemptKey;
use island_runtimes_api::Phase;
use island_runtimes_worker::frame::JobWork;
use tokio::time::Instant;

/// Time between two checks while jobs run.
const JUDGE_EVERY: Duration = Duration::from_millis(500);
/// Time without any frame after which a worker counts as stalled.
const SILENCE: Duration = Duration::from_secs(10);
/// Time that output may make no progress.
const FROZEN: Duration = Duration::from_secs(3);
/// Number of pulses that must show no progress, so that an agent that was suspended does not end its workers.
const FROZEN_PULSES: u32 = 3;

/// Observations of a worker.
#[derive(Debug)]
pub struct StallDetector {
    last_frame: Instant,
    jobs: BTreeMap<AttemptKey, LastProgress>,
}

#[derive(Debug, Clone, Copy)]
struct LastProgress {
    phase: Phase,
    work: u64,
    since: Instant,
    pulses: u32,
}

/// Why a worker counts as stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// It sends nothing.
    Silent,
    /// This attempt makes no progress.
    Frozen(AttemptKey),
}

impl StallDetector {
    /// Creates the observations of a new worker.
    pub fn new(now: Instant) -> Self {
        Self { last_frame: now, jobs: BTreeMap::new() }
    }

    /// Records any frame.
    pub fn frame_received(&mut self, now: Instant) {
        self.last_frame = now;
    }

    /// Records a pulse.
    pub fn pulse(&mut self, now: Instant, work: &[JobWork]) {
        self.frame_received(now);
        let before = std::mem::take(&mut self.jobs);
        for job in work {
            let fresh = LastProgress { phase: job.phase, work: job.work, since: now, pulses: 0 };
            let seen = match before.get(&job.key) {
                Some(seen) if (seen.phase, seen.work) == (job.phase, job.work) => {
                    LastProgress { pulses: seen.pulses + 1, ..*seen }
                }
                _ => fresh,
            };
            self.jobs.insert(job.key, seen);
        }
    }

    /// When to check next, after a check at the given time. A worker without jobs can only stop sending.
    pub fn due(&self, judged: Instant) -> Instant {
        if self.jobs.is_empty() { self.last_frame + SILENCE } else { judged + JUDGE_EVERY }
    }

    /// Whether it has stalled.
    pub fn check(&self, now: Instant) -> Option<Stall> {
        if now.duration_since(self.last_frame) >= SILENCE {
            return Some(Stall::Silent);
        }
        let frozen = |seen: &LastProgress| {
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
    fn a_long_load_or_prompt_is_not_a_stall() {
        for phase in [Phase::Wait, Phase::Fetch, Phase::Load, Phase::Prompt] {
            assert_eq!(watch_of(phase, |_| 5, 60), None);
        }
    }

    #[test]
    fn no_frames_for_10_s_are_a_stall() {
        let start = Instant::now();
        let watch = StallDetector::new(start);
        assert_eq!(watch.due(start), start + Duration::from_secs(10), "no earlier check");
        assert_eq!(watch.check(start + Duration::from_secs(9)), None);
        assert_eq!(watch.check(start + Duration::from_secs(10)), Some(Stall::Silent));
    }

    #[test]
    fn an_agent_that_was_suspended_ends_no_worker() {
        let start = Instant::now();
        let mut watch = StallDetector::new(start);
        let work = [JobWork { key: key(), phase: Phase::Run, work: 1 }];
        watch.pulse(start, &work);
        let woke = start + Duration::from_hours(1);
        watch.pulse(woke, &work);
        assert_eq!(watch.check(woke), None);
    }
}
