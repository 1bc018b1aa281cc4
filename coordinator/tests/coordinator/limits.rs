//! Limits on requests, streams and jobs: exact under parallel requests and after a restart.

use futures::StreamExt as _;
use island_protocol_api::claim::ClaimVerb;
use island_protocol::ids::HostId;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    answer,
    database::ON_POSTGRES,
    island::{Island, completed, enroll, signed, token},
    network::{Events, Network},
    soon,
};

/// Posts of a test, and how many of them are under way at once: many systems allow a process 1,024 open files, and each
/// post needs two.
const POSTS: usize = 1_000;
const POSTS_AT_ONCE: usize = 250;

#[tokio::test]
async fn exactly_the_limit_is_admitted_in_a_minute_also_across_a_restart() {
    let mut network = Network::start_process(|config| config.limits.requests_per_minute = 30).await;
    let ask = || network.call(Method::GET, "/account").send();
    let first = ask().await.expect("answer");
    assert_eq!(first.headers()["x-ratelimit-limit"], "30");
    assert_eq!(first.headers()["x-ratelimit-remaining"], "29");
    let reset: u64 = first.headers()["x-ratelimit-reset"].to_str().expect("text").parse().expect("seconds");
    assert!(reset > 1_700_000_000);
    let answers = futures::future::join_all((0..60).map(|_| ask())).await;
    let count = |status| answers.iter().filter(|a| a.as_ref().is_ok_and(|a| a.status() == status)).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::TOO_MANY_REQUESTS)), (29, 31));

    let refused = ask().await.expect("answer");
    let after: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "0");
    let body: Value = refused.json().await.expect("json");
    assert_eq!(
        (&body["error"]["code"], &body["error"]["retry_after"]),
        (&json!("rate_limited"), &json!(after))
    );
    assert!(
        (1..=61).contains(&after) && body["error"]["message"].as_str().expect("text").contains("30 requests")
    );

    network.kill();
    network.up().await;
    let (status, _) = answer(network.call(Method::GET, "/account")).await;
    assert_eq!(status, 429, "counted before the restart");
    let other = network.http.get(format!("{}/account", network.url)).bearer_auth(&network.owner.key);
    assert_eq!(answer(other).await.0, 200, "another account has its own minute");
    let open = network.http.get(format!("{}/cargos", network.url));
    assert_eq!(answer(open).await.0, 200, "what needs no key is not counted");
}

#[tokio::test]
async fn the_rate_limit_is_checked_after_the_key_and_before_the_media_type() {
    let network = Network::start_with(|config| config.limits.requests_per_minute = 1).await;
    assert_eq!(answer(network.call(Method::GET, "/account")).await.0, 200);
    assert_eq!(answer(network.call(Method::POST, "/jobs").body("{")).await.0, 429);
    let stranger = network.http.get(format!("{}/account", network.url)).bearer_auth("ak_wrongwrongwrong");
    assert_eq!(answer(stranger).await.0, 401);
}

#[tokio::test]
async fn a_thousand_parallel_posts_never_run_more_jobs_than_allowed() {
    let network = Network::start_with(|config| {
        config.limits.concurrent_jobs = 4;
        config.jobs.chat_wait_s = 600;
    })
    .await;
    // It never replies to an offer, so that no job ends.
    let _silent = Island::start(&network).await;
    network.served("echo").await;
    let chat = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
    let held = network.call(Method::POST, "/chat/completions").json(&chat).send();
    let held = tokio::spawn(held);
    let begun = async {
        while network.get("/jobs").await["meta"]["total"] != 1 {
            tokio::task::yield_now().await;
        }
    };
    soon("the chat's job", begun).await;
    let body = json!({"workload": "echo", "input": {"prompt": "x"}});
    let posts = (0..POSTS).map(|_| network.call(Method::POST, "/jobs").json(&body).send());
    let answers = futures::stream::iter(posts).buffer_unordered(POSTS_AT_ONCE);
    let answers: Vec<_> = answers.map(|answer| answer.expect("answer").status().as_u16()).collect().await;
    let count = |status: u16| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!((count(201), count(429)), (3, POSTS - 3), "the chat is the fourth");
    held.abort();
}

async fn opens(network: &Network, path: &str) -> u16 {
    network.call(Method::GET, path).send().await.expect("answer").status().as_u16()
}

#[tokio::test]
async fn a_slot_is_released_before_its_stream_ends() {
    let network = Network::start_with(|config| config.limits.concurrent_streams = 1).await;
    let mut island = Island::start(&network).await;
    for _ in 0..3 {
        let id = network.submit().await;
        let mut events = network.stream(&id, 0).await;
        assert_eq!(opens(&network, &format!("/jobs/{id}/stream")).await, 429);
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        island.end(run.key, run.first_event + 1, completed(1, 1)).await;
        while events.next().await.expect("event").name != "done" {}
        // No pause: the next stream of this account starts while this connection is still closing.
    }
    let chat = json!({"model": "echo", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    for _ in 0..2 {
        let request = network.call(Method::POST, "/chat/completions").json(&chat).send();
        let (response, ()) = tokio::join!(request, async {
            let run = island.take().await;
            island.end(run.key, run.first_event, completed(1, 0)).await;
        });
        let mut events = Events::of(response.expect("answer"));
        while events.next().await.expect("event").data != "[DONE]" {}
    }
}

#[tokio::test]
async fn a_reader_that_disconnects_releases_its_slot() {
    let network = Network::start_with(|config| config.limits.concurrent_streams = 1).await;
    let id = network.submit().await;
    let path = format!("/jobs/{id}/stream");
    let events = network.stream(&id, 0).await;
    assert_eq!(opens(&network, &path).await, 429);
    drop(events);
    let freed = async {
        while opens(&network, &path).await != 200 {
            tokio::task::yield_now().await;
        }
    };
    soon("a free slot", freed).await;
}

/// Clients that vanish without closing their connection.
#[cfg(target_os = "linux")]
mod vanished {
    use std::time::Duration;

    use socket2::{SockFilter, SockRef};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::{Island, Network, opens, soon, token};

    /// A program of Linux's packet filter in one instruction: it returns the length that is kept of each packet, zero.
    const KEEP_NOTHING: SockFilter = SockFilter::new(0x06, 0, 0, 0);
    /// Time after which nothing but a defect explains that the slot is taken. Without a limit of its own, the system
    /// would go on sending to the client for a quarter of an hour.
    const LIMIT: Duration = Duration::from_mins(3);

    /// Opens the stream of a job over a connection of its own, and returns that when the head of the answer has
    /// arrived.
    async fn reader(network: &Network, path: &str) -> TcpStream {
        let rest = network.url.strip_prefix("http://").expect("an address");
        let (address, prefix) = rest.split_once('/').expect("a path");
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let head = format!(
            "GET /{prefix}{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
            network.consumer.key
        );
        client.write_all(head.as_bytes()).await.expect("sent");
        let mut line = [0; 12];
        soon("an answer", client.read_exact(&mut line)).await.expect("an answer");
        assert_eq!(&line, b"HTTP/1.1 200");
        client
    }

    #[tokio::test]
    async fn a_reader_that_vanishes_releases_its_slot() {
        let network = Network::start_with(|config| config.limits.concurrent_streams = 1).await;
        let mut island = Island::start(&network).await;
        let id = network.submit().await;
        let path = format!("/jobs/{id}/stream");
        let run = island.take().await;
        let client = reader(&network, &path).await;
        assert_eq!(opens(&network, &path).await, 429);
        // From now on it answers no packet, with neither an acknowledgement nor a reset.
        SockRef::from(&client).attach_filter(&[KEEP_NOTHING]).expect("a filter");
        // What the client does not acknowledge, without waiting for the comment that a silent stream sends every 15 s.
        island.send(run.key, run.first_event, vec![token("a")]).await;
        let freed = async {
            while opens(&network, &path).await != 200 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(LIMIT, freed).await.expect("a free slot");
        drop(client);
    }
}

#[tokio::test]
async fn the_slots_of_a_killed_coordinator_expire() {
    let mut network = Network::start_process(|config| config.limits.concurrent_streams = 2).await;
    let id = network.submit().await;
    let path = format!("/jobs/{id}/stream");
    let _streams = (network.stream(&id, 0).await, network.stream(&id, 0).await);
    network.kill();
    network.up().await;
    assert_eq!(opens(&network, &path).await, 429, "their leases have not run out yet");
    let mut settings = network.config.database.clone();
    if !ON_POSTGRES {
        settings.path = network.path("island.limits.db");
    }
    let pool = crate::support::database::connect(&settings).await;
    let leases: Vec<i64> =
        sqlx::query_scalar("SELECT expires_at FROM stream_slots").fetch_all(&pool).await.expect("rows");
    let now = island_coordinator_domain::clock::Clock::System.now().unix_ms();
    assert_eq!(leases.len(), 2);
    assert!(leases.iter().all(|end| *end <= now + 30_000), "at most 30 s from their last renewal");
    sqlx::query("UPDATE stream_slots SET expires_at = $1")
        .bind(now - 1)
        .execute(&pool)
        .await
        .expect("time passes");
    pool.close().await;
    assert_eq!(opens(&network, &path).await, 200);
}

#[tokio::test]
async fn an_account_has_no_more_islands_than_it_may_have() {
    let network = Network::start_with(|config| config.limits.islands = 1).await;
    let island = Island::start(&network).await;
    let (id, key) = (HostId(Uuid::new_v4()), nkeys::KeyPair::new_user());
    let (status, body) = enroll(&network, &network.owner, id, &key).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (422, &json!("too_many_hosts")), "{body}");
    let (status, body) = enroll(&network, &network.owner, island.id, &island.key).await;
    assert_eq!(status, StatusCode::OK, "the same one again: {body}");
    let (status, body) = enroll(&network, &network.consumer, id, &key).await;
    assert_eq!(status, StatusCode::OK, "of another account: {body}");
    let leave = signed(island.id, &island.key, ClaimVerb::Leave);
    let leave = network.http.post(format!("{}/island/leave", network.url)).json(&leave);
    assert_eq!(answer(leave).await.0, 200);
    let (status, body) = enroll(&network, &network.owner, HostId(Uuid::new_v4()), &nkeys::KeyPair::new_user()).await;
    assert_eq!(status, StatusCode::OK, "another one has left: {body}");
}

#[tokio::test]
async fn inputs_of_open_jobs_do_not_fill_the_memory() {
    let network = Network::start_with(|config| {
        config.jobs.max_input_mb = 1;
        config.limits.concurrent_jobs = 0;
    })
    .await;
    let text = "x".repeat(300 << 10);
    let submit = || {
        let body = json!({"workload": "count", "input": {"text": text}});
        network.call(Method::POST, "/jobs").json(&body)
    };
    let mut ids = Vec::new();
    for _ in 0..3 {
        let (status, body) = answer(submit()).await;
        assert_eq!(status, 201, "{body}");
        ids.push(body["data"]["id"].as_str().expect("an id").to_owned());
    }
    let refused = submit().send().await.expect("answer");
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"5".parse().expect("a value")));
    assert_eq!(network.get("/jobs").await["meta"]["total"], 3, "nothing was stored");
    assert_eq!(answer(network.call(Method::DELETE, &format!("/jobs/{}", ids[0]))).await.0, 200);
    let accepted = async { while answer(submit()).await.0 != 201 {} };
    soon("the memory of the cancelled job", accepted).await;
}
