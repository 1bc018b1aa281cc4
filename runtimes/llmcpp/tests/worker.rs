//! The worker binary: in the real sandbox, it loads the model and replies.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use island_protocol::{
    event::AttemptEvent,
    host::SandboxLevel,
    ids::{AttemptKey, InstanceId, JobId},
    job::{FailureCode, Outcome},
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

#[tokio::test]
async fn replies_in_the_full_sandbox() {
    let dir = tempfile::tempdir().expect("a directory");
    let launch =
        launch(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cargos/models/island-tiny-chat.gguf"));
    let mut worker = host::spawn(BINARY.as_ref(), dir.path(), &launch).await.expect("a worker");
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
    assert!(
        matches!(&ended, Some(Outcome::Completed { usage, .. }) if usage.completion_tokens > 0),
        "{ended:?}"
    );
    assert!(!text.is_empty());
    if cfg!(target_os = "linux") {
        assert_eq!(level, Some(SandboxLevel::Full), "this kernel supports the full sandbox");
    }
    worker.process.terminate().expect("terminate");
    drop(worker.connection);
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(0));
}

#[tokio::test]
async fn an_invalid_model_is_reported_in_a_frame() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = dir.path().join("model.gguf");
    std::fs::write(&model, b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff").expect("write");
    let mut worker =
        host::spawn(BINARY.as_ref(), &dir.path().join("w"), &launch(model)).await.expect("a worker");
    let failure = loop {
        match within(worker.connection.frames.next()).await.expect("it speaks first").expect("a sound frame")
        {
            FromWorker::LoadFailed { failure } => break failure,
            FromWorker::Ready { .. } => panic!("it loaded an invalid file"),
            _ => {}
        }
    };
    assert_eq!(failure.code, FailureCode::ModelRejected);
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(EXIT_LOAD_FAILED));
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
