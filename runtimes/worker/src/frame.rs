//! The messages on a worker's socket: a `u32` length, big-endian, and this number of bytes of JSON.

use island_protocol::{
    event::{AttemptEvent, Numbered},
    host::SandboxReport,
    ids::{AttemptKey, InstanceId},
    job::Failure,
};
use island_runtimes_api::{Phase, RunRequest, Step};
use serde::{Deserialize, Serialize};

/// Maximum length of a frame in either direction.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// Sent by the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToWorker {
    /// Run this attempt. Ignored if the worker already holds it.
    Run {
        /// The attempt.
        key: AttemptKey,
        /// Number of its first event.
        first_event: u64,
        /// The request.
        request: Box<RunRequest>,
        /// Whether to send [`FromWorker::Steps`] before its end.
        #[serde(default)]
        reports_steps: bool,
    },
    /// End this attempt within one step.
    Cancel {
        /// The attempt.
        key: AttemptKey,
        /// The reason: becomes the failure of its outcome.
        failure: Failure,
    },
    /// Send this attempt's events again from this number on, and all later ones. Sent after attaching.
    Replay {
        /// The attempt.
        key: AttemptKey,
        /// Number of the first event to send.
        from: u64,
    },
    /// Events below this number are spooled and may be dropped; beyond the end, the attempt too.
    Spooled {
        /// The attempt.
        key: AttemptKey,
        /// Number of the first event that is still needed.
        below: u64,
    },
    /// Exit when no attempt is left; at once if `now`.
    Shutdown {
        /// Whether to cancel running attempts.
        now: bool,
    },
}

/// Sent by the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromWorker {
    /// First frame of every connection, and only that.
    Hello {
        /// This worker.
        instance: InstanceId,
        /// Its process id.
        pid: u32,
        /// Attempts it holds, with the number each continues from.
        jobs: Vec<HeldJob>,
        /// The sandbox around it.
        sandbox: SandboxReport,
        /// Whether its model is loaded.
        ready: bool,
    },
    /// The model is being loaded.
    Loading {
        /// Parts loaded.
        done: u64,
        /// Total parts.
        total: u64,
    },
    /// The model is loaded and jobs run.
    Ready {
        /// Version of the engine.
        version: String,
        /// Jobs at once.
        slots: u32,
        /// Memory the engine allocated on GPUs, megabytes.
        vram_mb: u64,
    },
    /// The model could not be loaded; the worker exits after this frame.
    LoadFailed {
        /// The failure.
        failure: Failure,
    },
    /// The next events of an attempt.
    Events {
        /// The attempt.
        key: AttemptKey,
        /// Consecutive events.
        events: Vec<Numbered<AttemptEvent>>,
    },
    /// What an attempt spent its time with, sent once before its end if that was requested.
    Steps {
        /// The attempt.
        key: AttemptKey,
        /// In the order of their beginning, at most [`island_runtimes_api::MAX_STEPS`].
        steps: Vec<Step>,
    },
    /// Every second: a sign of life, work done and memory used.
    Pulse {
        /// Per attempt: phase and work.
        work: Vec<JobWork>,
        /// Resident memory, megabytes.
        rss_mb: u64,
    },
}

impl FromWorker {
    /// The name of its kind, as on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Loading { .. } => "loading",
            Self::Ready { .. } => "ready",
            Self::LoadFailed { .. } => "load_failed",
            Self::Events { .. } => "events",
            Self::Steps { .. } => "steps",
            Self::Pulse { .. } => "pulse",
        }
    }
}

/// An attempt a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    /// The attempt.
    pub key: AttemptKey,
    /// Number of the oldest event that it still has.
    pub oldest_event: u64,
    /// Number of the next event that it will emit.
    pub next_event: u64,
}

/// Work done on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWork {
    /// The attempt.
    pub key: AttemptKey,
    /// Its phase.
    pub phase: Phase,
    /// Grows while work is done.
    pub work: u64,
}
