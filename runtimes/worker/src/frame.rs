//! What travels on a worker's socket: a `u32` length, big-endian, and that many bytes of JSON.

use island_protocol::{
    event::{AttemptEvent, Numbered},
    host::SandboxReport,
    ids::{AttemptKey, InstanceId},
    job::Failure,
};
use island_runtimes_api::{Phase, RunRequest};
use serde::{Deserialize, Serialize};

/// Longest frame either side accepts.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// From the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToWorker {
    /// Run this attempt. Repeating one that is here already changes nothing.
    Run {
        /// Which attempt.
        key: AttemptKey,
        /// Number of its first event.
        first_event: u64,
        /// What to run.
        request: Box<RunRequest>,
    },
    /// End this attempt within one step.
    Cancel {
        /// Which attempt.
        key: AttemptKey,
        /// Why: becomes the failure of its outcome.
        failure: Failure,
    },
    /// Send this attempt's events again from a number on, and all that follow. Sent on attaching.
    Replay {
        /// Which attempt.
        key: AttemptKey,
        /// First event wanted.
        from: u64,
    },
    /// Events below this number are spooled and may be forgotten; past the end, the attempt too.
    Spooled {
        /// Which attempt.
        key: AttemptKey,
        /// First event still needed.
        below: u64,
    },
    /// Exit once no attempt is left; at once if `now`.
    Shutdown {
        /// Whether to cancel what runs.
        now: bool,
    },
}

/// From the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromWorker {
    /// First frame of every connection.
    Hello {
        /// This worker.
        instance: InstanceId,
        /// Its process id.
        pid: u32,
        /// Attempts it holds, with the number each continues from.
        jobs: Vec<HeldJob>,
        /// Walls around it.
        sandbox: SandboxReport,
        /// Whether its model is loaded.
        ready: bool,
    },
    /// The model is being loaded.
    Loading {
        /// Parts loaded.
        done: u64,
        /// All parts.
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
        /// Why, and whose fault.
        failure: Failure,
    },
    /// The next events of an attempt.
    Events {
        /// Which attempt.
        key: AttemptKey,
        /// Consecutive events.
        events: Vec<Numbered<AttemptEvent>>,
    },
    /// Every second: proof of life, work done and memory used.
    Pulse {
        /// Per attempt: phase and work.
        work: Vec<JobWork>,
        /// Resident memory, megabytes.
        rss_mb: u64,
    },
}

/// An attempt a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldJob {
    /// Which attempt.
    pub key: AttemptKey,
    /// Number of the oldest event it still has.
    pub oldest_event: u64,
    /// Number of the next event it will make.
    pub next_event: u64,
}

/// Work done on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWork {
    /// Which attempt.
    pub key: AttemptKey,
    /// What it is doing.
    pub phase: Phase,
    /// Grows while work is done.
    pub work: u64,
}
