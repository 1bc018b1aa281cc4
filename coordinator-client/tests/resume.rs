//! The event stream against a server that keeps breaking off.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Router, extract::State, http::HeaderMap, response::IntoResponse, routing::get};
use island_coordinator_client::{Client, ClientError};
use island_protocol::{event::JobEvent, ids::JobId};

/// Serves events `1..=TOTAL`, three a connection, and cuts the last one in the middle of its frame.
const TOTAL: u64 = 10;

async fn stream(State(connections): State<Arc<AtomicUsize>>, headers: HeaderMap) -> impl IntoResponse {
    connections.fetch_add(1, Ordering::SeqCst);
    let after: u64 =
        headers.get("last-event-id").map_or(0, |id| id.to_str().expect("text").parse().expect("number"));
    let mut body = String::from(": keep-alive\n\n");
    for n in (after + 1)..=(after + 3).min(TOTAL) {
        let data = if n == TOTAL {
            r#"{"type":"done","usage":{"prompt_tokens":1,"completion_tokens":9,"total_tokens":10}}"#
                .to_owned()
        } else {
            format!(r#"{{"type":"token","content":"t{n}"}}"#)
        };
        body.push_str(&format!("id: {n}\nevent: x\ndata: {data}\n\n"));
    }
    body.push_str("id: 99\ndata: {\"type\":\"tok");
    ([("content-type", "text/event-stream")], body)
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test]
async fn resumes_without_a_gap_or_a_repeat() {
    let connections = Arc::new(AtomicUsize::new(0));
    let router =
        Router::new().route("/api/v1/jobs/{id}/stream", get(stream)).with_state(Arc::clone(&connections));
    let client = Client::new(&serve(router).await, None).expect("client");
    let mut events = client.job_events(JobId(uuid::Uuid::nil()), None);
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let event = event.expect("event");
        seen.push(event.n);
        if event.n < TOTAL {
            assert_eq!(event.event, JobEvent::Token { content: format!("t{}", event.n) });
        }
    }
    assert_eq!(seen, (1..=TOTAL).collect::<Vec<_>>());
    assert_eq!(connections.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn an_error_answer_is_typed() {
    let router = Router::new().route(
        "/api/v1/account",
        get(|| async {
            let body = r#"{"error":{"message":"no","code":"invalid_api_key"}}"#;
            (axum::http::StatusCode::UNAUTHORIZED, body)
        }),
    );
    let client = Client::new(&serve(router).await, Some("ak_x".into())).expect("client");
    let error = client.account().await.expect_err("refused");
    assert_eq!(error.code(), Some("invalid_api_key"));
    assert!(!error.is_transient());
}

#[test]
fn an_address_must_be_http() {
    assert!(matches!(Client::new("nats://x", None), Err(ClientError::BadUrl(_))));
}
