//! The order of the checks: which one of two errors is reported.

use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};

use super::problem;
use crate::support::network::Network;

async fn reported(request: RequestBuilder) -> String {
    problem(request).await.1
}

#[tokio::test]
async fn from_route_to_credits() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 1).await;
    let url = |path: &str| format!("{}{path}", network.url);
    let big = || vec![b' '; (9 << 20) + 1];
    let poor = |body: &Value| network.http.post(url("/jobs")).bearer_auth(&network.owner.key).json(body);
    let fine = json!({"workload": "echo", "input": {"prompt": "x"}});
    let with = |change: fn(&mut Value)| {
        let mut body = fine.clone();
        change(&mut body);
        body
    };

    assert_eq!(reported(network.http.patch(url("/nowhere")).body(big())).await, "not_found", "route first");
    let response = network.http.patch(url("/jobs")).body(big()).send().await.expect("answer");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "method before size");
    let allow = response.headers()[header::ALLOW].to_str().expect("text");
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    assert_eq!(
        reported(network.http.post(url("/jobs")).body(big())).await,
        "payload_too_large",
        "size before key"
    );
    assert_eq!(
        reported(network.http.post(url("/jobs")).body("{")).await,
        "missing_api_key",
        "key before media type"
    );
    let post = || network.call(Method::POST, "/jobs");
    assert_eq!(reported(post().body("{")).await, "unsupported_media_type", "media type before JSON");
    let broken = post().header(header::CONTENT_TYPE, "application/json").header("Idempotency-Key", "");
    assert_eq!(reported(broken.body("{")).await, "invalid_json", "JSON before the rest");
    let both = with(|body| {
        body["workload"] = json!("nothing");
        body["extra"] = json!(1);
    });
    assert_eq!(reported(post().json(&both)).await, "validation_error", "fields before what they name");
    let both = with(|body| {
        body["workload"] = json!("nothing");
        body["input"] = json!({"prompt": 1});
    });
    assert_eq!(reported(post().json(&both)).await, "workload_not_found", "the Cargo before its schema");

    let keyed = |body: &Value| post().header("Idempotency-Key", "k").json(body);
    assert_eq!(keyed(&fine).send().await.expect("answer").status(), StatusCode::CREATED);
    assert_eq!(reported(keyed(&with(|body| body["input"] = json!({"prompt": 1})))).await, "invalid_input");
    let other = with(|body| body["input"] = json!({"prompt": "y"}));
    assert_eq!(reported(keyed(&other)).await, "idempotency_key_reused", "idempotency before limits");
    assert_eq!(
        keyed(&fine).send().await.expect("answer").status(),
        StatusCode::CREATED,
        "a replay needs no room"
    );
    assert_eq!(reported(post().json(&other)).await, "concurrent_jobs_exceeded");
    assert_eq!(reported(poor(&fine)).await, "insufficient_credits");
}

#[tokio::test]
async fn the_rate_limit_between_key_and_scope() {
    let network = Network::start_with(|config| config.limits.requests_per_minute = 2).await;
    let made = network.call(Method::POST, "/api-keys").json(&json!({"name": "r", "scopes": "read"}));
    let made: Value = made.send().await.expect("answer").json().await.expect("json");
    let post = |key: &str| network.http.post(format!("{}/jobs", network.url)).bearer_auth(key).body("{");
    let reader = made["key"].as_str().expect("key");
    assert_eq!(reported(post(reader)).await, "forbidden", "scope before media type");
    assert_eq!(reported(post(reader)).await, "rate_limited");
    assert_eq!(reported(post("ak_wrongwrongwrong")).await, "invalid_api_key");
}

#[tokio::test]
async fn limits_before_credits() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 10).await;
    let body = json!({"workload": "echo", "input": {"prompt": "x"}});
    let post = || network.call(Method::POST, "/jobs").json(&body);
    for _ in 0..10 {
        assert_eq!(post().send().await.expect("answer").status(), StatusCode::CREATED);
    }
    assert_eq!(
        reported(post()).await,
        "concurrent_jobs_exceeded",
        "all credits are held, and ten jobs are open"
    );
}
