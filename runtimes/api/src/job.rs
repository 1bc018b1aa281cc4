//! What a run is given.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use island_protocol::{
    cargo::CargoSpec,
    event::{AttemptEvent, Image},
    ids::AttemptKey,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::log::JobLog;

/// What to run: the Cargo, its verified files and the input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The Cargo, limits included.
    pub cargo: CargoSpec,
    /// Input, already valid under the Cargo's schema; engines still check every number's range.
    pub input: Value,
    /// Verified local files by artifact name.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// Text that an earlier attempt delivered: an engine that writes text goes on behind it and does not repeat it. Only engines whose
    /// replies can be continued are given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// State such as prompt prefixes may be shared only between requests of one scope.
    pub scope: String,
}

/// Where a job runs, and where its events go.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// Which attempt this is; engines put it on whatever they start.
    pub key: AttemptKey,
    /// Takes the job's events. Never waits.
    pub events: EventSink,
    /// Triggered: end within one step.
    pub cancel: CancellationToken,
    /// The only place to write; removed afterwards by its owner.
    pub scratch: PathBuf,
    /// Distinguishes a long step from a stall.
    pub work: WorkCounter,
    /// Receives the debug output of the Cargo's program, for the owner.
    pub log: JobLog,
}

/// Where an engine sends its events. Sending never blocks; the host side enforces the output limits.
#[derive(Clone)]
pub struct EventSink(mpsc::UnboundedSender<AttemptEvent>);

impl EventSink {
    /// A sink and the end to read it from.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<AttemptEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// A piece of text, cut at whole characters, that stands for `count` model tokens.
    pub fn token(&self, content: impl Into<String>, count: u32) {
        self.send(AttemptEvent::Token { content: content.into(), count });
    }

    /// Step `step` of `total` of `phase`.
    pub fn progress(&self, phase: &str, step: u64, total: u64) {
        self.send(AttemptEvent::Progress { step, total, phase: Some(phase.to_owned()) });
    }

    /// A new phase of the job.
    pub fn status(&self, state: &str) {
        self.send(AttemptEvent::Status { state: state.to_owned() });
    }

    /// An image.
    pub fn image(&self, image: Image) {
        self.send(AttemptEvent::Image(image));
    }

    /// Dropping the receiver also cancels the run, so the event is not needed.
    fn send(&self, event: AttemptEvent) {
        let _ = self.0.send(event);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

/// The phase of a run. Stalls are detected per phase: a long load is not a stall, a decode without progress is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Phase {
    /// Waiting for a slot.
    Wait = 0,
    /// Bytes are being fetched.
    Fetch = 1,
    /// Tensors are being loaded.
    Load = 2,
    /// Prompt tokens are being read.
    Prompt = 3,
    /// Output is being produced.
    Run = 4,
}

impl Phase {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A number that grows while work is done, and the phase it belongs to. Cheap enough for every decode call.
#[derive(Debug, Clone, Default)]
pub struct WorkCounter(Arc<WorkState>);

#[derive(Debug, Default)]
struct WorkState {
    phase: AtomicU8,
    done: AtomicU64,
}

impl WorkCounter {
    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::Relaxed);
        self.advance(1);
    }

    /// Counts `amount` more work.
    pub fn advance(&self, amount: u64) {
        self.0.done.fetch_add(amount, Ordering::Relaxed);
    }

    /// The phase, and work done since the run began.
    pub fn read(&self) -> (Phase, u64) {
        let phase = match self.0.phase.load(Ordering::Relaxed) {
            1 => Phase::Fetch,
            2 => Phase::Load,
            3 => Phase::Prompt,
            4 => Phase::Run,
            _ => Phase::Wait,
        };
        (phase, self.0.done.load(Ordering::Relaxed))
    }
}
