//! Permissions to publish and subscribe, checked on the running server.

use async_nats::ConnectOptions;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use island_coordinator_domain::clock::Clock;
use island_protocol_api::{WatchCredentials, claim::ClaimVerb};
use island_protocol::{event::AttemptEvent, ids::HostId, job::{Failure, FailureCode, Outcome}, subjects::{self, HostTopic}};
use nkeys::KeyPair;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use uuid::Uuid;

use crate::support::{
    island::{Island, enroll, signed},
    network::Network,
    soon,
};

/// A raw connection. The server replies in order, so a PONG shows that it has processed everything before the PING.
struct Probe(BufReader<TcpStream>);

impl Probe {
    async fn connect(url: &str, jwt: &str, key: &KeyPair) -> Self {
        let address = url.strip_prefix("nats://").expect("nats url").to_owned();
        let mut probe = Self(BufReader::new(TcpStream::connect(address).await.expect("connect")));
        let info = probe.line().await;
        let info: Value =
            serde_json::from_str(info.strip_prefix("INFO ").expect("info first")).expect("json");
        let signature = key.sign(info["nonce"].as_str().expect("nonce").as_bytes()).expect("sign");
        let options = json!({
            "jwt": jwt, "sig": URL_SAFE_NO_PAD.encode(signature), "verbose": false, "pedantic": false, "lang": "test",
        });
        assert!(probe.passes(&format!("CONNECT {options}\r\n")).await, "admitted");
        probe
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        soon("a line from the server", self.0.read_line(&mut line)).await.expect("read");
        line
    }

    /// Whether the server accepted this.
    async fn passes(&mut self, command: &str) -> bool {
        self.0.get_mut().write_all(format!("{command}PING\r\n").as_bytes()).await.expect("write");
        let mut fine = true;
        loop {
            let line = self.line().await;
            fine &= !line.starts_with("-ERR");
            if line.starts_with("PONG") {
                return fine;
            }
            assert!(!line.is_empty(), "the server closed the connection");
        }
    }

    /// Whether the server ends the connection over this.
    async fn loses_connection(mut self, command: &str) -> bool {
        self.0.get_mut().write_all(format!("{command}PING\r\n").as_bytes()).await.expect("write");
        loop {
            let mut line = String::new();
            match soon("a line from the server", self.0.read_line(&mut line)).await {
                Ok(0) | Err(_) => return true,
                Ok(_) if line.starts_with("PONG") => return false,
                Ok(_) => {}
            }
        }
    }

    async fn may_publish(&mut self, subject: &str) -> bool {
        self.passes(&format!("PUB {subject} 2\r\n{{}}\r\n")).await
    }

    async fn may_subscribe(&mut self, subject: &str) -> bool {
        let fine = self.passes(&format!("SUB {subject} 1\r\n")).await;
        self.passes("UNSUB 1\r\n").await;
        fine
    }
}

async fn watcher(network: &Network, key: &str) -> (Probe, WatchCredentials) {
    let request = network.http.post(format!("{}/fabric/credentials", network.url)).bearer_auth(key);
    let body: Value = request.send().await.expect("answer").json().await.expect("json");
    let credentials: WatchCredentials = serde_json::from_value(body["data"].clone()).expect("credentials");
    let pair = KeyPair::from_seed(&credentials.seed).expect("seed");
    (Probe::connect(&credentials.nats_url, &credentials.user_jwt, &pair).await, credentials)
}

/// Every subject of the fabric, with one concrete Island and job.
fn all_subjects(host: HostId, job: &str) -> Vec<String> {
    let topics = HostTopic::FROM_HOST.into_iter().chain(HostTopic::TO_HOST);
    let mut all: Vec<String> = topics.map(|topic| topic.of(host)).collect();
    all.extend([subjects::REGISTER.to_owned(), subjects::LEASE.to_owned(), format!("job.{job}.events")]);
    all.extend([
        "$JS.API.INFO".to_owned(),
        "$JS.API.STREAM.PURGE.JOB_EVENTS".to_owned(),
        "$SYS.REQ.SERVER.PING".to_owned(),
    ]);
    all.push("_INBOX.someone.1".to_owned());
    all
}

async fn allowed(probe: &mut Probe, subjects: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut publish, mut subscribe) = (Vec::new(), Vec::new());
    for subject in subjects {
        if probe.may_publish(subject).await {
            publish.push(subject.clone());
        }
        if probe.may_subscribe(subject).await {
            subscribe.push(subject.clone());
        }
    }
    (publish, subscribe)
}

#[tokio::test]
async fn an_island_may_use_its_own_subjects_only() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let inbox = subjects::inbox_prefix(island.id);
    let credentials = &island.credentials;
    let mut probe = Probe::connect(&credentials.nats_url, &credentials.user_jwt, &island.key).await;
    let job = Uuid::new_v4().to_string();
    let (publish, subscribe) = allowed(&mut probe, &all_subjects(island.id, &job)).await;
    let own = |topics: &[HostTopic]| topics.iter().map(|topic| topic.of(island.id)).collect::<Vec<_>>();
    let mut may_publish = own(&HostTopic::FROM_HOST);
    may_publish.extend([subjects::REGISTER.to_owned(), subjects::LEASE.to_owned()]);
    assert_eq!(publish, may_publish);
    assert_eq!(subscribe, own(&HostTopic::TO_HOST));
    assert!(probe.may_subscribe(&format!("{inbox}.x.*")).await);
    let other = all_subjects(HostId(Uuid::new_v4()), &job);
    let (publish, subscribe) = allowed(&mut probe, &other).await;
    assert_eq!(
        publish,
        [subjects::REGISTER, subjects::LEASE],
        "the shared ones, which take its own signature only"
    );
    assert!(subscribe.is_empty(), "{subscribe:?}");
    for wildcard in [">", "host.>", "host.*.jobs", "job.>", "_INBOX.>", "coordinator.>"] {
        assert!(!probe.may_subscribe(wildcard).await, "{wildcard}");
    }
}

#[tokio::test]
async fn a_consumer_sees_load_status_and_its_own_jobs() {
    let network = Network::start().await;
    let job = network.submit().await;
    let (mut probe, credentials) = watcher(&network, &network.consumer.key).await;
    let host = HostId(Uuid::new_v4());
    let (publish, subscribe) = allowed(&mut probe, &all_subjects(host, &job)).await;
    assert!(publish.is_empty(), "{publish:?}");
    let seen = [HostTopic::Heartbeat.of(host), HostTopic::Status.of(host), format!("job.{job}.events")];
    assert_eq!(subscribe, seen);
    assert!(!probe.may_subscribe(&format!("job.{}.events", Uuid::new_v4())).await);
    assert!(!probe.may_subscribe("job.*.events").await);
    assert_eq!(credentials.subjects.len(), 3);

    let (mut stranger, _) = watcher(&network, &network.owner.key).await;
    assert!(!stranger.may_subscribe(&format!("job.{job}.events")).await);
}

#[tokio::test]
async fn an_operator_sees_all_public_subjects_and_publishes_nothing() {
    let network = Network::start().await;
    let pool = network.sql().await;
    sqlx::query("UPDATE accounts SET operator = 1 WHERE id = $1")
        .bind(network.consumer.id.to_string())
        .execute(&pool)
        .await
        .expect("promotion");
    let (mut probe, credentials) = watcher(&network, &network.consumer.key).await;
    let (host, job) = (HostId(Uuid::new_v4()), Uuid::new_v4().to_string());
    let (publish, subscribe) = allowed(&mut probe, &all_subjects(host, &job)).await;
    assert!(publish.is_empty(), "{publish:?}");
    let public =
        [HostTopic::Heartbeat, HostTopic::Status, HostTopic::Output, HostTopic::Jobs].map(|t| t.of(host));
    let mut expected = public.to_vec();
    expected.extend([subjects::REGISTER.to_owned(), format!("job.{job}.events")]);
    assert_eq!(subscribe, expected);
    assert_eq!(credentials.subjects.len(), 6);
}

#[tokio::test]
async fn credentials_of_a_reader_end_with_its_key() {
    let network = Network::start().await;
    // Sooner than the credentials of a key that does not expire.
    let end = Clock::System.now().plus_ms(120_000);
    let made = network.call(Method::POST, "/api-keys").json(&json!({"name": "k", "expires_at": end}));
    let made: Value = made.send().await.expect("answer").json().await.expect("json");
    let (_probe, credentials) = watcher(&network, made["key"].as_str().expect("a key")).await;
    assert_eq!(made["data"]["expires_at"], json!(credentials.expires_at));
    let claims = credentials.user_jwt.split('.').nth(1).expect("claims");
    let claims: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base 64")).expect("json");
    assert!(claims["exp"].as_i64().expect("seconds") * 1000 <= end.unix_ms(), "{claims}");
    let (_probe, other) = watcher(&network, &network.consumer.key).await;
    assert!(other.expires_at > end, "others end as before");
}

#[tokio::test]
async fn a_watcher_reads_the_ordered_events_of_its_job() {
    let network = Network::start().await;
    let id = network.submit().await;
    let (mut probe, _) = watcher(&network, &network.consumer.key).await;
    assert!(probe.passes(&format!("SUB job.{id}.events 1\r\n")).await);
    let mut island = Island::start(&network).await;
    let assignment = island.take().await;
    let end =
        island.end(assignment.key, assignment.first_event, crate::support::island::completed(1, 0)).await;
    assert!(end.committed);
    let mut numbers = Vec::new();
    let mut done = false;
    while !done {
        let Ok(batch) = serde_json::from_str::<Value>(&probe.line().await) else { continue };
        for event in batch["events"].as_array().expect("events") {
            numbers.push(event["n"].as_u64().expect("number"));
            done |= event["type"] == "done";
        }
    }
    let first = numbers[0];
    assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>(), "in order, none twice");
}

#[tokio::test]
async fn subscriptions_and_bytes_of_a_watcher_are_limited() {
    let network = Network::start().await;
    let subject = HostTopic::Heartbeat.of(HostId(Uuid::new_v4()));
    let (mut probe, _) = watcher(&network, &network.consumer.key).await;
    let mut accepted = 0;
    while accepted < 1000 && probe.passes(&format!("SUB {subject} {accepted}\r\n")).await {
        accepted += 1;
    }
    assert_eq!(accepted, 256);
    assert!(probe.passes("UNSUB 0\r\n").await && probe.passes(&format!("SUB {subject} 0\r\n")).await);

    for (bytes, is_too_large) in [(1024, false), (1025, true)] {
        let (probe, _) = watcher(&network, &network.consumer.key).await;
        let command = format!("PUB {subject} {bytes}\r\n{}\r\n", "x".repeat(bytes));
        assert_eq!(probe.loses_connection(&command).await, is_too_large, "{bytes} bytes");
    }
}

#[tokio::test]
async fn connecting_requires_a_jwt_of_this_account() {
    let network = Network::start().await;
    assert!(async_nats::connect(network.nats.url()).await.is_err());
    let seed = KeyPair::new_user().seed().expect("seed");
    assert!(ConnectOptions::with_nkey(seed).connect(network.nats.url()).await.is_err());
}

#[tokio::test]
async fn an_id_belongs_to_one_key_of_one_account() {
    let network = Network::start().await;
    let (id, key, other) = (HostId(Uuid::new_v4()), KeyPair::new_user(), KeyPair::new_user());
    assert_eq!(enroll(&network, &network.owner, id, &key).await.0, StatusCode::OK);
    assert_eq!(
        enroll(&network, &network.owner, id, &key).await.0,
        StatusCode::OK,
        "repeating it is not an error"
    );
    let (status, body) = enroll(&network, &network.owner, id, &other).await;
    assert_eq!((status, &body["error"]["code"]), (StatusCode::CONFLICT, &"host_conflict".into()));
    assert_eq!(enroll(&network, &network.consumer, id, &key).await.0, StatusCode::CONFLICT);
    let hosts = network.get("/hosts").await;
    assert_eq!(hosts["data"].as_array().expect("list").len(), 1);
    assert_eq!(network.get(&format!("/hosts/{id}")).await["data"]["status"], "offline");
}

#[tokio::test]
async fn what_an_island_reports_is_limited() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    island.register_as("a\u{1b}[2J").await;
    island.register_as(&"x".repeat(101)).await;
    island.register_as(&"x".repeat(2 << 20)).await;
    // The reply to the next one comes after those were dropped or applied.
    island.register(&[]).await;
    assert_eq!(network.get(&format!("/hosts/{}", island.id)).await["data"]["name"], "scripted");

    // Nothing that an attempt reports is stored without limit.
    let id = network.submit().await;
    let run = island.take().await;
    let phase = Some("x".repeat(1 << 20));
    island.send(run.key, run.first_event, vec![AttemptEvent::Progress { step: 0, total: 0, phase }]).await;
    assert_eq!(island.cancelled().await.code, FailureCode::InvalidOutput);
    island.beat(&[]).await;
    let again = island.take().await;
    assert_eq!(again.key.attempt, 2);
    let failure = Failure::of_job(FailureCode::CargoFailed, "y".repeat(1 << 20));
    island.end(again.key, again.first_event, Outcome::failed(failure)).await;
    let message = network.job(&id).await["error"]["message"].clone();
    assert_eq!(message.as_str().map(str::len), Some(2_000));
}

#[tokio::test]
async fn a_registration_without_effect_is_answered_with_the_reason() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let refused = async |field: &str, value: Value| {
        let answer = island.register_or_refused(|message| message[field] = value).await;
        answer.refused.unwrap_or_default()
    };
    assert!(refused("name", json!("a\nb")).await.contains("is not a line"));
    assert!(refused("capabilities", json!("none")).await.contains("cannot read the registration"));
    let long_ago = Clock::System.now().plus_ms(-3_600_000);
    assert!(refused("sent_at", json!(long_ago)).await.contains("clock"));
    assert_eq!(refused("region", json!("elsewhere")).await, "");
    let shown = network.get(&format!("/hosts/{}", island.id)).await;
    assert_eq!((&shown["data"]["name"], &shown["data"]["region"]), (&json!("scripted"), &json!("elsewhere")));
}

/// A heartbeat has no answer.
#[tokio::test]
async fn an_island_is_answered_why_its_heartbeats_cannot_be_read() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    assert_eq!(island.register(&[]).await.unread_heartbeat, None);
    island.publish(HostTopic::Heartbeat, &json!({"v": 1, "host_id": island.id})).await;
    let reason = soon("the reason", async {
        loop {
            if let Some(reason) = island.register(&[]).await.unread_heartbeat {
                break reason;
            }
        }
    });
    assert!(reason.await.contains("missing field"));
    island.beat(&[]).await;
    soon("a heartbeat", async { while island.register(&[]).await.unread_heartbeat.is_some() {} }).await;
}

#[tokio::test]
async fn credentials_are_renewed_by_the_islands_own_signature_alone() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let renew = async |key: &KeyPair| {
        let body = signed(island.id, key, ClaimVerb::Credentials);
        let request = network.http.request(Method::POST, format!("{}/island/credentials", network.url));
        request.json(&body).send().await.expect("answer").status()
    };
    assert_eq!(renew(&island.key).await, StatusCode::OK);
    assert_eq!(renew(&KeyPair::new_user()).await, StatusCode::UNPROCESSABLE_ENTITY);
}

impl Probe {
    /// Waits until the server closes the connection.
    async fn closed(&mut self) {
        while !self.line().await.is_empty() {}
    }
}

/// Whether the server admits this user.
async fn is_admitted(url: &str, jwt: &str, key: &KeyPair) -> bool {
    let pair = KeyPair::from_seed(&key.seed().expect("seed")).expect("key");
    let sign = move |nonce: Vec<u8>| {
        let signature = pair.sign(&nonce).map_err(async_nats::AuthError::new);
        async move { signature }
    };
    ConnectOptions::with_jwt(jwt.to_owned(), sign).connect(url).await.is_ok()
}

#[tokio::test]
async fn an_island_that_leaves_and_the_readers_of_a_revoked_key_are_disconnected_within_five_seconds() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let url = network.nats.url();
    let jwt = island.credentials.user_jwt.clone();
    let mut connected = Probe::connect(&url, &jwt, &island.key).await;
    let made = network.call(Method::POST, "/api-keys").json(&json!({"name": "k"}));
    let made: Value = made.send().await.expect("answer").json().await.expect("json");
    let (mut reader, credentials) = watcher(&network, made["key"].as_str().expect("key")).await;
    let (mut other, _) = watcher(&network, &network.consumer.key).await;

    let path = format!("/api-keys/{}", made["data"]["id"].as_str().expect("id"));
    assert_eq!(network.call(Method::DELETE, &path).send().await.expect("answer").status(), StatusCode::OK);
    let leave = signed(island.id, &island.key, ClaimVerb::Leave);
    let left = network.http.post(format!("{}/island/leave", network.url)).json(&leave).send().await;
    assert_eq!(left.expect("answer").status(), StatusCode::OK);
    let disconnected = async { tokio::join!(connected.closed(), reader.closed()) };
    tokio::time::timeout(std::time::Duration::from_secs(5), disconnected).await.expect("both in five seconds");
    assert!(!is_admitted(&url, &jwt, &island.key).await, "the credentials are revoked, not only the connection");
    let reader_key = KeyPair::from_seed(&credentials.seed).expect("seed");
    assert!(!is_admitted(&url, &credentials.user_jwt, &reader_key).await);
    assert!(other.passes("").await, "others stay connected");

    // Its new credentials are issued in another second than the revocation, or after that was taken back.
    let (status, body) = enroll(&network, &network.owner, island.id, &island.key).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let jwt = body["data"]["user_jwt"].as_str().expect("jwt").to_owned();
    let returned = async {
        while !is_admitted(&url, &jwt, &island.key).await {
            tokio::task::yield_now().await;
        }
    };
    soon("the Island's return", Box::pin(returned)).await;
}
