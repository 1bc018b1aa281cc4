//! What a run is given: the request, and where it runs.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use island_protocol::{
    cargo::CargoSpec,
    event::{AttemptEvent, Image},
    ids::AttemptKey,
    reply::{CallDelta, TokenLogprob},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::log::JobLog;

/// What to run: the Cargo, its verified files and the input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The Cargo, with its limits.
    pub cargo: CargoSpec,
    /// Input, already valid under the Cargo's schema; engines still check every number's range.
    pub input: Value,
    /// Verified local files by artifact name.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// Text that an earlier attempt delivered: the engine continues after it and does not repeat it. Only for engines whose replies can be
    /// continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// Reasoning that an earlier attempt delivered before that text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues_reasoning: Option<String>,
    /// State such as prompt prefixes may be shared only between requests of one scope.
    pub scope: String,
}

/// Where a job runs, and where its events go.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// The attempt; engines label everything that they start with it.
    pub key: AttemptKey,
    /// Receives the job's events. Never blocks.
    pub events: EventSink,
    /// Cancellation: the run must end within one step.
    pub cancel: CancellationToken,
    /// The only folder to write to; its creator removes it.
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
    /// Creates a sink and its receiver.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<AttemptEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends a piece of text, split at characters, that stands for `count` model tokens.
    pub fn token(&self, content: impl Into<String>, count: u32) {
        self.send(AttemptEvent::token(content.into(), count));
    }

    /// Sends a piece of an answer with the probabilities of its tokens.
    pub fn token_with_logprobs(&self, content: String, count: u32, logprobs: Vec<TokenLogprob>) {
        self.send(AttemptEvent::Token { content, count, reasoning: false, logprobs, call: None });
    }

    /// Sends a part of a tool call that stands for `count` model tokens.
    pub fn call(&self, part: CallDelta, count: u32) {
        let (content, call) = (String::new(), Some(Box::new(part)));
        self.send(AttemptEvent::Token { content, count, reasoning: false, logprobs: Vec::new(), call });
    }

    /// Sends a piece of the reasoning before an answer.
    pub fn reasoning(&self, content: String, count: u32) {
        self.send(AttemptEvent::Token { content, count, reasoning: true, logprobs: Vec::new(), call: None });
    }

    /// Sends step `step` of `total` of `phase`.
    pub fn progress(&self, phase: &str, step: u64, total: u64) {
        self.send(AttemptEvent::Progress { step, total, phase: Some(phase.to_owned()) });
    }

    /// Sends a new phase of the job.
    pub fn status(&self, state: &str) {
        self.send(AttemptEvent::Status { state: state.to_owned() });
    }

    /// Sends an image.
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
    /// Bytes are being downloaded.
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

/// Maximum steps of a run that are recorded; later ones count as part of the last.
pub const MAX_STEPS: usize = 64;

/// A phase of a run, with its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The phase.
    pub phase: Phase,
    /// From the beginning of the run to that of the phase, microseconds.
    pub begin_us: u64,
    /// Its length, microseconds.
    pub length_us: u64,
}

/// A number that grows while work is done, with its phase. Cheap enough for every decode call.
#[derive(Debug, Clone, Default)]
pub struct WorkCounter(Arc<WorkState>);

#[derive(Debug)]
struct WorkState {
    phase: AtomicU8,
    done: AtomicU64,
    began: Instant,
    /// When each phase began, from the first change on.
    changes: Mutex<Vec<(Phase, Duration)>>,
}

impl Default for WorkState {
    fn default() -> Self {
        Self {
            phase: AtomicU8::default(),
            done: AtomicU64::default(),
            began: Instant::now(),
            changes: Mutex::new(vec![(Phase::Wait, Duration::ZERO)]),
        }
    }
}

impl WorkCounter {
    /// Enters a phase.
    pub fn enter(&self, phase: Phase) {
        let state = &*self.0;
        if state.phase.swap(phase as u8, Ordering::Relaxed) != phase as u8 {
            let mut changes = state.changes.lock();
            if changes.len() < MAX_STEPS {
                changes.push((phase, state.began.elapsed()));
            }
        }
        self.advance(1);
    }

    /// The phases so far, the last one until now.
    pub fn steps(&self) -> Vec<Step> {
        let changes = self.0.changes.lock();
        let ends = changes.iter().skip(1).map(|(_, begin)| *begin).chain([self.0.began.elapsed()]);
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let step = |(&(phase, begin), end): (&(Phase, Duration), Duration)| Step {
            phase,
            begin_us: us(begin),
            length_us: us(end.saturating_sub(begin)),
        };
        changes.iter().zip(ends).map(step).collect()
    }

    /// Counts `amount` more work.
    pub fn advance(&self, amount: u64) {
        self.0.done.fetch_add(amount, Ordering::Relaxed);
    }

    /// The phase, and the work done since the run started.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_a_run_follow_each_other_and_are_few() {
        let work = WorkCounter::default();
        for phase in [Phase::Load, Phase::Load, Phase::Prompt, Phase::Run, Phase::Run] {
            work.enter(phase);
        }
        let steps = work.steps();
        let phases: Vec<_> = steps.iter().map(|step| step.phase).collect();
        assert_eq!(phases, [Phase::Wait, Phase::Load, Phase::Prompt, Phase::Run]);
        // Rounded to microseconds.
        assert!(
            steps.windows(2).all(|pair| pair[1].begin_us.abs_diff(pair[0].begin_us + pair[0].length_us) <= 1),
            "{steps:?}"
        );
        for _ in 0..MAX_STEPS {
            work.enter(Phase::Prompt);
            work.enter(Phase::Run);
        }
        assert_eq!(work.steps().len(), MAX_STEPS);
        assert_eq!(work.read(), (Phase::Run, 5 + 2 * MAX_STEPS as u64));
    }
}
