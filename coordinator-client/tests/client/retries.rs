//! Which requests are retried, and the errors of the others.

use std::time::{Duration, Instant};

use island_coordinator_client::{
    Client, ClientError, RetryPolicy, api::problem::Code, protocol::credits::MicroCredits,
};
use serde_json::json;

use crate::script::{Script, Step, problem};

const ACCOUNT: &str = r#"{"data":{"id":"00000000-0000-0000-0000-000000000001","email":"a@example.org",
    "credits":12.5,"created_at":"2026-11-20T00:00:00Z","tier":"gold"}}"#;
const JOB: &str = r#"{"data":{"id":"00000000-0000-0000-0000-000000000002","workload_id":1,"workload_slug":"x",
    "status":"submitted","input":{},"created_at":"2026-11-20T00:00:00Z"}}"#;

fn ok(body: &str) -> Step {
    Step::Answer(200, "", body.into())
}

#[tokio::test]
async fn reading_is_repeated_until_it_succeeds() {
    let script = Script::play(vec![
        Step::Hangup,
        Step::Answer(502, "content-type: text/html\r\n", "<html>bad gateway".into()),
        Step::Cut(ACCOUNT.into()),
        ok(ACCOUNT),
    ])
    .await;
    let answer = script.client().account().answer().await.expect("the fourth try");
    assert_eq!(answer.value.email, "a@example.org");
    assert_eq!(answer.body["data"]["tier"], "gold", "the body keeps what is newer than this version");
    assert_eq!(script.asked().await.len(), 4);
}

#[tokio::test]
async fn retry_after_is_honored() {
    let busy = Step::Answer(429, "retry-after: 1\r\n", problem("rate_limited"));
    let script = Script::play(vec![busy, ok(ACCOUNT)]).await;
    let begun = Instant::now();
    script.client().account().await.expect("the second try");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it waited as long as it was asked to");
}

#[tokio::test]
async fn a_retry_after_beyond_the_maximum_is_returned_to_the_caller() {
    let script = Script::play(vec![Step::Answer(429, "retry-after: 60\r\n", problem("rate_limited"))]).await;
    let error = script.client().account().await.expect_err("busy");
    assert_eq!(error.retry_after(), Some(Duration::from_mins(1)));
    assert_eq!(error.advice().as_deref(), Some("wait 60 s, then try again"));
    assert_eq!(script.asked().await.len(), 1);
}

#[tokio::test]
async fn a_post_carries_one_idempotency_key_on_every_try() {
    let script = Script::play(vec![
        Step::Hangup,
        Step::Answer(409, "retry-after: 0\r\n", problem("idempotency_in_progress")),
        Step::Answer(201, "", JOB.into()),
        Step::Answer(201, "", JOB.into()),
    ])
    .await;
    let client = script.client();
    client.submit_job("x", json!({ "text": "a" }), 3).await.expect("the third try");
    client.submit_job("x", json!({ "text": "a" }), 3).await.expect("another job");
    let asked = script.asked().await;
    let names: Vec<&str> =
        asked.iter().map(|asked| asked.header("idempotency-key").expect("a name")).collect();
    assert_eq!(names[0], names[1]);
    assert_eq!(names[1], names[2]);
    assert_ne!(names[2], names[3], "each call has its own");
    assert_eq!(asked[2].body, r#"{"workload":"x","input":{"text":"a"},"priority":3}"#);
    assert_eq!(asked[2].header("authorization"), Some("Bearer ak_test"));
}

#[tokio::test]
async fn refusals_are_not_repeated() {
    for (status, code) in [
        (400, Code::InvalidRequest),
        (401, Code::InvalidApiKey),
        (402, Code::InsufficientCredits),
        (404, Code::WorkloadNotFound),
        (422, Code::InvalidInput),
        (500, Code::InternalError),
        (503, Code::NoIslandAvailable),
    ] {
        let script = Script::play(vec![Step::Answer(status, "", problem(code.as_str()))]).await;
        let error = script.client().submit_job("x", json!({}), 0).await.expect_err("refused");
        let refusal = error.refusal().expect("an answer");
        assert_eq!((refusal.status, refusal.known_code()), (status, Some(code)));
        assert_eq!(error.to_string(), format!("submit the job: not now ({}, HTTP {status})", code.as_str()));
    }
}

#[tokio::test]
async fn quotas_and_maintenance_are_not_waited_for() {
    for (status, code) in [(429, Code::QuotaExceeded), (503, Code::Maintenance)] {
        // Shorter than the maximum: the code alone decides.
        let step = Step::Answer(status, "retry-after: 1\r\n", problem(code.as_str()));
        let script = Script::play(vec![step, Step::Answer(201, "", JOB.into())]).await;
        let error = script.client().submit_job("x", json!({}), 0).await.expect_err("refused");
        assert_eq!(error.code(), Some(code.as_str()));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(script.asked().await.len(), 1);
    }
}

#[tokio::test]
async fn every_field_of_a_refusal_is_read() {
    let body = r#"{"error":{"message":"too hot","code":"validation_error","param":"temperature",
        "retry_after":2,"required":1.5,"available":0.5,"request_id":"r-1","type":"invalid_request_error"}}"#;
    let script = Script::play(vec![Step::Answer(422, "", body.into())]).await;
    let error = script.client().account().await.expect_err("refused");
    let refusal = error.refusal().expect("an answer");
    assert_eq!(refusal.param.as_deref(), Some("temperature"));
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(2)));
    assert_eq!(
        (refusal.required, refusal.available),
        (Some(MicroCredits(1_500_000)), Some(MicroCredits(500_000)))
    );
    assert_eq!(refusal.request_id.as_deref(), Some("r-1"));
    assert!(error.to_string().ends_with("request r-1"), "{error}");
    assert_eq!(error.advice().as_deref(), Some("correct 'temperature'"));
}

#[tokio::test]
async fn answers_of_other_servers_are_distinguished() {
    let page = Step::Answer(404, "", "\n  <html>welcome to nginx".into());
    let script = Script::play(vec![page, ok("<html>hello")]).await;
    let error = script.client().account().await.expect_err("no coordinator");
    assert!(
        matches!(&error, ClientError::NotOurs { status: 404, excerpt, .. } if excerpt == "<html>welcome to nginx")
    );
    let error = script.client().account().await.expect_err("no JSON");
    assert!(matches!(error, ClientError::Decode { what: "read the account", .. }), "{error}");
    assert_eq!(script.asked().await.len(), 2, "neither is repeated");
}

#[tokio::test]
async fn slow_answers_time_out() {
    let script = Script::play(vec![Step::Silent(String::new()), ok(ACCOUNT)]).await;
    let account = script.client().account().timeout(Duration::from_millis(100)).await;
    assert!(account.is_ok(), "the second try is quick: {account:?}");
}

#[tokio::test]
async fn files_may_take_longer_than_other_answers() {
    const FILE: &str = r#"{"id":"file-1","object":"file","bytes":3,"created_at":1,"expires_at":2,
        "filename":"a.jsonl","purpose":"batch","status":"processed"}"#;
    let script = Script::play(vec![Step::Slow(FILE.into()), Step::Slow("{}\n".into())]).await;
    let builder = Client::builder(&script.url).key("ak_test").retry(RetryPolicy::NONE);
    let client = builder.timeout(Duration::from_millis(50)).build().expect("client");
    let file = client.upload_batch_file("a.jsonl", "{}\n".into()).await.expect("an upload on a slow line");
    let content = client.file_content(&file.id).await.expect("a download on a slow line");
    assert_eq!(content, "{}\n");
}

#[tokio::test]
async fn a_refused_connection_is_a_transport_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    drop(listener);
    let error = Client::new(&url, None).expect("client").health().await.expect_err("nobody");
    assert!(matches!(&error, ClientError::Transport { source, .. } if source.is_connect()));
    assert!(error.is_transient());
    assert!(error.advice().is_some_and(|advice| advice.contains(&url)));
}
