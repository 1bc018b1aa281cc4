//! `POST /moderations`.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode, Outcome},
};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, finished},
    network::Network,
    problem,
};

const JUDGE: &str = r#"
slug = "judge"
name = "Judge"
description = "Scores texts."
category = "text"
runtime_type = "onnx"
onnx_task_type = "text-classification"
price_per_job = 0.5
required_vram_mb = 0
required_ram_mb = 100
[engine.moderation]
insult = "harassment"
hatred = "hate"
[input_schema]
type = "object"
required = ["text"]
additionalProperties = false
properties = { text = { type = "string" } }
[output_schema]
type = "object"
[example]
input = { text = "a" }
"#;

async fn start() -> (Network, Island) {
    let network = Network::start_with(|config| {
        std::fs::write(config.catalogue.dir.join("judge.toml"), JUDGE).expect("cargo file");
        let other = JUDGE.replace("\"judge\"", "\"feelings\"").replace("[engine.moderation]", "[engine.labels]");
        std::fs::write(config.catalogue.dir.join("feelings.toml"), other).expect("cargo file");
    })
    .await;
    let island = Island::start_with(&network, RuntimeType::Onnx).await;
    (network, island)
}

fn moderate(network: &Network, body: &Value) -> RequestBuilder {
    network.call(Method::POST, "/moderations").json(body)
}

fn scores(insult: f64, hatred: f64) -> Outcome {
    finished(json!({"label": "insult", "score": insult, "scores": [
        {"label": "insult", "score": insult}, {"label": "hatred", "score": hatred}, {"label": "calm", "score": 1.0},
    ]}))
}

#[tokio::test]
async fn texts_are_judged_by_the_categories_of_the_labels() {
    let (network, mut island) = start().await;
    let request = moderate(&network, &json!({"input": ["first", "second"], "model": "omni-moderation-latest"}));
    let ((status, body), ()) = tokio::join!(answer(request), async {
        for _ in 0..2 {
            let assignment = island.take().await;
            let text = assignment.input["text"].as_str().expect("a text").to_owned();
            let outcome = if text == "second" { scores(0.9, 0.1) } else { scores(0.0, 0.25) };
            island.end(assignment.key, assignment.first_event, outcome).await;
        }
    });
    assert_eq!((status, &body["model"]), (200, &json!("judge")), "{body}");
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with("modr-")), "{body}");
    let results = body["results"].as_array().expect("results");
    let flags: Vec<&Value> = results.iter().map(|result| &result["flagged"]).collect();
    assert_eq!(flags, [false, true]);
    assert_eq!(results[1]["category_scores"]["harassment"], 0.9);
    assert_eq!(results[1]["categories"]["hate"], false);
    assert_eq!(results[0]["categories"]["self-harm"], Value::Null, "what is not judged is not false");
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "each text is a job");
}

#[tokio::test]
async fn a_text_that_is_too_long_for_the_model_is_judged_in_pieces() {
    let (network, mut island) = start().await;
    let text = "word ".repeat(300);
    let request = moderate(&network, &json!({"input": text}));
    let ((status, body), seen) = tokio::join!(answer(request), async {
        let mut seen = String::new();
        while seen.len() < text.len() {
            let assignment = island.take().await;
            let piece = assignment.input["text"].as_str().expect("a text").to_owned();
            let outcome = if piece.len() > 800 {
                Outcome::failed(Failure::of_job(FailureCode::InvalidInput, "the text has 900 tokens, the model takes 512"))
            } else {
                seen.push_str(&piece);
                scores(if seen.len() == text.len() { 0.75 } else { 0.0 }, 0.0)
            };
            island.end(assignment.key, assignment.first_event, outcome).await;
        }
        seen
    });
    assert_eq!(seen, text, "no part is left out, and none is judged twice");
    assert_eq!((status, &body["results"][0]["flagged"]), (200, &json!(true)), "{body}");
    assert_eq!(body["results"].as_array().map(Vec::len), Some(1));
    let (status, error) = problem(moderate(&network, &json!({"input": "x".repeat(100_001)}))).await;
    assert_eq!((status, &error["param"]), (422, &json!("input")));
}

#[tokio::test]
async fn only_a_cargo_whose_labels_are_categories_moderates() {
    let (network, _island) = start().await;
    let (status, error) = problem(moderate(&network, &json!({"input": "x", "model": "feelings"}))).await;
    assert_eq!(status, 404);
    assert_eq!(error["message"], "no Cargo \"feelings\" moderates; available: judge");
    for input in [json!(""), json!([]), json!(7), json!([{"type": "image_url", "image_url": {"url": "x"}}])] {
        let (status, _) = problem(moderate(&network, &json!({"input": input}))).await;
        assert_eq!(status, 422, "{input}");
    }
}
