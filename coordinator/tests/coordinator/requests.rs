//! Limits on requests: credits, limits, access to jobs.

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
async fn a_401_says_how_to_authenticate() {
    let network = Network::start().await;
    let response = network.http.get(format!("{}/account", network.url)).send().await.expect("answer");
    assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
}

#[tokio::test]
async fn credits_and_limits_bound_accepted_jobs() {
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
    assert_eq!((&body["error"]["required"], &body["error"]["available"]), (&json!(0.25), &json!(0)));
    network.audit().await;
}

#[tokio::test]
async fn parallel_submits_never_overspend() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 1_000).await;
    let submit = || {
        let body = json!({"workload": "echo", "input": {"prompt": "x"}});
        network.call(Method::POST, "/jobs").json(&body).send()
    };
    let answers = futures::future::join_all((0..200).map(|_| submit())).await;
    let count =
        |status: u16| answers.iter().filter(|a| a.as_ref().is_ok_and(|a| a.status() == status)).count();
    assert_eq!((count(201), count(402)), (10, 190));
    assert!(network.credits(&network.consumer).await.abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn a_job_of_another_account_does_not_exist() {
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
