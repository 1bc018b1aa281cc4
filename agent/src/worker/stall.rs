//! Detects workers that hang. Pure: pulses and their times are arguments.
//!
//! A worker that sends nothing is judged by the time since its last frame, and much sooner if the kernel shows that it does not run; a job
//! that produces output is judged by its work counter. Downloading, loading and reading a long prompt have no limit.

use std::{collections::BTreeMap, time::Duration};

use island_protocol::ids::AttemptKey;
use island_runtimes_api::Phase;
use island_runtimes_worker::frame::JobWork;
use tokio::time::Instant;

/// Time between two checks while jobs run.
const JUDGE_EVERY: Duration = Duration::from_millis(500);
/// Time without any frame after which a worker counts as stalled.
const SILENCE: Duration = Duration::from_secs(10);
/// The same for a worker with jobs whose process did not run meanwhile. One that waits for a processor, for its disk or for a GPU runs now and
/// then, if only to send its pulse.
const STOPPED: Duration = Duration::from_secs(2);
/// Time without any frame after which the pulse of a worker with jobs is overdue.
const OVERDUE: Duration = Duration::from_millis(1100);
/// Number of consecutive checks in which an overdue worker did not run, so that a machine that was suspended does not end its workers.
const STOPPED_CHECKS: u32 = 3;
/// Time that output may make no progress.
const FROZEN: Duration = Duration::from_secs(3);
/// Number of pulses that must show no progress, so that an agent that was suspended does not end its workers.
const FROZEN_PULSES: u32 = 3;

/// Observations of a worker.
#[derive(Debug)]
pub struct StallDetector {
    last_frame: Instant,
    jobs: BTreeMap<AttemptKey, LastProgress>,
    /// What its process had run in the last checks, while a pulse is overdue, and their number.
    overdue: Option<(RunTime, u32)>,
}

/// How much a process has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTime {
    /// Time on a processor, nanoseconds.
    pub ns: u64,
    /// How often it got a processor.
    pub turns: u64,
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
    /// It sends nothing, and its process does not run.
    Stopped,
    /// This attempt makes no progress.
    Frozen(AttemptKey),
}

impl StallDetector {
    /// Creates the observations of a new worker.
    pub fn new(now: Instant) -> Self {
        Self { last_frame: now, jobs: BTreeMap::new(), overdue: None }
    }

    /// Records any frame.
    pub fn frame_received(&mut self, now: Instant) {
        self.last_frame = now;
        self.overdue = None;
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

    /// When to check next, after a check at the given time. A worker without jobs can only stop sending. `has_jobs` is whether it was given any:
    /// those of the last moment are in no pulse.
    pub fn due(&self, judged: Instant, has_jobs: bool) -> Instant {
        if has_jobs { judged + JUDGE_EVERY } else { self.last_frame + SILENCE }
    }

    /// Whether it has stalled. `run_time` reads what its process has run so far; it is called only while a pulse is overdue.
    pub fn check(
        &mut self,
        now: Instant,
        has_jobs: bool,
        run_time: impl FnOnce() -> Option<RunTime>,
    ) -> Option<Stall> {
        let silence = now.duration_since(self.last_frame);
        if silence >= SILENCE {
            return Some(Stall::Silent);
        }
        if silence >= OVERDUE && has_jobs {
            self.overdue = run_time().map(|run| match self.overdue {
                Some((before, checks)) if before == run => (run, checks + 1),
                _ => (run, 1),
            });
            if silence >= STOPPED && self.overdue.is_some_and(|(_, checks)| checks >= STOPPED_CHECKS) {
                return Some(Stall::Stopped);
            }
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
        watch.check(start + Duration::from_secs(seconds), true, || None)
    }

    /// What is found in checks every half a second after a last pulse, and when. `run_time` is of the milliseconds after it.
    fn after_last_pulse(run_time: impl Fn(u64) -> Option<u64>) -> (Option<Stall>, u64) {
        let start = Instant::now();
        let mut watch = StallDetector::new(start);
        // The job was sent after it.
        watch.pulse(start, &[]);
        let run_time = |ms| run_time(ms).map(|ns| RunTime { ns, turns: ns });
        let found = (1..=30).map(|check| check * 500).find_map(|ms| {
            watch.check(start + Duration::from_millis(ms), true, || run_time(ms)).map(|stall| (stall, ms))
        });
        found.map_or((None, 0), |(stall, ms)| (Some(stall), ms))
    }

    #[test]
    fn a_process_that_does_not_run_is_noticed_within_3_s() {
        let (stall, ms) = after_last_pulse(|_| Some(7));
        assert_eq!(stall, Some(Stall::Stopped));
        assert!(ms < 3_000, "{ms} ms");
    }

    #[test]
    fn a_process_that_waits_for_its_turn_has_10_s() {
        for run_time in [|ms| Some(ms), |_| None] {
            assert_eq!(after_last_pulse(run_time), (Some(Stall::Silent), 10_000));
        }
        // It ran once in every second.
        assert_eq!(after_last_pulse(|ms| Some(ms / 1_000)), (Some(Stall::Silent), 10_000));
    }

    #[test]
    fn a_machine_that_was_suspended_ends_no_worker() {
        let start = Instant::now();
        let mut watch = StallDetector::new(start);
        watch.pulse(start, &[JobWork { key: key(), phase: Phase::Run, work: 1 }]);
        let woke = start + Duration::from_secs(9);
        assert_eq!(watch.check(woke, true, || Some(RunTime { ns: 7, turns: 7 })), None);
        watch.frame_received(woke);
        assert_eq!(
            watch.check(woke + Duration::from_secs(1), true, || Some(RunTime { ns: 7, turns: 7 })),
            None
        );
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
        let mut watch = StallDetector::new(start);
        assert_eq!(watch.due(start, false), start + Duration::from_secs(10), "no earlier check");
        // Nothing keeps an idle process running.
        let idle = || Some(RunTime { ns: 7, turns: 7 });
        for second in 1..10 {
            assert_eq!(watch.check(start + Duration::from_secs(second), false, idle), None);
        }
        assert_eq!(watch.check(start + Duration::from_secs(10), false, idle), Some(Stall::Silent));
    }

    #[test]
    fn an_agent_that_was_suspended_ends_no_worker() {
        let start = Instant::now();
        let mut watch = StallDetector::new(start);
        let work = [JobWork { key: key(), phase: Phase::Run, work: 1 }];
        watch.pulse(start, &work);
        let woke = start + Duration::from_hours(1);
        watch.pulse(woke, &work);
        assert_eq!(watch.check(woke, true, || None), None);
    }
}
