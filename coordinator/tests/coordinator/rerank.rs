//! `POST /rerank`.

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
};

const RANKER: &str = r#"
slug = "ranker"
name = "Ranker"
description = "Scores documents."
category = "text"
runtime_type = "onnx"
onnx_task_type = "text-ranking"
price_per_job = 0.5
required_vram_mb = 0
required_ram_mb = 100
aliases = ["rerank-v3.5"]
[input_schema]
type = "object"
required = ["query", "documents"]
additionalProperties = false
properties = { query = { type = "string" }, documents = { type = "array" } }
[output_schema]
type = "object"
[example]
input = { query = "a", documents = ["b"] }
"#;

async fn start() -> (Network, Island) {
    let network = Network::start_with(|config| {
        std::fs::write(config.catalogue.dir.join("ranker.toml"), RANKER).expect("cargo file");
    })
    .await;
    let island = Island::start_with(&network, RuntimeType::Onnx).await;
    (network, island)
}

fn rerank(network: &Network, path: &str, change: impl FnOnce(&mut Value)) -> RequestBuilder {
    let mut body =
        json!({"model": "ranker", "query": "sea", "documents": ["hill", {"text": "water"}, "ship"]});
    change(&mut body);
    network.call(Method::POST, path).json(&body)
}

#[tokio::test]
async fn documents_are_ordered_by_their_scores() {
    let (network, mut island) = start().await;
    for (path, change, expected) in [
        (
            "/rerank",
            json!({"return_documents": true}),
            json!([
                {"index": 1, "relevance_score": 0.75, "document": {"text": "water"}},
                {"index": 0, "relevance_score": 0.25, "document": {"text": "hill"}},
                {"index": 2, "relevance_score": 0.25, "document": {"text": "ship"}},
            ]),
        ),
        // As Cohere's clients send it.
        ("/v1/rerank", json!({"top_n": 1}), json!([{"index": 1, "relevance_score": 0.75}])),
        (
            "/v2/rerank",
            json!({"model": "rerank-v3.5", "top_n": 2, "max_tokens_per_doc": 100}),
            json!([{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}]),
        ),
    ] {
        let request = rerank(&network, path, |body| {
            body.as_object_mut().expect("a body").extend(change.as_object().expect("fields").clone());
        });
        let ((status, body), id) = tokio::join!(answer(request), async {
            let assignment = island.take().await;
            assert_eq!(
                assignment.input,
                json!({"query": "sea", "documents": ["hill", "water", "ship"]}),
                "{path}"
            );
            let scores = finished(json!({"scores": [0.25, 0.75, 0.25]}));
            island.end(assignment.key, assignment.first_event, scores).await;
            assignment.key.job_id
        });
        assert_eq!((status, &body["results"]), (200, &expected), "{path}");
        assert_eq!((&body["model"], &body["object"]), (&json!("ranker"), &json!("list")));
        assert_eq!(body["id"], format!("rerank-{id}"));
        assert_eq!(body["usage"]["total_tokens"], 1);
        assert_eq!(body["meta"], json!({"tokens": {"input_tokens": 1, "output_tokens": 0}}));
    }
    assert!((network.credits(&network.consumer).await - 8.5).abs() < 1e-9, "three jobs were paid");
    network.audit().await;
}

#[tokio::test]
async fn names_of_others_mean_what_an_island_can_serve() {
    let network = Network::start_with(|config| {
        let file = |slug: &str| config.catalogue.dir.join(format!("{slug}.toml"));
        std::fs::write(file("ranker"), RANKER).expect("cargo file");
        // More memory than any Island has.
        let large = RANKER
            .replace("\"ranker\"", "\"large\"")
            .replace("ram_mb = 100", "ram_mb = 90000000")
            .replace("rerank-v3.5", "rerank");
        std::fs::write(file("large"), large).expect("cargo file");
    })
    .await;
    let mut island = Island::start_with(&network, RuntimeType::Onnx).await;
    network.served("ranker").await;
    for name in ["rerank", "rerank-v3.5", "rerank-english-v3.0", "jina-reranker-v3"] {
        let request = rerank(&network, "/rerank", |body| body["model"] = json!(name));
        let ((status, body), ()) = tokio::join!(answer(request), async {
            let assignment = island.take().await;
            let scores = finished(json!({"scores": [0.25, 0.75, 0.5]}));
            island.end(assignment.key, assignment.first_event, scores).await;
        });
        assert_eq!((status, &body["model"]), (200, &json!("ranker")), "{name}: {body}");
    }
}

type Change = fn(&mut Value);

#[tokio::test]
async fn bad_requests_name_the_field() {
    let (network, _island) = start().await;
    let cases: [(Change, u16, &str); 7] = [
        (|body| body["documents"] = json!([]), 422, "documents"),
        (|body| body["documents"] = json!("hill"), 422, "documents"),
        (|body| body["documents"] = json!(["hill", 1]), 422, "documents.1"),
        (|body| body["query"] = json!(""), 422, "query"),
        (|body| body["top_n"] = json!(0), 422, "top_n"),
        (|body| body["model"] = Value::Null, 422, "model"),
        (|body| body["model"] = json!("echo"), 404, "model"),
    ];
    for (change, expected, param) in cases {
        let (status, body) = answer(rerank(&network, "/rerank", change)).await;
        assert_eq!((status, &body["error"]["param"]), (expected, &json!(param)), "{body}");
        assert!(body["error"]["type"].is_string(), "{body}");
    }
    let (_, body) = answer(rerank(&network, "/rerank", |body| body["model"] = json!("echo"))).await;
    assert_eq!(body["error"]["message"], r#"no Cargo "echo" ranks documents; available: ranker"#);
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0);
}

#[tokio::test]
async fn failures_are_answers_in_the_form_of_the_openai_api() {
    let (network, mut island) = start().await;
    let failure = Failure::of_job(FailureCode::InvalidInput, "query is empty");
    for (outcome, expected) in [
        (Outcome::failed(failure), (422, "invalid_input")),
        (finished(json!({"scores": [0.5]})), (500, "job_failed")),
        (finished(json!({"scores": "high"})), (500, "job_failed")),
    ] {
        let ((status, body), ()) = tokio::join!(answer(rerank(&network, "/rerank", |_| {})), async {
            let assignment = island.take().await;
            island.end(assignment.key, assignment.first_event, outcome).await;
        });
        let code = body["error"]["code"].as_str().expect("a code");
        assert_eq!((status, code), expected, "{body}");
        assert!(body["error"]["type"].is_string());
    }
}

#[tokio::test]
async fn a_job_whose_client_disconnects_is_cancelled() {
    let (network, mut island) = start().await;
    let assignment = tokio::select! {
        _ = rerank(&network, "/rerank", |_| {}).send() => panic!("nothing answers"),
        assignment = island.take() => assignment,
    };
    assert_eq!(island.cancelled().await.key, assignment.key);
}
