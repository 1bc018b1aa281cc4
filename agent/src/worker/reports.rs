//! What the agent accepts of a worker's reports. A worker that was taken over reports anything; none of it may harm the agent or other jobs.

use std::time::Duration;

use island_protocol::{
    event::{AttemptEvent, Numbered},
    host::SandboxReport,
    job::Failure,
};
use island_runtimes_worker::{
    event_limits::{cut_message, weight},
    frame::JobWork,
    launch::Launch,
};
use tokio::time::Instant;

/// Number of attempts that a worker may name in a frame: many times more than it has slots.
pub(super) const MAX_NAMED_JOBS: usize = 1_024;
/// Memory beyond that of any machine, megabytes.
const MAX_MEMORY_MB: u64 = 1 << 26;
/// Layers, and missing layers, in the report of a sandbox.
const MAX_LAYERS: usize = 16;
/// Maximum length of the name of one, characters.
const MAX_LAYER_CHARS: usize = 300;
/// Time over which frames are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Frames without output of a job that a worker may send in that time. Loading reports most of them, up to one for each tensor.
const MAX_FRAMES: u64 = 10_000;
/// Bytes of events that count as one frame more: 40 MB in a second are more than three of the largest results, and less than a slow machine reads.
const FRAME_BYTES: u64 = 4 << 10;

/// Jobs at once: what the worker offers, at most what it was launched with.
pub(super) fn slots(launch: &Launch, reported: u32) -> u32 {
    reported.clamp(1, launch.slots.max(1))
}

/// GPU memory in use: what the worker reports, at most what it may use.
pub(super) fn vram_mb(launch: &Launch, reported: u64) -> u64 {
    reported.min(launch.vram_limit_mb())
}

/// Resident memory, within what a machine can have.
pub(super) fn resident_mb(reported: u64) -> u64 {
    reported.min(MAX_MEMORY_MB)
}

/// The failure of a load, with a message of limited length.
pub(super) fn failure(mut reported: Failure) -> Failure {
    cut_message(&mut reported.message);
    reported
}

/// The report of a sandbox, with few and short names: it travels in registrations.
pub(super) fn sandbox(mut reported: SandboxReport) -> SandboxReport {
    for names in [&mut reported.layers, &mut reported.missing] {
        names.truncate(MAX_LAYERS);
        for name in names {
            if let Some((end, _)) = name.char_indices().nth(MAX_LAYER_CHARS) {
                name.truncate(end);
            }
        }
    }
    reported
}

/// Counts the frames that no output limit of a job counts.
#[derive(Debug)]
pub(super) struct FrameRate {
    since: Instant,
    frames: u64,
}

impl FrameRate {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, frames: 0 }
    }

    /// Counts a frame; returns `false` if there were too many within a second.
    pub(super) fn count(&mut self, now: Instant) -> bool {
        self.count_as(now, 1)
    }

    /// Counts a pulse.
    pub(super) fn count_pulse(&mut self, now: Instant, work: &[JobWork]) -> bool {
        work.len() <= MAX_NAMED_JOBS && self.count(now)
    }

    /// Counts events of an attempt that is not followed, or no events.
    pub(super) fn count_stray(&mut self, now: Instant, events: &[Numbered<AttemptEvent>]) -> bool {
        let bytes = events.iter().fold(0_u64, |sum, event| sum.saturating_add(weight(&event.event) as u64));
        self.count_as(now, 1 + bytes / FRAME_BYTES)
    }

    fn count_as(&mut self, now: Instant, frames: u64) -> bool {
        if now.duration_since(self.since) >= WINDOW {
            *self = Self::new(now);
        }
        self.frames = self.frames.saturating_add(frames);
        self.frames <= MAX_FRAMES
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::{host::SandboxLevel, ids::InstanceId, job::FailureCode};
    use island_runtimes_worker::launch::GpuGrant;

    use super::*;
    use crate::testing;

    #[test]
    fn figures_are_at_most_what_the_worker_was_launched_with() {
        let mut launch = Launch::new(InstanceId(uuid::Uuid::nil()), testing::assignment(1, 1).cargo);
        assert_eq!(vram_mb(&launch, u64::MAX), 0, "it has no GPU");
        launch.gpus = vec![GpuGrant { index: 0, address: None, memory_mb: 4000 }];
        launch.slots = 4;
        assert_eq!((vram_mb(&launch, u64::MAX), vram_mb(&launch, 300)), (4000, 300));
        assert_eq!([0, 2, u32::MAX].map(|reported| slots(&launch, reported)), [1, 2, 4]);
        assert_eq!((resident_mb(u64::MAX), resident_mb(700)), (MAX_MEMORY_MB, 700));
    }

    #[test]
    fn texts_are_cut() {
        let names = vec!["\u{e9}".repeat(100_000); 1_000];
        let report =
            sandbox(SandboxReport { level: SandboxLevel::Full, layers: names.clone(), missing: names });
        assert!(serde_json::to_string(&report).expect("json").len() < 32 << 10);
        let long = Failure::of_host(FailureCode::ModelRejected, "x".repeat(1 << 20));
        assert_eq!(failure(long).message.len(), 2_000);
    }

    #[test]
    fn frames_without_output_are_limited_each_second() {
        let start = Instant::now();
        let mut rate = FrameRate::new(start);
        for second in 0..3 {
            let now = start + WINDOW * second;
            assert!((0..MAX_FRAMES).all(|_| rate.count(now)), "second {second}");
        }
        assert!(!rate.count(start + WINDOW * 2));
        let image = island_protocol::event::Image { data: "x".repeat(16 << 20), ..Default::default() };
        let stray = [Numbered { n: 1, event: AttemptEvent::Image(image) }];
        let mut rate = FrameRate::new(start);
        let accepted = (0..100).take_while(|_| rate.count_stray(start, &stray)).count();
        assert!((1..20).contains(&accepted), "{accepted}");
        let key = testing::assignment(1, 1).key;
        let work = vec![JobWork { key, phase: island_runtimes_api::Phase::Run, work: 1 }; MAX_NAMED_JOBS + 1];
        assert!(!FrameRate::new(start).count_pulse(start, &work));
    }
}
