//! Runs a program and collects its events.

use std::time::{Duration, Instant};

use island_protocol::{
    event::AttemptEvent,
    job::{Failure, Outcome},
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime, WorkCounter};
use island_runtimes_wasm::runtime::Wasm;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{attempt, cargo, request};

/// A finished run.
pub(crate) struct Ran {
    pub(crate) text: String,
    pub(crate) log: String,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

impl Ran {
    pub(crate) fn failure(&self) -> &Failure {
        match &self.outcome {
            Outcome::Failed { failure, .. } => failure,
            Outcome::Completed { .. } => panic!("it completed: {:?}", self.outcome),
        }
    }
}

pub(crate) async fn play(engine: &Wasm, request: RunRequest) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    let (events, mut sent) = EventSink::channel();
    let log = JobLog::default();
    let context = RunContext {
        key: attempt(),
        events,
        cancel: CancellationToken::new(),
        scratch: dir.path().to_owned(),
        work: WorkCounter::default(),
        log: log.clone(),
    };
    let start = Instant::now();
    let outcome = engine.run(request, context).await;
    let took = start.elapsed();
    let mut text = String::new();
    while let Some(event) = sent.recv().await {
        if let AttemptEvent::Token { content, .. } = event {
            text.push_str(&content);
        }
    }
    Ran { text, log: log.text(), outcome, took }
}

pub(crate) async fn run(program: &[u8], fields: Value) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Wasm::new(2).expect("an engine");
    let ran = play(&engine, request(dir.path(), program, cargo(&fields), json!("input"))).await;
    engine.shutdown().await;
    ran
}
