//! What a request may cost before its sender is known, and while it does not read.

use std::net::{Ipv4Addr, SocketAddr};

use island_testing::port::free_port;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::support::{
    answer,
    island::{Island, completed, token},
    network::Network,
    soon,
};

async fn connected(network: &Network) -> TcpStream {
    let address = network.url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    // A small one, so that little of what is not read is on its way.
    socket.set_recv_buffer_size(32 << 10).expect("set");
    socket.connect(address.parse().expect("an address")).await.expect("a connection")
}

/// The status of the answer to a request whose body is announced and never sent.
async fn status_before_body(network: &Network, path: &str, key: Option<&str>, length: &str) -> u16 {
    let mut stream = connected(network).await;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!(
        "POST /api/v1{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{key}{length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut line = [0; 12];
    soon("an answer", stream.read_exact(&mut line)).await.expect("an answer");
    std::str::from_utf8(&line).expect("text").rsplit(' ').next().expect("a status").parse().expect("a number")
}

#[tokio::test]
async fn no_body_is_read_before_its_key_is_known() {
    let network = Network::start().await;
    let (large, chunked) = ("content-length: 9000000", "transfer-encoding: chunked");
    for path in ["/jobs", "/chat/completions", "/embeddings", "/images/generations", "/api-keys"] {
        for length in [large, chunked] {
            assert_eq!(status_before_body(&network, path, None, length).await, 401, "{path} {length}");
        }
    }
    for path in ["/island/pairings", "/island/check", "/island/leave", "/island/credentials"] {
        assert_eq!(status_before_body(&network, path, None, "content-length: 65537").await, 413, "{path}");
    }
    let key = Some(network.consumer.key.as_str());
    for path in ["/island/enroll", "/hosts/pair", "/api-keys"] {
        assert_eq!(status_before_body(&network, path, key, "content-length: 65537").await, 413, "{path}");
    }
    let pairing = network.http.post(format!("{}/island/pairings", network.url));
    let chunks = (0..3).map(|_| Ok::<_, std::io::Error>(vec![b' '; 32 << 10]));
    let pairing = pairing.header("content-type", "application/json");
    let pairing = pairing.body(reqwest::Body::wrap_stream(futures::stream::iter(chunks)));
    assert_eq!(answer(pairing).await.0, 413, "without a length as well");
}

#[tokio::test]
async fn a_body_of_many_small_values_is_refused() {
    let network = Network::start().await;
    let body = format!("{{\"workload\":\"echo\",\"input\":{{\"messages\":[{}0]}}}}", "0,".repeat(300_000));
    let request = network.call(Method::POST, "/jobs").header("content-type", "application/json").body(body);
    let (status, body) = answer(request).await;
    assert_eq!((status, &body["error"]["code"]), (413, &json!("payload_too_large")), "{body}");
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_refused_at_once() {
    let network = Network::start_with(|config| {
        config.http.max_requests = 1;
        config.jobs.chat_wait_s = 600;
    })
    .await;
    // It never replies to an offer, so that the chat waits.
    let _silent = Island::start(&network).await;
    network.served("echo").await;
    let chat = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
    let held = tokio::spawn(network.call(Method::POST, "/chat/completions").json(&chat).send());
    // Not by a request, which would take the place of the chat.
    let pool = network.sql().await;
    let begun = async {
        while sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM jobs").fetch_one(&pool).await.expect("count") == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the chat's job", begun).await;
    pool.close().await;
    let refused = network.call(Method::GET, "/account").send().await.expect("answer");
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "2");
    let body: Value = refused.json().await.expect("json");
    assert_eq!(body["error"]["code"], "service_unavailable");
    assert_eq!(answer(network.http.get(format!("{}/health", network.url))).await.0, 200);
    held.abort();
    let admitted = async {
        while network.call(Method::GET, "/account").send().await.expect("answer").status() != 200 {}
    };
    soon("room", admitted).await;
}

#[tokio::test]
async fn the_stream_of_an_ended_job_is_read_in_pieces_and_holds_its_slot_until_it_is_sent() {
    let network = Network::start_with(|config| config.limits.concurrent_streams = 1).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    let n = run.first_event + 11;
    // More than the buffers of a connection hold. A busy coordinator drops messages, and does not commit an end with a gap before it.
    let delivered = async {
        loop {
            for event in run.first_event..n {
                island.send(run.key, event, vec![token(&"x".repeat(1 << 20))]).await;
            }
            if island.end(run.key, n, completed(1, 11)).await.committed {
                break;
            }
        }
    };
    soon("the end", delivered).await;

    let mut stream = connected(&network).await;
    let request = format!(
        "GET /api/v1/jobs/{id}/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        network.consumer.key
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut received = vec![0; 15];
    soon("the beginning", stream.read_exact(&mut received)).await.expect("an answer");
    assert!(received.ends_with(b"200 OK"), "{received:?}");
    let path = format!("/jobs/{id}/stream");
    let opens = || async { network.call(Method::GET, &path).send().await.expect("answer").status() };
    assert_eq!(opens().await, 429, "most of it is not sent yet");
    let rest = async {
        let mut buffer = vec![0; 1 << 20];
        while !received.windows(11).rev().take(4096).any(|window| window == b"event: done") {
            let n = stream.read(&mut buffer).await.expect("readable");
            assert!(n > 0, "it ends with `done`");
            received.extend_from_slice(&buffer[..n]);
        }
    };
    soon("the rest", rest).await;
    assert!(received.len() >= 11 << 20 && received.windows(1 << 16).any(|window| window.iter().all(|byte| *byte == b'x')));
    assert_eq!(opens().await, 200, "free when the reader knows that it has ended");

    let numbers: Vec<u64> =
        network.stream(&id, 3).await.rest().await.iter().map(|event| event.id.expect("id")).collect();
    assert_eq!(numbers, (4..=n).collect::<Vec<_>>(), "every event once");
}

#[tokio::test]
async fn the_state_of_the_service_names_what_is_away() {
    let mut network = Network::start().await;
    let health = || answer(network.http.get(format!("{}/health", network.url)));
    assert_eq!(health().await.1["status"], "ok");
    network.nats.down();
    let noticed = async {
        loop {
            let (status, body) = answer(network.http.get(format!("{}/health", network.url))).await;
            if body["status"] != "ok" {
                return (status, body);
            }
        }
    };
    let (status, body) = soon("the outage", noticed).await;
    assert_eq!((status, &body["status"]), (200, &json!("fabric unreachable")), "jobs are accepted");
    let (status, body) = answer(network.http.get(format!("{}/ready", network.url))).await;
    assert_eq!((status, &body["status"]), (503, &json!("fabric unreachable")), "others should get them");
}

#[tokio::test]
async fn a_coordinator_that_is_asked_to_stop_serves_until_nobody_is_sent_to_it() {
    let network = Network::start_with(|config| config.http.unready_s = 600).await;
    let ready = || answer(network.http.get(format!("{}/ready", network.url)));
    assert_eq!(ready().await.0, 200);
    network.ask_to_stop();
    let (status, body) = ready().await;
    assert_eq!((status, &body["status"]), (503, &json!("stopping")));
    // Those that a load balancer still sends here.
    network.submit().await;
}

#[tokio::test]
async fn metrics_have_an_address_of_their_own() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let network = Network::start_with(|config| config.http.metrics = Some(address)).await;
    let _island = Island::start(&network).await;
    network.submit().await;
    let page = network.http.get(format!("http://{address}/metrics")).send().await.expect("answer");
    assert!(page.headers()["content-type"].to_str().expect("text").starts_with("application/openmetrics-text"));
    let page = page.text().await.expect("text");
    for line in [
        "island_coordinator_fabric_connected 1",
        "island_coordinator_database_up 1",
        "island_coordinator_relayed_jobs 0",
        "island_coordinator_open_jobs{state=",
        "island_coordinator_islands{state=\"online\"} 1",
        "island_coordinator_request_seconds_count{route=",
        "island_coordinator_database_connections{pool=\"write\"}",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let public = network.http.get(network.url.replace("/api/v1", "/metrics")).send().await.expect("answer");
    assert_eq!(public.status(), 404, "not on the public address");
}
