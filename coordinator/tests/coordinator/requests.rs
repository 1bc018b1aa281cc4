//! Bad input: which status, which code, which field, and that nothing is left behind.

use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::support::network::Network;

async fn problem(request: reqwest::RequestBuilder) -> (u16, String, Option<String>) {
    let response = request.send().await.expect("answer");
    let status = response.status().as_u16();
    let body: Value = response.json().await.expect("every error has the error body");
    let error = &body["error"];
    assert!(error["message"].is_string(), "{body}");
    assert_eq!(error["request_id"].is_string(), status >= 500);
    (status, error["code"].as_str().expect("code").to_owned(), error["param"].as_str().map(str::to_owned))
}

#[tokio::test]
async fn every_bad_request_has_its_code() {
    let network = Network::start().await;
    let json = |body: Value| network.call(Method::POST, "/jobs").json(&body);
    let raw = |body: &'static str| {
        network.call(Method::POST, "/jobs").header(header::CONTENT_TYPE, "application/json").body(body)
    };
    let get = |path: &str| network.call(Method::GET, path);
    let unknown_job = format!("/jobs/{}", uuid::Uuid::new_v4());
    let fine = json!({"prompt": "x"});
    let cases = [
        (raw("{"), 400, "invalid_json", None),
        (raw(r#"{"workload":"echo","workload":"echo","input":{}}"#), 400, "invalid_json", None),
        (raw("{} {}"), 400, "invalid_json", None),
        (raw("[]"), 422, "validation_error", None),
        (json(json!({"input": fine})), 422, "validation_error", Some("workload")),
        (json(json!({"workload": "echo"})), 422, "validation_error", Some("input")),
        (json(json!({"workload": "echo", "input": []})), 422, "validation_error", Some("input")),
        (
            json(json!({"workload": "echo", "input": fine, "priority": 101})),
            422,
            "validation_error",
            Some("priority"),
        ),
        (
            json(json!({"workload": "echo", "input": fine, "priority": 1.5})),
            422,
            "validation_error",
            Some("priority"),
        ),
        (json(json!({"workload": "echo", "input": fine, "prio": 1})), 422, "validation_error", Some("prio")),
        (json(json!({"workload": "nothing", "input": {}})), 404, "workload_not_found", None),
        (
            json(json!({"workload": "echo", "input": {"prompt": 1}})),
            422,
            "invalid_input",
            Some("input.prompt"),
        ),
        (
            json(json!({"workload": "echo", "input": {"colour": 1}})),
            422,
            "invalid_input",
            Some("input.colour"),
        ),
        (network.call(Method::POST, "/jobs").body("{}"), 415, "unsupported_media_type", None),
        (get("/jobs?limit=0"), 422, "validation_error", Some("limit")),
        (get("/jobs?limit=101"), 422, "validation_error", Some("limit")),
        (get("/jobs?limit=abc"), 400, "invalid_request", Some("limit")),
        (get("/jobs?offset=-1"), 400, "invalid_request", Some("offset")),
        (get("/cargos?runtime_type=java"), 422, "validation_error", Some("runtime_type")),
        (get("/cargos?category=fun"), 422, "validation_error", Some("category")),
        (get(&unknown_job), 404, "job_not_found", None),
        (get("/jobs/not-an-id"), 404, "job_not_found", None),
        (get("/hosts/not-an-id"), 404, "host_not_found", None),
        (get("/workloads/nothing"), 404, "workload_not_found", None),
        (get("/nowhere"), 404, "not_found", None),
        (network.call(Method::PUT, "/jobs"), 405, "method_not_allowed", None),
        (network.http.get(format!("{}/account", network.url)), 401, "missing_api_key", None),
        (
            network.http.get(format!("{}/account", network.url)).bearer_auth("ak_wrongwrongwrong"),
            401,
            "invalid_api_key",
            None,
        ),
        (network.http.get(format!("{}/account", network.url)).bearer_auth("x"), 401, "invalid_api_key", None),
    ];
    for (index, (request, status, code, param)) in cases.into_iter().enumerate() {
        let found = problem(request).await;
        assert_eq!(found, (status, code.to_owned(), param.map(str::to_owned)), "case {index}");
    }
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0, "a rejected request leaves no job");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9, "and no hold");
}

#[tokio::test]
async fn checks_come_in_order() {
    let network = Network::start().await;
    let url = format!("{}/jobs", network.url);
    let big = "x".repeat((1 << 20) + 1);
    let oversized = network.http.post(&url).body(big.clone());
    assert_eq!(problem(oversized).await.1, "payload_too_large", "size before key");
    let nameless = network.http.post(&url).body("{");
    assert_eq!(problem(nameless).await.1, "missing_api_key", "key before media type and JSON");
    let wrong_method = network.http.patch(&url).body(big);
    let response = wrong_method.send().await.expect("answer");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let allow = response.headers()[header::ALLOW].to_str().expect("text").to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let body = json!({"workload": "nothing", "input": {}, "extra": 1});
    assert_eq!(problem(network.call(Method::POST, "/jobs").json(&body)).await.1, "validation_error");
}

#[tokio::test]
async fn a_401_says_how_to_authenticate() {
    let network = Network::start().await;
    let response = network.http.get(format!("{}/account", network.url)).send().await.expect("answer");
    assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
}

#[tokio::test]
async fn credits_and_limits_bound_what_is_accepted() {
    let network = Network::start_with(|config| {
        config.limits.concurrent_jobs = 3;
        config.limits.concurrent_streams = 2;
    })
    .await;
    let submit = || {
        let body = json!({"workload": "echo", "input": {"prompt": "x"}});
        network.call(Method::POST, "/jobs").json(&body)
    };
    let id = network.submit().await;
    let rest = futures::future::join_all((0..7).map(|_| submit().send())).await;
    let accepted = rest.into_iter().filter(|r| r.as_ref().is_ok_and(|r| r.status() == 201)).count();
    assert_eq!(accepted, 2, "three at once");
    assert_eq!(problem(submit()).await, (429, "concurrent_jobs_exceeded".to_owned(), None));
    let _first = network.stream(&id, 0).await;
    let second = network.stream(&id, 0).await;
    let third = network.call(Method::GET, &format!("/jobs/{id}/stream"));
    assert_eq!(problem(third).await.1, "concurrent_streams_exceeded");
    drop(second);

    let poor = json!({"workload": "count", "input": {"text": "x"}});
    let request =
        network.http.post(format!("{}/jobs", network.url)).bearer_auth(&network.owner.key).json(&poor);
    let response = request.send().await.expect("answer");
    assert_eq!(response.status(), StatusCode::PAYMENT_REQUIRED);
    let body: Value = response.json().await.expect("json");
    assert_eq!(body["error"]["code"], "insufficient_credits");
    assert_eq!(body["error"]["message"], "0.25 credits are needed and 0 are available");
    network.audit().await;
}

#[tokio::test]
async fn parallel_submits_never_overspend() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 1_000).await;
    let submit = || {
        let body = json!({"workload": "echo", "input": {"prompt": "x"}});
        network.call(Method::POST, "/jobs").json(&body).send()
    };
    let answers = futures::future::join_all((0..40).map(|_| submit())).await;
    let count =
        |status: u16| answers.iter().filter(|a| a.as_ref().is_ok_and(|a| a.status() == status)).count();
    assert_eq!((count(201), count(402)), (10, 30));
    assert!(network.credits(&network.consumer).await.abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn somebody_elses_job_does_not_exist() {
    let network = Network::start().await;
    let id = network.submit().await;
    for (method, path) in [
        (Method::GET, format!("/jobs/{id}")),
        (Method::DELETE, format!("/jobs/{id}")),
        (Method::GET, format!("/jobs/{id}/stream")),
        (Method::GET, format!("/jobs/{id}/output")),
    ] {
        let request =
            network.http.request(method, format!("{}{path}", network.url)).bearer_auth(&network.owner.key);
        assert_eq!(problem(request).await, (404, "job_not_found".to_owned(), None), "{path}");
    }
}

#[tokio::test]
async fn a_bad_last_event_id_is_refused() {
    let network = Network::start().await;
    let id = network.submit().await;
    for bad in ["x", "-1", "1.5"] {
        let request = network.call(Method::GET, &format!("/jobs/{id}/stream")).header("Last-Event-ID", bad);
        assert_eq!(problem(request).await, (400, "invalid_request".to_owned(), None), "{bad}");
    }
}
