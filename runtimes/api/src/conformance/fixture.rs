//! What an engine is tested with, and one run of it.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, JobId},
    job::{Outcome, Usage},
};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::{
    job::{EventSink, RunContext, RunRequest, WorkCounter},
    log::JobLog,
    runtime::Runtime,
};

/// Maximum time to wait for anything; reached only by a broken engine.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// A Cargo and inputs for it.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The Cargo.
    pub cargo: CargoSpec,
    /// Its files.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// Inputs whose output is the same at every run; at least two, with different outputs.
    pub good: Vec<Value>,
    /// An input that occupies the engine until it is cancelled.
    pub long: Value,
    /// Inputs that the engine must reject.
    pub bad: Vec<Value>,
    /// Whether it reads tokens: then their number is known even for a cancelled run.
    pub reads_tokens: bool,
}

/// One finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// Joined tokens.
    pub text: String,
    /// Everything that was sent.
    pub events: Vec<AttemptEvent>,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Played {
    /// Number of tokens according to the events.
    pub fn counted(&self) -> u64 {
        let count = |event: &AttemptEvent| match event {
            AttemptEvent::Token { count, .. } => u64::from(*count),
            _ => 0,
        };
        self.events.iter().map(count).sum()
    }

    /// Usage of a completed run.
    pub fn usage(&self) -> Usage {
        match &self.outcome {
            Outcome::Completed { usage, .. } => usage.clone(),
            Outcome::Failed { failure, .. } => panic!("expected a completed run, got {failure:?}"),
        }
    }
}

/// A run that is about to start, and the handles that watch it.
pub(super) struct Stage {
    pub(super) request: RunRequest,
    pub(super) context: RunContext,
    pub(super) events: UnboundedReceiver<AttemptEvent>,
    pub(super) cancel: CancellationToken,
    pub(super) work: WorkCounter,
    pub(super) root: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn stage(&self, input: &Value) -> Stage {
        let root = tempfile::tempdir().expect("a temporary directory");
        let scratch = root.path().join("scratch");
        std::fs::create_dir(&scratch).expect("a scratch directory");
        let (sink, events) = EventSink::channel();
        let (cancel, work) = (CancellationToken::new(), WorkCounter::default());
        let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
        let request = RunRequest {
            cargo: self.cargo.clone(),
            input: input.clone(),
            artifacts: self.artifacts.clone(),
            continues: None,
            continues_reasoning: None,
            scope: "conformance".to_owned(),
        };
        let context = RunContext {
            key,
            events: sink,
            cancel: cancel.clone(),
            scratch,
            work: work.clone(),
            log: JobLog::default(),
        };
        Stage { request, context, events, cancel, work, root }
    }

    /// Runs an input whose reply already began with `text`.
    pub async fn play_on<R: Runtime>(&self, runtime: &R, input: &Value, text: &str) -> Played {
        self.play_after(runtime, input, None, text).await
    }

    /// Runs an input whose reply already began with this reasoning and this text.
    pub async fn play_after<R: Runtime>(
        &self,
        runtime: &R,
        input: &Value,
        reasoning: Option<&str>,
        text: &str,
    ) -> Played {
        let mut stage = self.stage(input);
        stage.request.continues = Some(text.to_owned());
        stage.request.continues_reasoning = reasoning.map(str::to_owned);
        let outcome = within(runtime.run(stage.request, stage.context)).await;
        finish(stage.events, outcome).await
    }

    /// Runs one input to its end.
    pub async fn play<R: Runtime>(&self, runtime: &R, input: &Value) -> Played {
        let stage = self.stage(input);
        let outcome = within(runtime.run(stage.request, stage.context)).await;
        finish(stage.events, outcome).await
    }
}

/// Collects what a finished run sent. Waits until the sink is dropped: an engine that keeps it leaks.
pub(super) async fn finish(mut events: UnboundedReceiver<AttemptEvent>, outcome: Outcome) -> Played {
    let (mut text, mut all) = (String::new(), Vec::new());
    while let Some(event) = within(events.recv()).await {
        assert!(!matches!(event, AttemptEvent::Ended { .. }), "contract: an engine never sends the end");
        if let AttemptEvent::Token { content, .. } = &event {
            text.push_str(content);
        }
        all.push(event);
    }
    Played { text, events: all, outcome }
}

/// Awaits with a limit, so that an engine that hangs fails its test.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the engine answers in time")
}
