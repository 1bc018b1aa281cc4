//! Models that embed or rank texts: vectors and scores against those of transformers on the same random weights
//! (`tools/synthetic-gguf/encoders.py`), and through the worker.

use std::{collections::BTreeMap, path::PathBuf};

use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, InstanceId, JobId},
    job::{FailureCode, Outcome},
};
use island_runtimes_api::{
    RunRequest,
    conformance::{self, Fixture},
};
use island_runtimes_llmcpp::{Llmcpp, Settings};
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host,
    launch::Launch,
};
use serde_json::{Value, json};

/// llama.cpp keeps keys and values in 16 bits and reads GELU from a table of such numbers; the largest difference is 5e-3, of numbers near 1.
const TOLERANCE: f64 = 2e-2;

fn file(name: &str) -> PathBuf {
    island_testing::workspace().join("runtimes/llmcpp/tests/encoders").join(name)
}

fn cases(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(&format!("{name}.json"))).expect("the answers of the library");
    serde_json::from_str(&text).expect("a list")
}

fn cargo(engine: Value) -> CargoSpec {
    serde_json::from_value(json!({"slug": "reader", "runtime_type": "llmcpp", "engine": engine}))
        .expect("a Cargo")
}

fn settings(name: &str, cargo: CargoSpec) -> Settings {
    Settings {
        path: file(&format!("{name}.gguf")),
        projector: None,
        adapter: None,
        cargo,
        slots: 2,
        threads: 1,
        memory_limit_mb: 0,
        gpus: Vec::new(),
    }
}

fn fixture(name: &str, cargo: CargoSpec) -> Fixture {
    let many: Vec<String> =
        (0..2048).map(|number| format!("the ship number {number} is repaired in the harbour")).collect();
    let is_ranker = name.ends_with("rank");
    let good = if is_ranker {
        let ranked = |query: &str| json!({"query": query, "documents": ["the train was late", "ship"]});
        vec![ranked("late?"), ranked("a ship")]
    } else {
        vec![json!({"input": "the train"}), json!({"input": ["a", "b"], "dimensions": 7})]
    };
    Fixture {
        artifacts: BTreeMap::from([("model".to_owned(), file(&format!("{name}.gguf")))]),
        good,
        long: if is_ranker {
            json!({"query": "late?", "documents": many[..1000]})
        } else {
            json!({"input": many})
        },
        bad: vec![
            json!(null),
            json!({}),
            json!({"input": []}),
            json!({"query": "x", "documents": []}),
            json!({"input": 1, "query": 2}),
        ],
        reads_tokens: true,
        cargo,
    }
}

/// The output of a job.
async fn answer(name: &str, cargo: CargoSpec, input: Value) -> Value {
    let engine = Llmcpp::load(settings(name, cargo.clone()), |_, _| {}).await.expect("the model loads");
    let played = fixture(name, cargo).play(&engine, &input).await;
    match played.outcome {
        Outcome::Completed { output: Some(output), usage, .. } => {
            assert!(usage.prompt_tokens > 0 && usage.completion_tokens == 0, "{usage:?}");
            output
        }
        other => panic!("{other:?}"),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("numbers").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn assert_near(title: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len(), "{title}");
    for (one, other) in ours.iter().zip(theirs) {
        assert!((one - other).abs() < TOLERANCE, "{title}: {ours:?}, not {theirs:?}");
    }
}

#[tokio::test]
async fn vectors_equal_those_of_transformers() {
    for (name, pooling, field) in [
        ("bert", None, "mean"),
        ("bert", Some("cls"), "cls"),
        ("qwen3-embed", None, "lasttoken"),
        ("qwen3-embed", Some("lasttoken"), "lasttoken"),
    ] {
        let mut engine = json!({"task": "feature-extraction", "normalize": false});
        if let Some(pooling) = pooling {
            engine["pooling"] = pooling.into();
        }
        let cases = cases(name);
        let texts: Vec<&Value> = cases.iter().map(|case| &case["text"]).collect();
        let output = answer(name, cargo(engine), json!({"input": texts})).await;
        assert_eq!(output["dimensions"], 64);
        for (case, vector) in cases.iter().zip(output["embeddings"].as_array().expect("vectors")) {
            assert_near(
                &format!("{name}, {field}, {}", case["text"]),
                &numbers(vector),
                &numbers(&case[field]),
            );
        }
    }
}

#[tokio::test]
async fn vectors_have_length_one_and_prompts_change_them() {
    let engine = json!({"task": "feature-extraction", "prompts": {"query": "late ship "}, "default_prompt_name": "query"});
    let with = answer("bert", cargo(engine), json!({"input": "train", "dimensions": 8})).await;
    let written = answer(
        "bert",
        cargo(json!({"task": "feature-extraction"})),
        json!({"input": "late ship train", "dimensions": 8}),
    )
    .await;
    assert_eq!(with, written);
    let length: f64 = numbers(&with["embeddings"][0]).iter().map(|number| number * number).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
}

#[tokio::test]
async fn scores_equal_those_of_transformers() {
    for name in ["bert-rank", "qwen3-rank"] {
        for case in cases(name) {
            let input = json!({"query": case["query"], "documents": [case["document"], "train"]});
            let output = answer(name, cargo(json!({"task": "text-ranking"})), input).await;
            let scores = numbers(&output["scores"]);
            assert_eq!(scores.len(), 2);
            assert_near(
                &format!("{name}, {case}"),
                &scores[..1],
                &[case["score"].as_f64().expect("a score")],
            );
        }
    }
}

#[tokio::test]
async fn conform() {
    for (name, task) in [("bert", "feature-extraction"), ("bert-rank", "text-ranking")] {
        let cargo = cargo(json!({"task": task}));
        let engine = Llmcpp::load(settings(name, cargo.clone()), |_, _| {}).await.expect("the model loads");
        // All rules except those of jobs that are cancelled while they generate: these models generate nothing until they are done.
        let fixture = fixture(name, cargo);
        conformance::same_again(&engine, &fixture).await;
        conformance::usage_is_what_was_sent(&engine, &fixture).await;
        conformance::work_grows(&engine, &fixture).await;
        conformance::writes_only_in_scratch(&engine, &fixture).await;
        conformance::bad_input_is_a_failure_of_the_job(&engine, &fixture).await;
        conformance::cancelled_before_the_start(&engine, &fixture).await;
        conformance::nobody_listening(&engine, &fixture).await;
        conformance::concurrent_runs_do_not_mix(&engine, &fixture).await;
    }
}

#[tokio::test]
async fn a_model_without_pooling_or_head_is_rejected() {
    for (name, engine, part) in [
        ("bert", json!({"task": "text-ranking"}), "no head"),
        ("bert", json!({"task": "feature-extraction", "pooling": "sum"}), "pooling must be"),
        ("bert-rank", json!({"task": "feature-extraction"}), "states no pooling"),
    ] {
        let failure =
            Llmcpp::load(settings(name, cargo(engine)), |_, _| {}).await.expect_err("it is rejected");
        assert_eq!(failure.code, FailureCode::ModelRejected);
        assert!(failure.message.contains(part), "{}", failure.message);
    }
}

#[tokio::test]
async fn vectors_come_through_the_worker() {
    let dir = tempfile::tempdir().expect("a directory");
    let cargo = cargo(json!({"task": "feature-extraction"}));
    let launch = Launch {
        artifacts: BTreeMap::from([("model".to_owned(), file("bert.gguf"))]),
        memory_limit_mb: 1024,
        threads: 1,
        slots: 2,
        allow_weak_sandbox: true,
        orphan_timeout_s: 30,
        ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo.clone())
    };
    let binary = env!("CARGO_BIN_EXE_island-worker-llmcpp");
    let mut worker = host::spawn(binary.as_ref(), dir.path(), &launch).await.expect("a worker");
    let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
    let request = Box::new(RunRequest {
        cargo,
        input: json!({"input": "the train was late"}),
        artifacts: launch.artifacts.clone(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    });
    let run = ToWorker::Run { key, first_event: 1, request, reports_steps: false };
    worker.connection.commands.send(run).await.expect("send");
    let output = loop {
        match worker.connection.frames.next().await.expect("the worker lives").expect("a sound frame") {
            FromWorker::LoadFailed { failure } => panic!("{failure:?}"),
            FromWorker::Events { events, .. } => {
                let ended = events.into_iter().find_map(|event| match event.event {
                    AttemptEvent::Ended { outcome } => Some(outcome),
                    _ => None,
                });
                match ended {
                    Some(Outcome::Completed { output: Some(output), .. }) => break output,
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
            _ => {}
        }
    };
    assert_eq!(numbers(&output["embeddings"][0]).len(), 64);
    worker.process.terminate().expect("terminate");
    drop(worker.connection);
    worker.process.wait().await.expect("wait");
}
