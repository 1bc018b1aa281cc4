//! Jobs get the answers of the reference, and the engine conforms.

use std::{collections::BTreeSet, io::Cursor};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{ImageFormat, Rgb, RgbImage};
use island_protocol::job::{Fault, Outcome};
use island_runtimes_api::conformance::{self, run_all};
use serde_json::{Value, json};

use crate::support::{
    Fixture, all,
    check::{check, load, load_without, suite},
};

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

/// All rules except those of jobs that are cancelled while they compute: these drivers answer at once.
async fn keeps_the_contract(name: &str, good: Vec<Value>, bad: Vec<Value>) {
    let fixture = Fixture::named(name);
    let engine = load(&fixture).await.unwrap_or_else(|failure| panic!("{name}: {}", failure.message));
    let long = good[0].clone();
    let reads_tokens = fixture.task == "feature-extraction";
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

/// Two different images as inputs of a fixture.
fn images(name: &str) -> Vec<Value> {
    let fixture = Fixture::named(name);
    let gradient = RgbImage::from_fn(40, 30, |x, y| Rgb([x as u8 * 6, y as u8 * 8, 90]));
    let mut file = Cursor::new(Vec::new());
    gradient.write_to(&mut file, ImageFormat::Png).expect("written");
    vec![fixture.filled(&fixture.answers[0].input), json!({ "image": STANDARD.encode(file.into_inner()) })]
}

fn no_images() -> Vec<Value> {
    vec![json!({}), json!({ "image": "" }), json!({ "image": "aGVsbG8=" }), json!({ "image": 5 })]
}

#[tokio::test(flavor = "multi_thread")]
async fn image_drivers_conform() {
    for name in ["resnet", "depth", "segformer", "larger"] {
        keeps_the_contract(name, images(name), no_images()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedding_models_conform() {
    for name in ["bert-dynamic", "bert-static"] {
        let good = vec![json!({ "input": "a green boat" }), json!({ "input": ["the sea", "rain"] })];
        let bad = vec![json!({}), json!({ "input": 5 }), json!({ "input": [] }), json!({ "input": [" "] })];
        keeps_the_contract(name, good, bad).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tensors_driver_conforms() {
    let fixture = Fixture::named("functions");
    let once = fixture.filled(&fixture.answers[0].input);
    let twice = json!({ "inputs": [once["inputs"], once["inputs"]] });
    let bad =
        vec![json!({}), json!({ "inputs": [] }), json!({ "inputs": 5 }), json!({ "inputs": { "?": [1] } })];
    keeps_the_contract("functions", vec![once, twice], bad).await;
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
async fn a_job_may_ask_for_any_number_of_tokens() {
    let fixture = Fixture::named("llama");
    let engine = load(&fixture).await.expect("loads");
    let suite = suite(&fixture, Vec::new(), Value::Null, Vec::new());
    let played = suite.play(&engine, &json!({ "prompt": "the train", "max_tokens": u64::MAX })).await;
    let Outcome::Completed { usage, .. } = played.outcome else { panic!("{:?}", played.outcome) };
    assert!(usage.completion_tokens > 0, "{usage:?}");
}

#[tokio::test]
async fn the_stop_text_that_ended_a_reply_is_reported() {
    let fixture = Fixture::named("llama");
    let engine = load(&fixture).await.expect("loads");
    let suite = suite(&fixture, Vec::new(), Value::Null, Vec::new());
    let prompt = "the film was good";
    let answer = fixture.answers.iter().find(|answer| answer.name == prompt).expect("the answer");
    let whole = answer.output["text"].as_str().expect("a text");
    let (begin, _) = whole.split_once("ly").expect("a stop text in it");
    for (stop, expected, text) in
        [(json!(["no such text", "ly"]), Some("ly"), begin), (json!("no such text"), None, whole)]
    {
        let mut input = answer.input.clone();
        input["stop"] = stop;
        let played = suite.play(&engine, &input).await;
        let Outcome::Completed { stop_text, .. } = &played.outcome else { panic!("{:?}", played.outcome) };
        assert_eq!((stop_text.as_deref(), played.text.as_str()), (expected, text));
    }
}

#[tokio::test]
async fn unknown_task_is_a_failure_of_the_host_with_the_known_tasks() {
    let mut fixture = Fixture::named("resnet");
    fixture.task = "chess".to_owned();
    let failure = load(&fixture).await.expect_err("refused");
    assert_eq!(failure.fault, Fault::Host);
    assert!(failure.message.contains("image-classification"), "{}", failure.message);
}
