//! The table of errors: for each bad request its status, its code and its field; the order of the checks; and that
//! nothing is left behind.

mod order;

use reqwest::{Body, Method, RequestBuilder, header};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed},
    network::Network,
};

/// Sends a request that must fail, checks the form of the error, and returns status, code and field.
async fn problem(request: RequestBuilder) -> (u16, String, Option<String>) {
    let response = request.send().await.expect("answer");
    let status = response.status().as_u16();
    let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
    let challenge = response.headers().contains_key(header::WWW_AUTHENTICATE);
    let body: Value = response.json().await.expect("every error has the error body");
    let error = &body["error"];
    assert!(error["message"].is_string(), "{body}");
    assert_eq!(error["request_id"].is_string(), status >= 500, "{body}");
    assert_eq!(challenge, status == 401);
    let told = retry_after.map(|value| value.to_str().expect("text").parse::<u64>().expect("seconds"));
    assert_eq!(told, error["retry_after"].as_u64(), "{body}");
    (status, error["code"].as_str().expect("code").to_owned(), error["param"].as_str().map(str::to_owned))
}

type Case<'a> = (RequestBuilder, u16, &'a str, Option<&'a str>);

async fn check(what: &str, cases: Vec<Case<'_>>) {
    for (index, (request, status, code, param)) in cases.into_iter().enumerate() {
        let found = problem(request).await;
        assert_eq!(found, (status, code.to_owned(), param.map(str::to_owned)), "{what}: case {index}");
    }
}

async fn check_nothing_is_left(network: &Network) {
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0, "a rejected request leaves no job");
    assert_eq!(network.get("/account/ledger").await["meta"]["total"], 1, "and no hold");
    let pool = network.sql().await;
    let kept: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM idempotency").fetch_one(&pool).await.expect("count");
    assert_eq!(kept, 0);
    pool.close().await;
}

#[tokio::test]
async fn errors_of_the_openai_api_have_a_type_before_the_key_is_known_and_afterwards() {
    let network = Network::start().await;
    let key = json!({"name": "reader", "scopes": ["read"]});
    let made = network.call(Method::POST, "/api-keys").json(&key).send().await.expect("answer");
    let made: Value = made.json().await.expect("json");
    let reader = made["key"].as_str().expect("a key");
    let send = async |method: Method, path: &str, key: Option<&str>| -> (u16, Value) {
        let request = network.http.request(method, format!("{}{path}", network.url));
        let request = if let Some(key) = key { request.bearer_auth(key) } else { request };
        let response = request.json(&json!({})).send().await.expect("answer");
        let status = response.status().as_u16();
        let body: Value = response.json().await.expect("json");
        (status, body["error"]["type"].clone())
    };
    for (method, path) in [
        (Method::GET, "/models"),
        (Method::GET, "/models/echo"),
        (Method::GET, "/files"),
        (Method::POST, "/files"),
        (Method::GET, "/files/file-x"),
        (Method::GET, "/files/file-x/content"),
        (Method::DELETE, "/files/file-x"),
        (Method::GET, "/batches"),
        (Method::POST, "/batches"),
        (Method::GET, "/batches/batch_x"),
        (Method::POST, "/batches/batch_x/cancel"),
        (Method::GET, "/responses/resp_x"),
        (Method::DELETE, "/responses/resp_x"),
        (Method::POST, "/responses/resp_x/cancel"),
        (Method::GET, "/responses/resp_x/input_items"),
        (Method::POST, "/embeddings"),
    ] {
        let found = send(method.clone(), path, None).await;
        assert_eq!(found, (401, json!("authentication_error")), "{method} {path}");
        if method != Method::GET {
            let found = send(method.clone(), path, Some(reader)).await;
            assert_eq!(found, (403, json!("permission_error")), "{method} {path}");
        }
    }
    let (status, kind) = send(Method::GET, "/files?limit=1&limit=2", Some(reader)).await;
    assert_eq!((status, kind), (400, json!("invalid_request_error")));
}

#[tokio::test]
async fn bodies_that_are_not_json() {
    let network = Network::start().await;
    let raw = |body: Body| {
        let request = network.call(Method::POST, "/jobs").header(header::CONTENT_TYPE, "application/json");
        request.header("Idempotency-Key", "k").body(body)
    };
    let text = |body: &str| raw(Body::from(body.to_owned()));
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    check(
        "JSON",
        vec![
            (text(""), 400, "invalid_json", None),
            (text("{"), 400, "invalid_json", None),
            (text("{} {}"), 400, "invalid_json", None),
            (text("{'a': 1}"), 400, "invalid_json", None),
            (text(r#"{"workload": NaN}"#), 400, "invalid_json", None),
            (text(r#"{"workload":"echo","workload":"echo","input":{}}"#), 400, "invalid_json", None),
            (text(r#"{"workload":"echo","input":{"prompt":"a","prompt":"b"}}"#), 400, "invalid_json", None),
            (raw(Body::from(vec![b'"', 0xff, b'"'])), 400, "invalid_json", None),
            (text(&deep(65)), 400, "invalid_json", None),
            (text(&deep(100_000)), 400, "invalid_json", None),
            (text(&deep(64)), 422, "validation_error", None),
            (text("[]"), 422, "validation_error", None),
            (text("null"), 422, "validation_error", None),
            (text(r#"{"workload":"echo","input":{"temperature":1e999}}"#), 422, "validation_error", None),
        ],
    )
    .await;
    let plain = network.call(Method::POST, "/jobs").header(header::CONTENT_TYPE, "text/plain").body("{}");
    let none = network.call(Method::POST, "/jobs").body("{}");
    check(
        "media type",
        vec![(plain, 415, "unsupported_media_type", None), (none, 415, "unsupported_media_type", None)],
    )
    .await;
    check_nothing_is_left(&network).await;
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused_with_and_without_a_length() {
    let network = Network::start().await;
    let request = || network.call(Method::POST, "/jobs").header(header::CONTENT_TYPE, "application/json");
    let chunks = (0..300).map(|_| Ok::<_, std::io::Error>(vec![b' '; 32 << 10]));
    let chunked = request().body(Body::wrap_stream(futures::stream::iter(chunks)));
    let said = request().body(vec![b' '; (9 << 20) + 1]);
    let input = json!({"workload": "count", "input": {"text": "x".repeat((8 << 20) + 1)}});
    check(
        "size",
        vec![
            (said, 413, "payload_too_large", None),
            (chunked, 413, "payload_too_large", None),
            (network.call(Method::POST, "/jobs").json(&input), 413, "payload_too_large", Some("input")),
        ],
    )
    .await;
    check_nothing_is_left(&network).await;
}

#[tokio::test]
async fn fields_of_a_job() {
    let network = Network::start().await;
    let with = |change: fn(&mut Value)| {
        let mut body = json!({"workload": "echo", "input": {"prompt": "x"}});
        change(&mut body);
        network.call(Method::POST, "/jobs").header("Idempotency-Key", "k").json(&body)
    };
    let bad =
        |change: fn(&mut Value), param: &'static str| (with(change), 422, "validation_error", Some(param));
    let cases: Vec<Case<'_>> = vec![
        bad(|body| body["workload"] = Value::Null, "workload"),
        bad(|body| body["workload"] = json!(7), "workload"),
        bad(|body| body["input"] = Value::Null, "input"),
        bad(|body| body["input"] = json!([]), "input"),
        bad(|body| body["input"] = json!("x"), "input"),
        bad(|body| body["priority"] = json!(101), "priority"),
        bad(|body| body["priority"] = json!(-1), "priority"),
        bad(|body| body["priority"] = json!(1.5), "priority"),
        bad(|body| body["priority"] = json!("1"), "priority"),
        bad(|body| body["priority"] = json!(u64::MAX), "priority"),
        bad(|body| body["prio"] = json!(1), "prio"),
        (with(|body| body["workload"] = json!("nothing")), 404, "workload_not_found", None),
        (with(|body| body["workload"] = json!("../echo")), 404, "workload_not_found", None),
        (with(|body| body["input"]["prompt"] = json!(1)), 422, "invalid_input", Some("input.prompt")),
        (with(|body| body["input"]["max_tokens"] = json!(0)), 422, "invalid_input", Some("input.max_tokens")),
        (
            with(|body| body["input"]["max_tokens"] = json!(1e300)),
            422,
            "invalid_input",
            Some("input.max_tokens"),
        ),
        (with(|body| body["input"]["tint"] = json!(1)), 422, "invalid_input", Some("input.tint")),
    ];
    check("fields", cases).await;
    check_nothing_is_left(&network).await;
}

#[tokio::test]
async fn queries_headers_and_paths() {
    let network = Network::start().await;
    let get = |path: &str| network.call(Method::GET, path);
    let id = uuid::Uuid::new_v4();
    check(
        "query",
        vec![
            (get("/jobs?limit=0"), 422, "validation_error", Some("limit")),
            (get("/jobs?limit=101"), 422, "validation_error", Some("limit")),
            (get("/jobs?limit=99999999999999999999999"), 422, "validation_error", Some("limit")),
            (get("/jobs?limit=-1"), 422, "validation_error", Some("limit")),
            (get("/jobs?limit=abc"), 400, "invalid_request", Some("limit")),
            (get("/jobs?limit=1.5"), 400, "invalid_request", Some("limit")),
            (get("/jobs?limit="), 400, "invalid_request", Some("limit")),
            (get("/jobs?limit=1&limit=2"), 400, "invalid_request", Some("limit")),
            (get("/jobs?offset=-1"), 400, "invalid_request", Some("offset")),
            (get("/account/ledger?limit=101"), 422, "validation_error", Some("limit")),
            (get("/cargos?runtime_type=java"), 422, "validation_error", Some("runtime_type")),
            (get("/cargos?category=fun"), 422, "validation_error", Some("category")),
            (get("/island/recommendations"), 400, "invalid_request", Some("host_id")),
            (get("/island/recommendations?host_id=x"), 422, "validation_error", Some("host_id")),
        ],
    )
    .await;
    check(
        "path",
        vec![
            (get(&format!("/jobs/{id}")), 404, "job_not_found", None),
            (get("/jobs/not-an-id"), 404, "job_not_found", None),
            (get("/jobs/%FF"), 404, "job_not_found", None),
            (get(&format!("/jobs/{id}/stream")), 404, "job_not_found", None),
            (get(&format!("/jobs/{id}/output")), 404, "job_not_found", None),
            (network.call(Method::DELETE, &format!("/jobs/{id}")), 404, "job_not_found", None),
            (network.call(Method::DELETE, &format!("/api-keys/{id}")), 404, "api_key_not_found", None),
            (get(&format!("/hosts/{id}")), 404, "host_not_found", None),
            (get("/hosts/not-an-id"), 404, "host_not_found", None),
            (get(&format!("/island/recommendations?host_id={id}")), 404, "host_not_found", None),
            (get("/workloads/nothing"), 404, "workload_not_found", None),
            (get("/workloads/%FF"), 404, "workload_not_found", None),
            (get("/market/rates/nothing"), 404, "workload_not_found", None),
            (get("/nowhere"), 404, "not_found", None),
            (get("/jobs/"), 404, "not_found", None),
            (network.http.get(network.url.replace("/api/v1", "/jobs")), 404, "not_found", None),
            (network.call(Method::PUT, "/jobs"), 405, "method_not_allowed", None),
            (network.call(Method::OPTIONS, "/jobs"), 405, "method_not_allowed", None),
            (network.call(Method::OPTIONS, "/health"), 405, "method_not_allowed", None),
            (network.call(Method::POST, "/health"), 405, "method_not_allowed", None),
        ],
    )
    .await;
    let page = network.get("/jobs?limit=1&offset=99999999999999999999999").await;
    assert_eq!(page["data"], json!([]), "an offset behind the end is an empty page");
}

#[tokio::test]
async fn routes_without_a_body_answer_with_their_status() {
    let network = Network::start().await;
    for (path, status) in [("/health", 200), ("/account", 200), ("/nowhere", 404)] {
        let response = network.call(Method::HEAD, path).send().await.expect("answer");
        assert_eq!(response.status().as_u16(), status, "{path}");
        assert!(response.bytes().await.expect("body").is_empty());
    }
    let options = network.call(Method::OPTIONS, "/api-keys/x").send().await.expect("answer");
    assert_eq!(options.headers()[header::ALLOW], "DELETE");
}

#[tokio::test]
async fn invalid_keys() {
    let network = Network::start().await;
    let account = || network.http.get(format!("{}/account", network.url));
    let header = |value: &str| account().header(header::AUTHORIZATION, value);
    let key = &network.consumer.key;
    check(
        "key",
        vec![
            (account(), 401, "missing_api_key", None),
            (header(key), 401, "missing_api_key", None),
            (header("Bearer"), 401, "missing_api_key", None),
            (header(&format!("Basic {key}")), 401, "missing_api_key", None),
            (header("Bearer x"), 401, "invalid_api_key", None),
            (header("Bearer ak_wrongwrongwrong"), 401, "invalid_api_key", None),
            (header(&format!("Bearer {key}x")), 401, "invalid_api_key", None),
            (header(&format!("Bearer {}", &key[..key.len() - 1])), 401, "invalid_api_key", None),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_end_of_a_job_is_final() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let cancel = |id: &str| network.call(Method::DELETE, &format!("/jobs/{id}"));
    let id = network.submit().await;
    let run = island.take().await;
    island.end(run.key, run.first_event, completed(1, 1)).await;
    assert_eq!(problem(cancel(&id)).await, (422, "job_already_final".to_owned(), None));
    assert_eq!(network.job(&id).await["status"], "completed");

    let id = network.submit().await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let response = cancel(&id).send().await.expect("answer");
        assert_eq!(response.status(), 200);
        answers.push(response.text().await.expect("body"));
    }
    assert_eq!(answers[0], answers[1]);
}
