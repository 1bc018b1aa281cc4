//! Ends of replies and jobs when a coordinator stops before the replies are complete.

use island_protocol::job::FailureCode;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::net::UnixDatagram;

use crate::support::{
    answer,
    island::{Island, completed, token},
    network::{Events, Network, add_input},
    soon,
};

/// A network whose coordinator gives replies no time when it stops.
async fn network() -> Network {
    Network::start_with(|config| {
        config.http.drain_s = 0;
        add_input(config, "raw_prompt = { type = \"string\" }");
    })
    .await
}

/// A request in the form of each API.
fn request(network: &Network, path: &str, stream: bool) -> RequestBuilder {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = match path {
        "/responses" => json!({"input": "hi", "max_output_tokens": 10}),
        "/completions" => json!({"prompt": "hi", "max_tokens": 10}),
        _ => json!({"messages": messages, "max_tokens": 10}),
    };
    body["model"] = json!("echo");
    body["stream"] = json!(stream);
    network.call(Method::POST, path).json(&body)
}

const PATHS: [&str; 4] = ["/chat/completions", "/completions", "/messages", "/responses"];

/// The only job of the consumer.
async fn job(network: &Network) -> Value {
    network.get("/jobs").await["data"][0].clone()
}

/// Stops the coordinator, starts it again and checks that the job was cancelled and is charged for half of its price, what one of ten tokens costs.
async fn restarted(network: &mut Network, island: &mut Island, path: &str) {
    network.down().await;
    assert_eq!(island.cancelled().await.code, FailureCode::CancelledByUser, "{path}");
    network.up().await;
    let job = job(network).await;
    assert_eq!(job["status"], "cancelled", "{path}");
    assert!((network.credits(&network.consumer).await - 9.5).abs() < 1e-9, "{path}");
    network.audit().await;
}

#[tokio::test]
async fn a_stream_ends_with_an_error_of_its_api() {
    for path in PATHS {
        let mut network = network().await;
        let mut island = Island::start(&network).await;
        let sent = request(&network, path, true);
        let (answer, ()) = tokio::join!(sent.send(), async {
            let run = island.take().await;
            island.send(run.key, run.first_event, vec![token("a")]).await;
        });
        let mut events = Events::of(answer.expect("answer"));
        let mut read = events.next().await.expect("an event");
        while !read.data.contains("\"a\"") {
            read = events.next().await.expect("an event");
        }
        network.ask_to_stop();
        let events = events.rest().await;
        let last = events.last().expect("a last event");
        let data = last.json();
        let (name, code, expected) = match path {
            "/messages" => ("error", &data["error"]["code"], "service_unavailable"),
            "/responses" => ("response.failed", &data["response"]["error"]["code"], "server_error"),
            _ => ("message", &data["error"]["code"], "service_unavailable"),
        };
        assert_eq!((last.name.as_str(), code), (name, &json!(expected)), "{path}: {data}");
        restarted(&mut network, &mut island, path).await;
    }
}

#[tokio::test]
async fn a_waiting_request_is_answered_with_503() {
    for path in PATHS {
        let mut network = network().await;
        let mut island = Island::start(&network).await;
        let waiting = tokio::spawn(request(&network, path, false).send());
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        delivered(&network).await;
        network.ask_to_stop();
        let answer = soon("an answer", waiting).await.expect("no panic").expect("an answer");
        assert_eq!(answer.status().as_u16(), 503, "{path}");
        assert_eq!(answer.headers()["retry-after"], "2", "{path}");
        assert!(!answer.headers().contains_key("x-should-retry"), "clients try again");
        let body: Value = answer.json().await.expect("json");
        assert_eq!(body["error"]["code"], "service_unavailable");
        restarted(&mut network, &mut island, path).await;
    }
}

async fn delivered(network: &Network) {
    let id = job(network).await["id"].as_str().expect("an id").to_owned();
    let delivered = async {
        while network.job(&id).await["first_output_at"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    soon("the first token", delivered).await;
}

#[tokio::test]
async fn a_client_with_a_key_returns_for_its_reply() {
    let mut network = network().await;
    let mut island = Island::start(&network).await;
    let keyed = |network: &Network| request(network, "/chat/completions", false).header("Idempotency-Key", "again");
    let waiting = tokio::spawn(keyed(&network).send());
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    delivered(&network).await;
    network.ask_to_stop();
    let refused = soon("an answer", waiting).await.expect("no panic").expect("an answer");
    assert_eq!(refused.status().as_u16(), 503);
    network.down().await;
    network.up().await;
    let end = island.end_until_answered(run.key, run.first_event + 1, completed(1, 1)).await;
    assert!(end.committed || end.replay_from.is_some());
    if !end.committed {
        island.send(run.key, run.first_event, vec![token("a")]).await;
        assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    }
    let (status, body) = answer(keyed(&network)).await;
    assert_eq!((status, &body["choices"][0]["message"]["content"]), (200, &json!("a")), "{body}");
    network.audit().await;
}

#[tokio::test]
async fn a_stream_of_a_job_ends_with_how_to_resume() {
    let mut network = network().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    delivered(&network).await;
    let streamed = network.call(Method::GET, &format!("/jobs/{id}/stream")).send().await.expect("an answer");
    network.ask_to_stop();
    let text = soon("the end", streamed.text()).await.expect("a whole body");
    let resume = "retry: 1000\n: this coordinator is stopping; resume with Last-Event-ID\n\n";
    assert!(text.ends_with(resume) && !text.contains("event: error"), "{text}");
    network.down().await;
    network.up().await;
    assert_eq!(network.job(&id).await["status"], "running", "it is not cancelled");
}

#[tokio::test]
async fn systemd_waits_while_requests_finish() {
    let mut socket = None;
    let network = Network::start_process(|config| {
        let path = config.fabric.dir.parent().expect("a folder").join("notify");
        socket = Some(UnixDatagram::bind(path).expect("a socket"));
    })
    .await;
    let socket = socket.expect("bound before the start");
    network.terminate();
    let extended = async {
        let mut message = [0; 256];
        loop {
            let length = socket.recv(&mut message).await.expect("a message");
            if message[..length].starts_with(b"EXTEND_TIMEOUT_USEC=30000000") {
                return;
            }
        }
    };
    soon("more time", extended).await;
}
