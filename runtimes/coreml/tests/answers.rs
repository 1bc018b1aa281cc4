//! Jobs get the answers of the reference, and the engine conforms.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use island_protocol::{
    cargo::CargoSpec,
    job::{Failure, Fault},
};
use island_runtimes_api::conformance::{self, Played, run_all};
use island_runtimes_coreml::runtime::{CoreMl, Settings};
use serde_json::{Value, json};
use support::{Fixture, all};

fn cargo(fixture: &Fixture) -> CargoSpec {
    let mut engine = fixture.engine.clone();
    engine["task"] = fixture.task.clone().into();
    let cargo = json!({ "slug": fixture.name, "runtime_type": "coreml", "engine": engine });
    serde_json::from_value(cargo).expect("a Cargo")
}

async fn load(fixture: &Fixture) -> Result<CoreMl, Failure> {
    load_without(fixture, None).await
}

async fn load_without(fixture: &Fixture, left_out: Option<&str>) -> Result<CoreMl, Failure> {
    let (cargo, mut files) = (cargo(fixture), fixture.files());
    files.retain(|name, _| left_out.is_none_or(|left_out| !name.starts_with(left_out)));
    CoreMl::load(Settings { files, cargo, slots: 2, threads: 1, vram_limit_mb: 0 })
        .await
        .map_err(Failure::from)
}

fn suite(fixture: &Fixture, good: Vec<Value>, long: Value, bad: Vec<Value>) -> conformance::Fixture {
    let reads_tokens = fixture.task == "text-generation";
    conformance::Fixture { cargo: cargo(fixture), artifacts: BTreeMap::new(), good, long, bad, reads_tokens }
}

/// The difference of an answer from the expected one.
fn differs(wanted: &Value, got: &Value, tolerance: f64) -> Option<String> {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(_)) => {
            let inner = |(name, wanted): (&String, &Value)| {
                differs(wanted, got.get(name)?, tolerance).map(|why| format!("{name}: {why}"))
            };
            let missing = wanted.keys().find(|name| got.get(name.as_str()).is_none());
            missing.map(|name| format!("{name} is missing")).or_else(|| wanted.iter().find_map(inner))
        }
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
            wanted.iter().zip(got).find_map(|(wanted, got)| differs(wanted, got, tolerance))
        }
        (Value::Number(one), Value::Number(other)) => {
            let apart = one.as_f64()? - other.as_f64()?;
            (apart.is_nan() || apart.abs() > tolerance).then(|| format!("{other} for {one}"))
        }
        _ => (wanted != got).then(|| format!("{got} for {wanted}")),
    }
}

fn check(fixture: &Fixture, answer: &support::Answer, played: &Played) -> Option<String> {
    let island_protocol::job::Outcome::Completed { output, usage, .. } = &played.outcome else {
        return Some(format!("{:?}", played.outcome));
    };
    if fixture.task == "text-generation" {
        let said = json!({ "text": played.text, "tokens": usage.completion_tokens });
        return differs(&answer.output, &said, 0.0);
    }
    let output = output.clone().unwrap_or_default();
    let lacks = answer.has.iter().find(|name| output.get(name.as_str()).is_none());
    lacks
        .map(|name| format!("{name} is missing"))
        .or_else(|| differs(&answer.output, &output, answer.tolerance))
}

#[tokio::test]
async fn answers_equal_the_reference() {
    let mut wrong = Vec::new();
    for fixture in all().iter().filter(|fixture| !fixture.answers.is_empty()) {
        let suite = suite(fixture, Vec::new(), Value::Null, Vec::new());
        let variants: BTreeSet<Option<&str>> =
            fixture.answers.iter().map(|answer| answer.without.as_deref()).collect();
        for without in variants {
            let engine = load_without(fixture, without).await;
            let engine = engine.unwrap_or_else(|failure| panic!("{}: {}", fixture.name, failure.message));
            for answer in fixture.answers.iter().filter(|answer| answer.without.as_deref() == without) {
                let played = suite.play(&engine, &fixture.filled(&answer.input)).await;
                let at = format!("{}/{}", fixture.name, answer.name);
                wrong.extend(check(fixture, answer, &played).map(|why| format!("{at}: {why}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn classifier_conforms() {
    let fixture = Fixture::named("resnet");
    let engine = load(&fixture).await.expect("loads");
    let image = &fixture.answers[0].input["image"];
    let good = vec![json!({ "image": image, "top_k": 1 }), json!({ "image": image, "top_k": 2 })];
    let bad = vec![json!({}), json!({ "image": "" }), json!({ "image": "aGVsbG8=" }), json!({ "image": 5 })];
    // Each job is short: only waiting for a permit is cancelled.
    let suite = suite(&fixture, good, json!({ "image": image }), bad);
    for input in &suite.good {
        assert_eq!(suite.play(&engine, input).await.outcome, suite.play(&engine, input).await.outcome);
    }
    conformance::bad_input_is_a_failure_of_the_job(&engine, &suite).await;
    conformance::writes_only_in_scratch(&engine, &suite).await;
}

#[tokio::test]
async fn language_model_conforms() {
    let fixture = Fixture::named("llama");
    let engine = load(&fixture).await.expect("loads");
    let good = fixture.answers.iter().map(|answer| answer.input.clone()).collect();
    let bad = vec![
        json!({}),
        json!({ "prompt": "" }),
        json!({ "messages": [] }),
        json!({ "messages": [{ "role": "king", "content": "x" }] }),
        json!({ "prompt": "x", "max_tokens": 0 }),
        json!({ "prompt": "x", "temperature": "hot" }),
        json!({ "prompt": "the rain ".repeat(200) }),
    ];
    let long = json!({ "prompt": "the train", "temperature": 9.0, "seed": 4 });
    run_all(&engine, &suite(&fixture, good, long, bad)).await;
}

#[tokio::test]
async fn unknown_task_is_a_failure_of_the_host_with_the_known_tasks() {
    let mut fixture = Fixture::named("resnet");
    fixture.task = "chess".to_owned();
    let failure = load(&fixture).await.expect_err("refused");
    assert_eq!(failure.fault, Fault::Host);
    assert!(failure.message.contains("image-classification"), "{}", failure.message);
}
