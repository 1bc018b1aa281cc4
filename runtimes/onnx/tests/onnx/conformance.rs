//! The conformance suite on a model that generates text and on models that answer at once.

use std::collections::BTreeMap;

use island_runtimes_api::conformance::{self, run_all};
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Fixture, settings};
use serde_json::{Value, json};

async fn load(fixture: &Fixture) -> Onnx {
    let loaded = Onnx::load(settings(fixture.cargo(&fixture.task), fixture.files())).await;
    loaded.unwrap_or_else(|failure| panic!("{}: {}", fixture.name, failure.message()))
}

fn suite(fixture: &Fixture, good: Vec<Value>, long: Value, bad: Vec<Value>) -> conformance::Fixture {
    conformance::Fixture {
        cargo: fixture.cargo(&fixture.task),
        artifacts: BTreeMap::new(),
        good,
        long,
        bad,
        reads_tokens: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn translator_conforms() {
    let fixture = Fixture::named("marian-split");
    let text = "The ship lies in Hamburg, on the river.";
    let good = vec![
        json!({ "text": text, "num_beams": 1, "max_new_tokens": 12 }),
        json!({ "text": "Où est le café ?", "num_beams": 1, "max_new_tokens": 12 }),
    ];
    let long = json!({ "text": text, "num_beams": 1, "max_new_tokens": 400, "min_new_tokens": 400 });
    let bad = vec![
        json!({}),
        json!({ "text": 5 }),
        json!({ "text": text, "num_beams": 0 }),
        json!({ "text": text, "max_new_tokens": "many" }),
    ];
    run_all(&load(&fixture).await, &suite(&fixture, good, long, bad)).await;
}

/// All rules except those of jobs that are cancelled while they generate: these models generate nothing until they are done.
async fn keeps_the_contract(name: &str, good: Vec<Value>, bad: Vec<Value>, reads_tokens: bool) {
    let fixture = Fixture::named(name);
    let engine = load(&fixture).await;
    let long = good[0].clone();
    let suite = conformance::Fixture { reads_tokens, ..suite(&fixture, good, long, bad) };
    conformance::same_again(&engine, &suite).await;
    conformance::usage_is_what_was_sent(&engine, &suite).await;
    conformance::work_grows(&engine, &suite).await;
    conformance::writes_only_in_scratch(&engine, &suite).await;
    conformance::bad_input_is_a_failure_of_the_job(&engine, &suite).await;
    conformance::cancelled_before_the_start(&engine, &suite).await;
    conformance::nobody_listening(&engine, &suite).await;
    conformance::concurrent_runs_do_not_mix(&engine, &suite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn embedding_model_conforms() {
    let good =
        vec![json!({ "input": "The ship lies in Hamburg." }), json!({ "input": ["schön", "🙂 again"] })];
    let bad = vec![json!({}), json!({ "input": 5 }), json!({ "input": [] })];
    keeps_the_contract("minilm", good, bad, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_classifier_conforms() {
    let fixture = Fixture::named("resnet");
    let good = fixture.cases.iter().take(2).map(|case| fixture.input(case)).collect();
    let bad = vec![json!({}), json!({ "image": "" }), json!({ "image": "aGVsbG8=" }), json!({ "image": 5 })];
    keeps_the_contract("resnet", good, bad, false).await;
}
