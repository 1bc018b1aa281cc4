//! The worker binary: in the real sandbox, it loads the model and replies.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use island_protocol::{
    event::AttemptEvent,
    host::SandboxLevel,
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{self, Exit},
    launch::{EXIT_LOAD_FAILED, Launch, ProbeReport},
};
use serde_json::json;

const BINARY: &str = env!("CARGO_BIN_EXE_island-worker-llmcpp");

fn launch(model: PathBuf) -> Launch {
    let cargo = json!({"slug": "llm-chat", "runtime_type": "llmcpp"});
    let cargo = serde_json::from_value(cargo).expect("a Cargo");
    Launch {
        artifacts: BTreeMap::from([("model".to_owned(), model)]),
        memory_limit_mb: 1024,
        threads: 2,
        slots: 2,
        allow_weak_sandbox: true,
        orphan_timeout_s: 30,
        ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo)
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), future).await.expect("in time")
}

fn repository(path: &str) -> PathBuf {
    island_testing::workspace().join(path)
}

/// The text of a worker's reply, how it ended, and how far the worker was confined.
async fn reply(launch: &Launch) -> (String, Outcome, SandboxLevel) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut worker = host::spawn(BINARY.as_ref(), dir.path(), launch).await.expect("a worker");
    let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
    let request = Box::new(RunRequest {
        cargo: launch.cargo.clone(),
        input: json!({"prompt": "Tell me about the sea.", "max_tokens": 20, "temperature": 0}), // words: ok
        artifacts: launch.artifacts.clone(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    });
    worker
        .connection
        .commands
        .send(ToWorker::Run { key, first_event: 1, request, reports_steps: false })
        .await
        .expect("send");
    let (mut text, mut level, mut ended) = (String::new(), None, None);
    while ended.is_none() {
        match within(worker.connection.frames.next()).await.expect("the worker lives").expect("a sound frame")
        {
            FromWorker::Hello { sandbox, .. } => level = Some(sandbox.level),
            FromWorker::LoadFailed { failure } => panic!("{failure:?}"),
            FromWorker::Events { events, .. } => {
                for event in events {
                    match event.event {
                        AttemptEvent::Token { content, .. } => text.push_str(&content),
                        AttemptEvent::Ended { outcome } => ended = Some(outcome),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    worker.process.terminate().expect("terminate");
    drop(worker.connection);
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(0));
    (text, ended.expect("it ended"), level.expect("it reports its sandbox"))
}

/// Why a worker could not load.
async fn load_failure(launch: &Launch) -> Failure {
    let dir = tempfile::tempdir().expect("a directory");
    let mut worker = host::spawn(BINARY.as_ref(), dir.path(), launch).await.expect("a worker");
    let failure = loop {
        match within(worker.connection.frames.next()).await.expect("it speaks first").expect("a sound frame")
        {
            FromWorker::LoadFailed { failure } => break failure,
            FromWorker::Ready { .. } => panic!("it loaded an invalid file"),
            _ => {}
        }
    };
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(EXIT_LOAD_FAILED));
    failure
}

#[tokio::test]
async fn replies_in_the_full_sandbox() {
    let launch = launch(repository("cargos/models/island-tiny-chat.gguf"));
    let (text, outcome, level) = reply(&launch).await;
    assert!(
        matches!(&outcome, Outcome::Completed { usage, .. } if usage.completion_tokens > 0),
        "{outcome:?}"
    );
    assert!(!text.is_empty());
    if cfg!(target_os = "linux") {
        assert_eq!(level, SandboxLevel::Full, "this kernel supports the full sandbox");
    }
}

#[tokio::test]
async fn an_invalid_model_is_reported_in_a_frame() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = dir.path().join("model.gguf");
    std::fs::write(&model, b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff").expect("write");
    assert_eq!(load_failure(&launch(model)).await.code, FailureCode::ModelRejected);
}

#[tokio::test]
async fn a_model_in_several_files_replies_as_in_one() {
    let part =
        |number: u64| repository(&format!("runtimes/llmcpp/tests/split/llama-{number:05}-of-00003.gguf"));
    let of = |parts: &[(&str, u64)]| {
        let artifacts = parts.iter().map(|&(name, number)| (name.to_owned(), part(number))).collect();
        Launch { artifacts, ..launch(part(1)) }
    };
    let whole = reply(&launch(repository("runtimes/llmcpp/tests/architectures/llama.gguf"))).await;
    assert!(whole.0.len() > 10, "{whole:?}");
    assert_eq!(reply(&of(&[("model", 1), ("model-2", 2), ("model-3", 3)])).await, whole);
    for (parts, problem) in [
        (&[("model", 1)][..], "does not name as many files"),
        (&[("model", 1), ("model-2", 2)], "does not name as many files"),
        (&[("model", 1), ("model-2", 3), ("model-3", 2)], "not in the order"),
        (&[("model", 2), ("model-2", 1), ("model-3", 3)], "begins with another file"),
    ] {
        let failure = load_failure(&of(parts)).await;
        assert_eq!(failure.code, FailureCode::ModelRejected, "{parts:?}");
        assert!(failure.message.contains(problem), "{parts:?}: {}", failure.message);
    }
}

#[tokio::test]
async fn a_probe_names_the_processor_variant() {
    let output = within(tokio::process::Command::new(BINARY).arg("--probe").output()).await.expect("it runs");
    let report: ProbeReport = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report.unavailable, None);
    assert!(!report.devices.is_empty());
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let variant = report.details.get("cpu_variant").expect("a variant is named");
        let generic = variant.contains("cpu-x64") || variant.contains("cpu-sse42");
        assert!(
            !generic || !std::arch::is_x86_feature_detected!("avx2"),
            "{variant} wastes what this processor has"
        );
    }
}
