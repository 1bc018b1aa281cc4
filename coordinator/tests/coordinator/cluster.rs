//! Two coordinators on one database and one fabric.

use std::{
    fs,
    time::{Duration, Instant},
};

use island_coordinator::app::App;
use island_coordinator_domain::{clock::Clock, config::Config};
use island_protocol::{
    fabric::{Assignment, LeasedJob},
    subjects::JOB_EVENTS_STREAM,
};
use island_protocol_api::claim::ClaimVerb;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sqlx::Row as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, completed, signed, token},
    network::{ECHO, Event, Events, Network},
    soon,
};

/// Another coordinator of a network.
struct Peer {
    url: String,
    soft: CancellationToken,
    running: JoinHandle<std::io::Result<()>>,
}

impl Peer {
    async fn start(network: &Network) -> Self {
        Self::start_with(&network.config).await
    }

    async fn start_with(config: &Config) -> Self {
        let soft = CancellationToken::new();
        let built = App::build(config, Clock::System, soft.clone(), CancellationToken::new()).await;
        let app = built.unwrap_or_else(|error| panic!("{}", island_daemon::chain::Chain(&error)));
        let url = format!("http://{}/api/v1", app.address().expect("address"));
        Self { url, soft, running: tokio::spawn(app.run()) }
    }

    fn call(&self, network: &Network, method: Method, path: &str) -> RequestBuilder {
        network.http.request(method, format!("{}{path}", self.url)).bearer_auth(&network.consumer.key)
    }

    async fn get(&self, network: &Network, path: &str) -> Value {
        let response = self.call(network, Method::GET, path).send().await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.expect("json")
    }

    async fn stream(&self, network: &Network, id: &str, after: u64) -> Events {
        let request = self.call(network, Method::GET, &format!("/jobs/{id}/stream"));
        let response = request.header("Last-Event-ID", after.to_string()).send().await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK);
        Events::of(response)
    }

    /// Sends heartbeats until the coordinator shows all Islands. The first ones are lost if they arrive there before the
    /// registration.
    async fn until_online(&self, network: &Network, islands: &[&Island]) {
        let online = async {
            while self.get(network, "/market/rates/echo").await["data"][0]["num_hosts"] != islands.len() {
                for island in islands {
                    island.beat(&[]).await;
                }
                tokio::task::yield_now().await;
            }
        };
        soon("all Islands online", online).await;
    }

    async fn submit(&self, network: &Network) -> reqwest::Response {
        let body = json!({"workload": "echo", "input": {"prompt": "hi", "max_tokens": 10}});
        self.call(network, Method::POST, "/jobs").json(&body).send().await.expect("answer")
    }

    async fn down(self) {
        self.soft.cancel();
        soon("the end", self.running).await.expect("no panic").expect("served");
    }
}

/// A network with a second coordinator.
async fn two() -> (Network, Peer) {
    let network = Network::start().await;
    let peer = Peer::start(&network).await;
    (network, peer)
}

fn text(events: &[Event]) -> String {
    events.iter().filter_map(|event| event.json()["content"].as_str().map(str::to_owned)).collect()
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id.expect("id")).collect()
}

async fn read_until(stream: &mut Events, seen: &mut Vec<Event>, expected: &str) {
    while text(seen) != expected {
        seen.push(stream.next().await.expect("event"));
    }
}

#[tokio::test]
async fn a_signed_request_is_accepted_by_one_of_them() {
    let (network, peer) = two().await;
    let island = Island::start(&network).await;
    let body = signed(island.id, &island.key, ClaimVerb::Credentials);
    let send = async |url: &str| {
        let request = network.http.post(format!("{url}/island/credentials")).json(&body);
        request.send().await.expect("answer").status()
    };
    assert_eq!(send(&peer.url).await, StatusCode::OK);
    assert_eq!(send(&network.url).await, StatusCode::UNPROCESSABLE_ENTITY);
    peer.down().await;
}

#[tokio::test]
async fn a_job_of_one_coordinator_is_read_and_streamed_at_the_other() {
    let (network, peer) = two().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = peer.stream(&network, &id, 0).await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a"), token("b")]).await;
    let mut seen = Vec::new();
    read_until(&mut stream, &mut seen, "ab").await;
    let shown = peer.get(&network, &format!("/jobs/{id}")).await;
    assert!(["queued", "running"].contains(&shown["data"]["status"].as_str().expect("status")), "{shown}");
    let resumed = peer.stream(&network, &id, seen.len() as u64 - 1).await;
    assert!(
        island.renew(key, "run", 2, first + 1).await.leases[0].held,
        "only the job's coordinator replies"
    );
    island.send(key, first + 2, vec![token("c")]).await;
    assert!(island.end(key, first + 3, completed(1, 3)).await.committed);
    seen.extend(stream.rest().await);
    assert_eq!(text(&seen), "abc");
    assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
    let resumed = resumed.rest().await;
    assert_eq!(resumed, seen[seen.len() - resumed.len()..], "the same events under the same numbers");
    assert_eq!(text(&resumed), "bc");
    assert_eq!(network.stream(&id, 0).await.rest().await, seen, "and the same at its coordinator");
    assert_eq!(peer.stream(&network, &id, 0).await.rest().await, seen, "and afterwards");
    assert_eq!(peer.get(&network, &format!("/jobs/{id}")).await["data"]["output"], "abc");
    network.audit().await;
}

#[tokio::test]
async fn readers_of_a_job_at_the_other_coordinator_share_one_consumer() {
    let (network, peer) = two().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let (mut streams, mut seen) = (Vec::new(), vec![Vec::new(); 4]);
    for _ in 0..seen.len() {
        streams.push(peer.stream(&network, &id, 0).await);
    }
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a")]).await;
    for (stream, seen) in streams.iter_mut().zip(&mut seen) {
        read_until(stream, seen, "a").await;
    }
    let jetstream = network.jetstream().await;
    let stream = jetstream.get_stream(JOB_EVENTS_STREAM).await.expect("the stream");
    assert_eq!(stream.cached_info().state.consumer_count, 1);
    // The others go on when one leaves.
    streams.pop();
    island.send(key, first + 1, vec![token("b")]).await;
    assert!(island.end(key, first + 2, completed(1, 2)).await.committed);
    for (stream, mut seen) in streams.into_iter().zip(seen) {
        seen.extend(stream.rest().await);
        assert_eq!(text(&seen), "ab");
        assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn readers_at_the_other_coordinator_go_on_after_the_stream_was_lost() {
    let (network, peer) = two().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = peer.stream(&network, &id, 0).await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a")]).await;
    let mut seen = Vec::new();
    read_until(&mut stream, &mut seen, "a").await;
    network.jetstream().await.delete_stream(JOB_EVENTS_STREAM).await.expect("deleted");
    island.send(key, first + 1, vec![token("b")]).await;
    // The job has not ended: the event comes from the fabric, by a new consumer.
    read_until(&mut stream, &mut seen, "ab").await;
    assert!(island.end(key, first + 2, completed(1, 2)).await.committed);
    seen.extend(stream.rest().await);
    assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_that_comes_after_the_stream_was_lost_gets_every_event() {
    let (network, peer) = two().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a")]).await;
    let subject = island_protocol::subjects::job_events(id.parse().expect("an id"));
    let jetstream = network.jetstream().await;
    let stored = jetstream.get_stream_no_info(JOB_EVENTS_STREAM).await.expect("the stream");
    let is_published = async {
        loop {
            let last = stored.direct_get_last_for_subject(&subject).await;
            if last.is_ok_and(|message| String::from_utf8_lossy(&message.payload).contains("\"a\"")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the first token in the stream", is_published).await;
    jetstream.delete_stream(JOB_EVENTS_STREAM).await.expect("deleted");
    island.send(key, first + 1, vec![token("b")]).await;
    // The job has not ended: the events come from the fabric alone.
    let mut stream = peer.stream(&network, &id, 0).await;
    let mut seen = Vec::new();
    soon("every event", read_until(&mut stream, &mut seen, "ab")).await;
    assert!(island.end(key, first + 2, completed(1, 2)).await.committed);
    seen.extend(stream.rest().await);
    assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_job_of_one_coordinator_is_cancelled_at_the_other() {
    let (network, peer) = two().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let stream = peer.stream(&network, &id, 0).await;
    for _ in 0..2 {
        let answer =
            peer.call(&network, Method::DELETE, &format!("/jobs/{id}")).send().await.expect("answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let body: Value = answer.json().await.expect("json");
        assert_eq!(body, json!({"data": {"id": id, "status": "cancelled"}}));
    }
    assert_eq!(island.cancelled().await.key, assignment.key);
    assert_eq!(stream.rest().await.last().expect("end").json()["code"], "cancelled_by_user");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn an_operator_cancels_a_job_of_one_coordinator_at_the_other() {
    let (network, peer) = two().await;
    let operator = operator(&network).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let stream = peer.stream(&network, &id, 0).await;
    for _ in 0..2 {
        let url = format!("{}/admin/jobs/{id}/cancel", peer.url);
        let request = network.http.post(url).bearer_auth(&operator.key);
        let (status, body) = answer(request.json(&json!({"reason": "it blocks the network"}))).await;
        assert_eq!((status, body), (200, json!({"data": {"id": id, "status": "cancelled"}})));
    }
    assert_eq!(island.cancelled().await.key, assignment.key);
    assert_eq!(stream.rest().await.last().expect("end").json()["code"], "cancelled_by_operator");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    let admin = Admin { network: &network, key: operator.key.clone() };
    let log = admin.get(&format!("/audit-log?account={}", network.consumer.id)).await;
    let recorded =
        log["data"].as_array().expect("entries").iter().filter(|entry| entry["action"] == "cancel_job");
    let recorded: Vec<_> = recorded.map(|entry| (&entry["job"], &entry["actor"], &entry["reason"])).collect();
    let (job, by, reason) = (json!(id), json!(operator.id.to_string()), json!("it blocks the network"));
    assert_eq!(recorded, [(&job, &by, &reason)], "the coordinator of the job records it, once");
    peer.down().await;
    network.audit().await;
}

#[tokio::test]
async fn the_other_coordinator_continues_the_attempt_and_the_numbers_of_a_killed_one() {
    let mut network = Network::start_process(|_| {}).await;
    let peer = Peer::start(&network).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = network.stream(&id, 0).await;
    let watched = peer.stream(&network, &id, 0).await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a"), token("b")]).await;
    let mut seen = Vec::new();
    read_until(&mut stream, &mut seen, "ab").await;
    network.kill();
    // No coordinator applies these two yet: the other one receives them, but the job is not its own.
    island.send(key, first + 2, vec![token("c"), token("d")]).await;
    let resumed = peer.stream(&network, &id, seen.len() as u64).await;
    let lease = island.renew_until_answered(key, "run", 4, first + 3).await.leases.remove(0);
    assert!(lease.held, "the same attempt under the same epoch");
    let from = lease.replay_from.expect("events are missing");
    let all = ["a", "b", "c", "d"].map(token);
    island.send(key, from, all[(from - first) as usize..].to_vec()).await;
    assert!(island.end(key, first + 4, completed(1, 4)).await.committed);
    seen.extend(resumed.rest().await);
    assert_eq!(text(&seen), "abcd");
    assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(watched.rest().await, seen, "who read at the other all along saw nothing of it");
    assert!(
        (peer.get(&network, "/account").await["data"]["credits"].as_f64().expect("credits") - 9.0).abs()
            < 1e-9
    );
    network.audit().await;
}

#[tokio::test]
async fn a_waiting_job_is_taken_over_at_once_when_its_coordinator_stops_in_order() {
    let (mut network, peer) = two().await;
    let id = network.submit().await;
    network.down().await;
    network.url.clone_from(&peer.url);
    let mut island = Island::start(&network).await;
    let assignment = island.take().await;
    assert_eq!(assignment.key.job_id.to_string(), id);
    assert!(island.end(assignment.key, assignment.first_event, completed(1, 0)).await.committed);
    let events = peer.stream(&network, &id, 0).await.rest().await;
    assert_eq!(numbers(&events), (1..=events.len() as u64).collect::<Vec<_>>());
    peer.down().await;
    network.audit().await;
}

/// The coordinator of a job, and the heartbeat counter of each coordinator.
async fn coordinator_and_heartbeats(network: &Network, id: &str) -> (String, Vec<(String, i64)>) {
    let pool = network.sql().await;
    let coordinator = sqlx::query("SELECT coordinator_id FROM jobs WHERE id = $1")
        .bind(id.to_owned())
        .fetch_one(&pool)
        .await;
    let rows =
        sqlx::query("SELECT id, beats FROM coordinators ORDER BY id").fetch_all(&pool).await.expect("rows");
    let beats = rows.iter().map(|row| (row.get("id"), row.get("beats"))).collect();
    pool.close().await;
    (coordinator.expect("job").get("coordinator_id"), beats)
}

#[tokio::test]
async fn a_running_coordinator_retains_its_jobs() {
    let (network, _peer) = two().await;
    let id = network.submit().await;
    let (coordinator, before) = coordinator_and_heartbeats(&network, &id).await;
    assert_eq!(before.len(), 2);
    let counted = async {
        loop {
            let (now, beats) = coordinator_and_heartbeats(&network, &id).await;
            assert_eq!(now, coordinator);
            // More heartbeats of both than eight takeover timeouts.
            if beats.iter().zip(&before).all(|(now, before)| now.1 > before.1 + 16) {
                assert_eq!(beats.len(), 2);
                return;
            }
        }
    };
    soon("enough beats", counted).await;
    let cancelled = network.call(Method::DELETE, &format!("/jobs/{id}")).send().await.expect("answer");
    assert_eq!(cancelled.status(), StatusCode::OK);
}

/// Restarts the coordinator of a network with these failures, submits a job to it, and starts another coordinator.
async fn with_failing_heartbeats(failures: &str) -> (Network, Peer, String) {
    let mut network = Network::start_process(|_| {}).await;
    network.kill();
    assert!(network.start_failing(failures).await, "it starts");
    let id = network.submit().await;
    let peer = Peer::start(&network).await;
    (network, peer, id)
}

fn assert_a_failure_was_met(network: &Network) {
    let log = fs::read_to_string(network.path("coordinator.log")).expect("log");
    assert!(log.contains("a heartbeat fails"), "{log}");
}

#[tokio::test]
async fn the_jobs_of_a_coordinator_that_cannot_write_heartbeats_are_taken_over() {
    let (mut network, peer, id) = with_failing_heartbeats("store.heartbeat=return").await;
    let moved = async {
        loop {
            let (coordinator, heartbeats) = coordinator_and_heartbeats(&network, &id).await;
            // Neither the one that was killed nor the one whose heartbeats fail is listed any more.
            if matches!(heartbeats.as_slice(), [(only, _)] if *only == coordinator) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a takeover", moved).await;
    assert_a_failure_was_met(&network);
    assert!(network.is_running(), "it cannot learn that it was removed");
    network.url.clone_from(&peer.url);
    let mut island = Island::start(&network).await;
    let run = island.take().await;
    assert_eq!(run.key.job_id.to_string(), id);
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    let events = peer.stream(&network, &id, 0).await.rest().await;
    assert_eq!(text(&events), "a", "the output of one of them alone");
    assert_eq!(numbers(&events), (1..=events.len() as u64).collect::<Vec<_>>());
    network.audit().await;
    peer.down().await;
}

/// A network whose coordinator marks its connections, and another coordinator. [`stop_heartbeats`] affects the former
/// alone.
async fn with_marked_connections() -> (Network, Peer) {
    let network = Network::start_with(|config| {
        let url = config.database.url.as_ref().expect("PostgreSQL").to_string();
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}options[test.coordinator]=accepting");
        config.database.url = Some(url.parse().expect("a URL"));
    })
    .await;
    let mut config = network.config.clone();
    config.database.url = config.database.url.map(|url| {
        let url = url.to_string();
        let plain = url.rsplit_once(['?', '&']).expect("the option").0;
        plain.parse().expect("a URL")
    });
    let peer = Peer::start_with(&config).await;
    (network, peer)
}

/// Makes every further heartbeat of the coordinator that marks its connections fail. It can read, and does not learn that it is removed.
async fn stop_heartbeats(network: &Network) {
    let pool = network.sql().await;
    for statement in [
        "CREATE FUNCTION refuse_heartbeat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('test.coordinator', true) = 'accepting' THEN RAISE EXCEPTION 'a heartbeat fails'; END IF; \
         RETURN NULL; END $$",
        "CREATE TRIGGER refuse_heartbeat BEFORE UPDATE ON coordinators FOR EACH STATEMENT \
         EXECUTE FUNCTION refuse_heartbeat()",
    ] {
        sqlx::query(statement).execute(&pool).await.expect("changed");
    }
    pool.close().await;
}

/// Waits until another coordinator has taken the jobs over.
async fn taken_over(network: &Network, from: &str, id: &str) {
    let moved = async {
        while coordinator_and_heartbeats(network, id).await.0 == from {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a takeover", moved).await;
}

/// Begins a streamed chat whose Island has written "ab", as the client has read. Returns the id of its job too.
async fn begun_chat(network: &Network, island: &mut Island) -> (Events, Assignment, String) {
    let body = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let request = network.call(Method::POST, "/chat/completions").json(&body);
    let (response, run) = tokio::join!(request.send(), async {
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a"), token("b")]).await;
        run
    });
    let response = response.expect("answer");
    assert_eq!(response.status(), StatusCode::OK);
    let mut chat = Events::of(response);
    assert_eq!(until_text(&mut chat, "ab").await, "ab");
    let id = run.key.job_id.to_string();
    (chat, run, id)
}

/// Reads a chat until it has this many characters more, and returns them.
async fn until_text(chat: &mut Events, expected: &str) -> String {
    let mut text = String::new();
    while text.len() < expected.len() {
        text.push_str(&chat_text(&chat.next().await.expect("an event").json()));
    }
    text
}

fn chat_text(chunk: &Value) -> String {
    chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_chat_goes_on_after_its_job_was_taken_over() {
    let (network, peer) = with_marked_connections().await;
    let mut island = Island::start(&network).await;
    peer.until_online(&network, &[&island]).await;
    let (mut chat, run, id) = begun_chat(&network, &mut island).await;
    let (from, _) = coordinator_and_heartbeats(&network, &id).await;
    stop_heartbeats(&network).await;
    taken_over(&network, &from, &id).await;
    // Longer than a job may be unread whose client alone can read it.
    let (begun, mut tokens) = (Instant::now(), vec![token("a"), token("b")]);
    while begun.elapsed() < Duration::from_secs(40) {
        let last = run.first_event + tokens.len() as u64 - 1;
        let job = LeasedJob { key: run.key, phase: "run".into(), work: last, last_event: last };
        drop(island.renew_all(vec![job]).await);
        tokens.push(token("x"));
        // As an Island that learns from where events are missing.
        island.send(run.key, run.first_event, tokens.clone()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let expected = "x".repeat(tokens.len() - 2);
    assert_eq!(until_text(&mut chat, &expected).await, expected, "no gap and no repeat");
    let (end, count) = (run.first_event + tokens.len() as u64, tokens.len() as u64);
    assert!(island.end_until_answered(run.key, end, completed(1, count)).await.committed);
    let rest = chat.rest().await;
    let last = &rest[rest.len() - 2].json();
    assert_eq!(last["choices"][0]["finish_reason"], "stop", "{rest:?}");
    assert_eq!(rest.last().expect("an end").data, "[DONE]");
    assert_eq!(peer.get(&network, &format!("/jobs/{id}")).await["data"]["output"], format!("ab{expected}"));
    network.audit().await;
    peer.down().await;
}

#[tokio::test]
async fn a_chat_that_moved_is_cancelled_when_its_client_leaves() {
    let (network, peer) = with_marked_connections().await;
    let mut island = Island::start(&network).await;
    peer.until_online(&network, &[&island]).await;
    let (mut chat, run, id) = begun_chat(&network, &mut island).await;
    let (from, _) = coordinator_and_heartbeats(&network, &id).await;
    stop_heartbeats(&network).await;
    taken_over(&network, &from, &id).await;
    assert!(island.renew_until_answered(run.key, "run", 2, run.first_event + 1).await.leases[0].held);
    let sent = async {
        // The new coordinator resumes the job soon.
        loop {
            island.send(run.key, run.first_event + 2, vec![token("c")]).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let read = async { assert_eq!(until_text(&mut chat, "c").await, "c") };
    tokio::select! {
        () = read => {}
        () = sent => {}
    }
    drop(chat);
    assert_eq!(island.cancelled().await.key, run.key);
    let ended = async {
        while peer.get(&network, &format!("/jobs/{id}")).await["data"]["status"] != "cancelled" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the end of the job", ended).await;
    network.audit().await;
    peer.down().await;
}

#[tokio::test]
async fn a_coordinator_that_cannot_write_some_heartbeats_retains_its_jobs() {
    let (network, _peer, id) = with_failing_heartbeats("store.heartbeat=3*return->off").await;
    let (coordinator, before) = coordinator_and_heartbeats(&network, &id).await;
    let of = |heartbeats: &[(String, i64)]| {
        heartbeats.iter().find(|(id, _)| *id == coordinator).expect("it is registered").1
    };
    let counted = async {
        loop {
            let (now, heartbeats) = coordinator_and_heartbeats(&network, &id).await;
            assert_eq!(now, coordinator);
            // More heartbeats than two takeover timeouts have.
            if of(&heartbeats) > of(&before) + 16 {
                return;
            }
        }
    };
    soon("enough heartbeats", counted).await;
    assert_a_failure_was_met(&network);
}

#[tokio::test]
async fn a_removed_coordinator_stops_and_loses_its_jobs() {
    let (mut network, peer) = two().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let (coordinator, _) = coordinator_and_heartbeats(&network, &id).await;
    let pool = network.sql().await;
    sqlx::query("DELETE FROM coordinators WHERE id = $1")
        .bind(coordinator)
        .execute(&pool)
        .await
        .expect("delete");
    pool.close().await;
    let running = network.running.take().expect("running");
    let ended = soon("the end of its own accord", running).await.expect("no panic");
    assert!(ended.is_err_and(|error| error.to_string().contains("removed")));
    let (key, first) = (assignment.key, assignment.first_event);
    assert!(island.renew_until_answered(key, "run", 1, first).await.leases[0].held);
    island.send(key, first, vec![token("x")]).await;
    assert!(island.end(key, first + 1, completed(1, 1)).await.committed);
    assert_eq!(text(&peer.stream(&network, &id, 0).await.rest().await), "x");
    network.audit().await;
}

#[tokio::test]
async fn an_island_and_its_earnings_are_known_to_both_coordinators() {
    let (network, peer) = two().await;
    let mut island = Island::start(&network).await;
    peer.until_online(&network, &[&island]).await;
    let answer = peer.submit(&network).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let assignment = island.take().await;
    island.send(assignment.key, assignment.first_event, vec![token("x")]).await;
    let hour_ago = "UPDATE jobs SET started_at = created_at - 3600000";
    let pool = network.sql().await;
    sqlx::query(hour_ago).execute(&pool).await.expect("update");
    pool.close().await;
    assert!(island.end(assignment.key, assignment.first_event + 1, completed(1, 1)).await.committed);
    let pool = network.sql().await;
    // It is added to the Island's after the commit.
    let added = async {
        loop {
            let earned: i64 =
                sqlx::query_scalar("SELECT karma_ms FROM hosts").fetch_one(&pool).await.expect("karma");
            if earned > 0 {
                return earned;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let earned = soon("the karma", added).await;
    pool.close().await;
    let expected = earned as f64 / 3_600_000.0;
    let host = format!("/hosts/{}", island.id);
    let known = async {
        while (network.get(&host).await["data"]["karma"].as_f64().expect("karma") - expected).abs() > 1e-12 {}
    };
    soon("karma at the one that did not write it", known).await;
}

/// Submits `count` jobs at once, half to each coordinator.
async fn ask_both(network: &Network, peer: &Peer, count: usize) -> Vec<StatusCode> {
    let mut answers = tokio::task::JoinSet::new();
    let body = json!({"workload": "echo", "input": {"prompt": "hi", "max_tokens": 10}});
    for n in 0..count {
        let request = if n % 2 == 0 {
            network.call(Method::POST, "/jobs")
        } else {
            peer.call(network, Method::POST, "/jobs")
        };
        answers.spawn(request.json(&body).send());
    }
    let answers = answers.join_all().await;
    answers.into_iter().map(|answer| answer.expect("answer").status()).collect()
}

#[tokio::test]
async fn credits_for_ten_jobs_buy_ten_at_both_coordinators_together() {
    let (network, peer) = {
        let network = Network::start_with(|config| config.limits.concurrent_jobs = 1_000).await;
        let peer = Peer::start(&network).await;
        (network, peer)
    };
    let answers = ask_both(&network, &peer, 60).await;
    let of = |status: StatusCode| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!((of(StatusCode::CREATED), of(StatusCode::PAYMENT_REQUIRED)), (10, 50));
    assert!(network.credits(&network.consumer).await.abs() < 1e-9);
    network.audit().await;
}

#[tokio::test]
async fn the_limit_on_open_jobs_holds_for_both_coordinators_together() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 3).await;
    let peer = Peer::start(&network).await;
    let answers = ask_both(&network, &peer, 20).await;
    assert_eq!(answers.iter().filter(|answer| **answer == StatusCode::CREATED).count(), 3);
    peer.down().await;
}

#[tokio::test]
async fn a_key_created_at_one_coordinator_works_at_the_other_until_it_is_revoked() {
    let (network, peer) = two().await;
    let body = json!({"name": "of one"});
    let made = network.call(Method::POST, "/api-keys").json(&body).send().await.expect("answer");
    assert_eq!(made.status(), StatusCode::CREATED);
    let made: Value = made.json().await.expect("json");
    let secret = made["key"].as_str().expect("key").to_owned();
    let ask = || network.http.get(format!("{}/account", peer.url)).bearer_auth(&secret).send();
    assert_eq!(ask().await.expect("answer").status(), StatusCode::OK);
    let path = format!("/api-keys/{}", made["data"]["id"].as_str().expect("id"));
    let revoked = network.call(Method::DELETE, &path).send().await.expect("answer");
    assert_eq!(revoked.status(), StatusCode::OK);
    assert_eq!(ask().await.expect("answer").status(), StatusCode::UNAUTHORIZED, "from the answer on");
}

#[tokio::test]
async fn requests_and_streams_of_both_coordinators_are_counted_together() {
    let network = Network::start_with(|config| {
        config.limits.requests_per_minute = 20;
        config.limits.concurrent_streams = 2;
    })
    .await;
    let peer = Peer::start(&network).await;
    let id = network.submit().await;
    let path = format!("/jobs/{id}/stream");
    let _streams = (network.stream(&id, 0).await, peer.stream(&network, &id, 0).await);
    for refused in [network.call(Method::GET, &path), peer.call(&network, Method::GET, &path)] {
        let refused = refused.send().await.expect("answer");
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let body: Value = refused.json().await.expect("json");
        assert_eq!(body["error"]["code"], "concurrent_streams_exceeded");
    }
    let mut answers = tokio::task::JoinSet::new();
    for n in 0..40 {
        let path = "/account";
        let request =
            if n % 2 == 0 { network.call(Method::GET, path) } else { peer.call(&network, Method::GET, path) };
        answers.spawn(request.send());
    }
    let mut admitted = 0;
    while let Some(answer) = answers.join_next().await {
        admitted += usize::from(answer.expect("no panic").expect("answer").status() == StatusCode::OK);
    }
    // One submission and four streams were counted before.
    assert_eq!(admitted, 15);
}

#[tokio::test]
async fn a_locked_account_does_not_stop_others() {
    let network = Network::start().await;
    let pool = network.sql().await;
    // As a coordinator that stopped in the middle of a transaction.
    let mut lock = pool.begin().await.expect("begun");
    sqlx::query("SELECT id FROM accounts WHERE id = $1 FOR UPDATE")
        .bind(network.consumer.id.to_string())
        .execute(&mut *lock)
        .await
        .expect("locked");
    let body = json!({"workload": "echo", "input": {"prompt": "hi"}});
    let post = || tokio::spawn(network.call(Method::POST, "/jobs").json(&body).send());
    let held: Vec<_> = (0..20).map(|_| post()).collect();
    let waiting = async {
        let waiters = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted";
        while sqlx::query_scalar::<_, i64>(waiters).fetch_one(&pool).await.expect("locks") == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("a transaction that waits for the account", waiting).await;
    for _ in 0..10 {
        for (method, path) in [(Method::GET, "/account"), (Method::POST, "/api-keys")] {
            let request = network.http.request(method, format!("{}{path}", network.url));
            let request = request.bearer_auth(&network.owner.key).json(&json!({"name": "k"}));
            let response = soon("an answer to another account", request.send()).await.expect("answer");
            assert!(response.status().is_success(), "{path}: {}", response.status());
        }
    }
    lock.rollback().await.expect("unlocked");
    for request in held {
        let response = soon("an answer", request).await.expect("no panic").expect("answer");
        assert!([201, 429].contains(&response.status().as_u16()), "{}", response.status());
    }
    pool.close().await;
}

#[tokio::test]
async fn a_coordinator_stays_registered_while_a_takeover_waits_for_a_locked_row() {
    let mut network = Network::start_process(|_| {}).await;
    let peer = Peer::start(&network).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    let pool = network.sql().await;
    let mut lock = pool.begin().await.expect("begun");
    sqlx::query("SELECT id FROM jobs WHERE id = $1 FOR UPDATE")
        .bind(id.clone())
        .execute(&mut *lock)
        .await
        .expect("locked");
    network.kill();
    let waiting = async {
        // Not any update of a job: PostgreSQL goes on with a write that the killed process waited for.
        let waiters = "SELECT COUNT(*) FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE jobs SET coordinator_id%'";
        while sqlx::query_scalar::<_, i64>(waiters).fetch_one(&pool).await.expect("activity") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a takeover that waits", waiting).await;
    let (_, before) = coordinator_and_heartbeats(&network, &id).await;
    assert_eq!(before.len(), 1, "the other one is removed");
    let counted = async {
        // More heartbeats than the timeout of a takeover has.
        while coordinator_and_heartbeats(&network, &id).await.1[0].1 < before[0].1 + 16 {}
    };
    soon("heartbeats", counted).await;
    lock.rollback().await.expect("unlocked");
    pool.close().await;
    assert!(island.renew_until_answered(run.key, "run", 1, run.first_event).await.leases[0].held);
    assert!(island.end_until_answered(run.key, run.first_event, completed(1, 0)).await.committed);
    peer.down().await;
}

#[tokio::test]
async fn a_coordinator_that_lost_a_job_does_not_write_to_its_stream() {
    // Nobody is removed in this test.
    let network = Network::start_with(|config| config.jobs.takeover_ms = 60_000).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = network.stream(&id, 0).await;
    let run = island.take().await;
    let (key, first) = (run.key, run.first_event);
    island.send(key, first, vec![token("a")]).await;
    let mut seen = Vec::new();
    read_until(&mut stream, &mut seen, "a").await;
    let subject = island_protocol::subjects::job_events(id.parse().expect("an id"));
    let jetstream = network.jetstream().await;
    let last = async |expected: Option<&str>| {
        loop {
            let stored = jetstream.get_stream_no_info(JOB_EVENTS_STREAM).await.expect("the stream");
            if let Ok(message) = stored.direct_get_last_for_subject(&subject).await {
                let text = String::from_utf8(message.payload.to_vec()).expect("text");
                if expected.is_none_or(|expected| text.contains(expected)) {
                    return text;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the first token in the stream", last(Some("\"a\""))).await;
    // Another coordinator took the job over and wrote.
    let pool = network.sql().await;
    let other = uuid::Uuid::new_v4().to_string();
    let registered = sqlx::query("INSERT INTO coordinators (id, beats) VALUES ($1, 0)").bind(other.clone());
    registered.execute(&pool).await.expect("registered");
    sqlx::query("UPDATE jobs SET coordinator_id = $1 WHERE id = $2")
        .bind(other)
        .bind(id.clone())
        .execute(&pool)
        .await
        .expect("moved");
    pool.close().await;
    let foreign =
        json!({"v": 1, "job_id": id, "events": [{"n": first + 1, "type": "token", "content": "foreign"}]});
    let sent = jetstream.publish(subject.clone(), foreign.to_string().into()).await.expect("sent");
    sent.await.expect("stored");
    island.send(key, first + 1, vec![token("forked")]).await;
    // While a whole other job is executed and published, it could have been written many times.
    let next = network.submit().await;
    let run = island.take().await;
    let mut watched = network.stream(&next, 0).await;
    let mut of_next = Vec::new();
    let mut text = String::new();
    for n in 0..20 {
        island.send(run.key, run.first_event + n, vec![token("x")]).await;
        text.push('x');
        read_until(&mut watched, &mut of_next, &text).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(island.end(run.key, run.first_event + 20, completed(1, 20)).await.committed);
    assert!(last(None).await.contains("foreign"));
}

#[tokio::test]
async fn a_coordinator_waits_for_the_migrations_of_another_for_as_long_as_they_take() {
    let network = Network::start().await;
    let pool = network.sql().await;
    let mut lock = pool.begin().await.expect("begun");
    sqlx::query("LOCK TABLE _sqlx_migrations IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .expect("locked");
    let config = network.config.clone();
    let soft = CancellationToken::new();
    let stop = soft.clone();
    let starting = tokio::spawn(async move {
        App::build(&config, Clock::System, stop, CancellationToken::new())
            .await
            .map(|app| tokio::spawn(app.run()))
    });
    // Longer than any other statement may wait for a lock.
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND clock_timestamp() - query_start > interval '21 seconds'";
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&pool).await.expect("activity") == 0 {
        assert!(!starting.is_finished(), "it did not wait");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lock.rollback().await.expect("unlocked");
    pool.close().await;
    let running = soon("its start", starting).await.expect("no panic");
    let running = running.unwrap_or_else(|error| panic!("{}", island_daemon::chain::Chain(&error)));
    soft.cancel();
    soon("its end", running).await.expect("no panic").expect("served");
}

/// Runs one job.
async fn serve(island: &mut Island) {
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("ok")]).await;
    island.end(run.key, run.first_event + 1, completed(10, 1)).await;
}

#[tokio::test]
async fn a_conversation_returns_to_its_island_through_the_other_one() {
    let (mut network, peer) = two().await;
    let mut first = Island::start(&network).await;
    let body = |messages: &Value| json!({"model": "echo", "messages": messages});
    let mut messages = json!([{"role": "user", "content": "one"}]);
    let chat = network.call(Method::POST, "/chat/completions").json(&body(&messages));
    let (answered, ()) = tokio::join!(answer(chat), serve(&mut first));
    assert_eq!(answered.0, 200, "{}", answered.1);
    // Without the conversation this Island, which has more free slots, is preferred.
    let mut second = Island::start(&network).await;
    second.slots = 9;
    peer.until_online(&network, &[&first, &second]).await;
    // Before it stops, it writes what it has put off.
    network.down().await;
    let turn = [json!({"role": "assistant", "content": "ok"}), json!({"role": "user", "content": "two"})];
    messages.as_array_mut().expect("a list").extend(turn);
    let chat = peer.call(&network, Method::POST, "/chat/completions").json(&body(&messages));
    let (answered, ()) = tokio::join!(chat.send(), serve(&mut first));
    let answered = answered.expect("answer");
    assert_eq!(answered.status(), StatusCode::OK);
    let served = answered.headers()["island-served"].to_str().expect("a text");
    assert!(served.contains("reason=conversation"), "{served}");
    peer.down().await;
}

#[tokio::test]
async fn a_published_cargo_is_served_by_all_of_them_without_a_restart() {
    let (network, peer) = two().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let manifest = ECHO.replace("\"echo\"", "\"my-model\"").replace("aliases = [\"parrot\"]\n", "");
    let body = json!({ "manifest": manifest });
    let (status, published) = answer(peer.call(&network, Method::POST, "/publications").json(&body)).await;
    assert_eq!(status, 201, "{published}");
    let path = format!("/publications/{}", published["data"]["id"].as_str().expect("an id"));
    let reason = json!({"reason": "r"});
    assert_eq!(admin.post(&format!("{path}/approve"), &reason).await.0, 200);
    let served = async |wanted: usize| {
        let seen = async {
            while peer.get(&network, "/cargos").await["count"] != wanted {
                tokio::task::yield_now().await;
            }
        };
        soon("the change at the other coordinator", seen).await;
    };
    served(3).await;
    // A job of it runs, whichever coordinator accepts it.
    let mut island = Island::start(&network).await;
    peer.until_online(&network, &[&island]).await;
    let job = json!({"workload": "my-model", "input": {"prompt": "hi"}});
    let (status, job) = answer(peer.call(&network, Method::POST, "/jobs").json(&job)).await;
    assert_eq!(status, 201, "{job}");
    let run = island.take().await;
    assert!(island.end(run.key, run.first_event, completed(1, 1)).await.committed);
    assert_eq!(answer(network.call(Method::DELETE, &path)).await.0, 200);
    served(2).await;
    peer.down().await;
}

#[tokio::test]
async fn indexes_of_large_tables_are_built_after_the_migrations() {
    let mut network = Network::start().await;
    let pool = network.sql().await;
    let complete = async || {
        loop {
            let valid = "SELECT COUNT(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                         WHERE c.relname IN ('jobs_queue', 'jobs_queue_of_cargo', 'jobs_unmet') AND i.indisvalid";
            let valid: i64 = sqlx::query_scalar(valid).fetch_one(&pool).await.expect("a number");
            if valid == 3 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon("all indexes", complete()).await;
    network.down().await;
    // As a coordinator leaves it that was killed while it built.
    let broken = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_queue'::regclass";
    sqlx::query(broken).execute(&pool).await.expect("an index that was not completed");
    network.up().await;
    soon("all indexes again", complete()).await;
    pool.close().await;
    network.submit().await;
}
