//! `/webhooks`, with receivers that fail, do not reply, or lead elsewhere.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{
        HeaderMap, StatusCode, Uri,
        header::{LOCATION, RETRY_AFTER},
    },
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use island_coordinator_domain::config::Config;
use island_protocol::time::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    files::upload,
    support::{
        answer,
        island::{Island, completed, token},
        network::Network,
        soon,
    },
};

/// How a receiver answers.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Status(u16),
    /// 429, with this number of seconds.
    Later(u32),
    /// To another path of it.
    Redirect,
    /// Never.
    Silence,
}

/// What was received.
#[derive(Debug)]
struct Received {
    path: String,
    headers: HeaderMap,
    body: String,
}

impl Received {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().expect("text")
    }

    /// Whether one of the signatures is that of the secret, as Standard Webhooks describes it.
    fn is_signed_with(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("base64");
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length");
        let signed = format!("{}.{}.{}", self.header("webhook-id"), self.header("webhook-timestamp"), self.body);
        mac.update(signed.as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        self.header("webhook-signature").split(' ').any(|signature| signature == expected)
    }
}

/// A server that receives events.
struct Receiver {
    url: String,
    received: mpsc::UnboundedReceiver<Received>,
    server: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Answers = (mpsc::UnboundedSender<Received>, Arc<Mutex<VecDeque<Reply>>>);

async fn receive(State((sender, replies)): State<Answers>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).expect("text");
    let _ = sender.send(Received { path: uri.path().to_owned(), headers, body });
    let reply = replies.lock().expect("no panic").pop_front().unwrap_or(Reply::Status(200));
    match reply {
        Reply::Status(status) => StatusCode::from_u16(status).expect("a status").into_response(),
        Reply::Later(seconds) => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds.to_string())]).into_response(),
        Reply::Redirect => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, "/elsewhere")]).into_response(),
        Reply::Silence => std::future::pending().await,
    }
}

impl Receiver {
    /// Answers with these first, and with 200 afterwards.
    async fn start(replies: &[Reply]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/events", listener.local_addr().expect("an address"));
        let replies = Arc::new(Mutex::new(replies.iter().copied().collect()));
        let (sender, received) = mpsc::unbounded_channel();
        let router = Router::new().fallback(receive).with_state((sender, replies));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("served") });
        Self { url, received, server }
    }

    async fn next(&mut self) -> Received {
        soon("an event", self.received.recv()).await.expect("the server runs")
    }
}

fn quick(config: &mut Config) {
    config.webhooks.private_addresses = true;
    config.webhooks.first_retry_ms = 50;
    config.webhooks.timeout_s = 1;
}

/// Creates a webhook. Returns its id and its secret.
async fn create(network: &Network, url: &str, events: &[&str]) -> (String, String) {
    let body = json!({"url": url, "events": events});
    let (status, created) = answer(network.call(Method::POST, "/webhooks").json(&body)).await;
    assert_eq!(status, 201, "{created}");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    (text(&created["data"]["id"]), text(&created["secret"]))
}

async fn run_one(network: &Network, island: &mut Island) -> String {
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("x")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    id
}

/// The first delivery of a webhook, once it is in this state.
async fn delivery(network: &Network, webhook: &str, state: &str) -> Value {
    let path = format!("/webhooks/{webhook}/deliveries");
    let reached = async {
        loop {
            let delivery = network.get(&path).await["data"][0].clone();
            if delivery["state"] == state {
                return delivery;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(state, reached).await
}

#[tokio::test]
async fn ends_are_sent_once_signed_to_those_who_want_them() {
    let network = Network::start_with(quick).await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let mut receiver = Receiver::start(&[]).await;
    let events = ["job.completed", "job.cancelled", "batch.completed"];
    let (webhook, secret) = create(&network, &receiver.url, &events).await;
    let unwanted = Receiver::start(&[]).await;
    create(&network, &unwanted.url, &["job.failed"]).await;

    let job = run_one(&network, &mut island).await;
    let event = receiver.next().await;
    assert!(event.is_signed_with(&secret), "{event:?}");
    assert_eq!((event.path.as_str(), event.header("content-type")), ("/events", "application/json"));
    let body = event.json();
    assert_eq!((&body["type"], &body["data"]), (&json!("job.completed"), &json!({"id": job})));
    assert_eq!((&body["id"], &body["object"]), (&json!(event.header("webhook-id")), &json!("event")));
    let sent = delivery(&network, &webhook, "delivered").await;
    assert_eq!((&sent["id"], &sent["attempts"], &sent["last_status"]), (&body["id"], &json!(1), &json!(200)));

    let waiting = network.submit().await;
    let run = island.take().await;
    assert_eq!(answer(network.call(Method::DELETE, &format!("/jobs/{waiting}"))).await.0, 200);
    assert_eq!(island.cancelled().await.key, run.key);
    let body = receiver.next().await.json();
    assert_eq!((&body["type"], &body["data"]["id"]), (&json!("job.cancelled"), &json!(waiting)));

    // A batch has one event, and its jobs none.
    let line = json!({"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"model": "echo", "input": "x"}});
    let file = upload(&network, &line.to_string()).await;
    let body = json!({"input_file_id": file, "endpoint": "/v1/responses", "completion_window": "24h"});
    let (status, batch) = answer(network.call(Method::POST, "/batches").json(&body)).await;
    assert_eq!(status, 200, "{batch}");
    let run = island.take().await;
    island.end(run.key, run.first_event, completed(1, 0)).await;
    let body = receiver.next().await.json();
    assert_eq!((&body["type"], &body["data"]["id"]), (&json!("batch.completed"), &batch["id"]));

    let log = network.get(&format!("/webhooks/{webhook}/deliveries?limit=2")).await;
    assert_eq!((&log["meta"]["total"], log["data"].as_array().map(Vec::len)), (&json!(3), Some(2)));
    let mut unwanted = unwanted;
    assert!(unwanted.received.try_recv().is_err());
}

#[tokio::test]
async fn a_receiver_that_fails_gets_the_event_again() {
    let network = Network::start_with(quick).await;
    let mut island = Island::start(&network).await;
    let replies = [Reply::Status(500), Reply::Redirect, Reply::Silence, Reply::Status(404)];
    let mut receiver = Receiver::start(&replies).await;
    let (webhook, secret) = create(&network, &receiver.url, &["job.completed"]).await;
    run_one(&network, &mut island).await;
    let first = receiver.next().await;
    for attempt in 2..=5 {
        let again = receiver.next().await;
        assert_eq!(again.path, "/events", "redirections are not followed");
        assert_eq!((again.header("webhook-id"), &again.body), (first.header("webhook-id"), &first.body));
        assert!(again.is_signed_with(&secret), "attempt {attempt}");
    }
    let sent = delivery(&network, &webhook, "delivered").await;
    assert_eq!((&sent["attempts"], &sent["last_error"]), (&json!(5), &Value::Null));
    let webhook = network.get(&format!("/webhooks/{webhook}")).await["data"].clone();
    assert!(webhook["failing_since"].is_null() && webhook["disabled_at"].is_null(), "{webhook}");
}

#[tokio::test]
async fn an_address_decides_when_it_is_tried_again_and_whether_at_all() {
    let network = Network::start_with(quick).await;
    let mut island = Island::start(&network).await;
    let mut later = Receiver::start(&[Reply::Later(3_600)]).await;
    let mut gone = Receiver::start(&[Reply::Status(410)]).await;
    let (postponed, _) = create(&network, &later.url, &["job.completed"]).await;
    let (ended, _) = create(&network, &gone.url, &["job.completed"]).await;
    run_one(&network, &mut island).await;
    later.next().await;
    gone.next().await;
    let failed = delivery(&network, &ended, "failed").await;
    assert_eq!((&failed["attempts"], &failed["last_status"]), (&json!(1), &json!(410)));
    let webhook = network.get(&format!("/webhooks/{ended}")).await["data"].clone();
    assert!(webhook["disabled_at"].is_string(), "{webhook}");

    let waiting = postponed_delivery(&network, &postponed).await;
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("pending"), &json!(1)));
    let time = |field: &str| -> Timestamp { serde_json::from_value(waiting[field].clone()).expect("a time") };
    let wait_ms = time("next_at").unix_ms() - time("created_at").unix_ms();
    assert!((3_600_000..7_200_000).contains(&wait_ms), "{wait_ms} ms, where first_retry_ms is 50");
}

/// Changes rows, as if time had passed.
async fn change(network: &Network, statements: &[&'static str]) {
    let pool = network.sql().await;
    for statement in statements {
        sqlx::query(*statement).execute(&pool).await.expect("changed");
    }
    pool.close().await;
}

/// The newest delivery of a webhook, once its address has answered with 429.
async fn postponed_delivery(network: &Network, webhook: &str) -> Value {
    let path = format!("/webhooks/{webhook}/deliveries");
    let answered = async {
        loop {
            let delivery = network.get(&path).await["data"][0].clone();
            if delivery["last_status"] == 429 {
                return delivery;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the record of the answer", answered).await
}

/// Waits until a failed attempt is recorded of the webhook at this path.
async fn failure_recorded(network: &Network, path: &str) {
    let failing = async {
        while network.get(path).await["data"]["failing_since"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    soon("the record of the failure", failing).await;
}

#[tokio::test]
async fn an_address_that_has_failed_for_long_is_disabled_until_a_test() {
    let network = Network::start_with(|config| {
        quick(config);
        // The second attempt is made when the test has changed the past.
        config.webhooks.first_retry_ms = 1_500;
    })
    .await;
    let mut island = Island::start(&network).await;
    let mut receiver = Receiver::start(&[Reply::Status(500), Reply::Status(500)]).await;
    let (id, secret) = create(&network, &receiver.url, &["job.completed"]).await;
    run_one(&network, &mut island).await;
    receiver.next().await;
    let path = format!("/webhooks/{id}");
    failure_recorded(&network, &path).await;
    let past = ["UPDATE webhook_deliveries SET created_at = 1", "UPDATE webhooks SET failing_since = 1"];
    change(&network, &past).await;
    receiver.next().await;
    let failed = delivery(&network, &id, "failed").await;
    assert_eq!((&failed["last_status"], &failed["next_at"]), (&json!(500), &Value::Null));
    assert!(failed["last_error"].as_str().expect("an error").contains("500"));
    assert!(network.get(&path).await["data"]["disabled_at"].is_string());
    // It is sent nothing more.
    run_one(&network, &mut island).await;
    assert_eq!(network.get(&format!("{path}/deliveries")).await["meta"]["total"], 1);

    let (status, test) = answer(network.call(Method::POST, &format!("{path}/test"))).await;
    assert_eq!((status, &test["data"]["event"]), (202, &json!("webhook.test")));
    let event = receiver.next().await;
    assert!(event.is_signed_with(&secret));
    assert_eq!((&event.json()["data"]["id"], &event.json()["id"]), (&json!(id), &test["data"]["id"]));
    delivery(&network, &id, "delivered").await;
    assert!(network.get(&path).await["data"]["disabled_at"].is_null(), "it works again");
}

#[tokio::test]
async fn an_event_long_after_one_that_was_given_up_is_tried_again_like_any_other() {
    let network = Network::start_with(quick).await;
    let mut island = Island::start(&network).await;
    let mut receiver = Receiver::start(&[Reply::Later(3_600), Reply::Status(500)]).await;
    let (id, _) = create(&network, &receiver.url, &["job.completed"]).await;
    run_one(&network, &mut island).await;
    receiver.next().await;
    let path = format!("/webhooks/{id}");
    failure_recorded(&network, &path).await;
    // Days pass, in which the event is given up and no other one happens.
    let past = [
        "UPDATE webhook_deliveries SET state = 'failed', ended_at = created_at",
        "UPDATE webhooks SET failing_since = 1",
    ];
    change(&network, &past).await;
    let job = run_one(&network, &mut island).await;
    for attempt in 1..=2 {
        assert_eq!(receiver.next().await.json()["data"]["id"], job, "attempt {attempt}");
    }
    let sent = delivery(&network, &id, "delivered").await;
    assert_eq!((&sent["subject"], &sent["attempts"]), (&json!(job), &json!(2)));
    let webhook = network.get(&path).await["data"].clone();
    assert!(webhook["failing_since"].is_null() && webhook["disabled_at"].is_null(), "{webhook}");
}

#[tokio::test]
async fn an_address_that_gets_few_events_is_disabled_when_it_accepts_none_of_them() {
    let network = Network::start_with(quick).await;
    let mut island = Island::start(&network).await;
    let replies = [Reply::Later(3_600), Reply::Later(3_600), Reply::Status(500)];
    let mut receiver = Receiver::start(&replies).await;
    let (id, _) = create(&network, &receiver.url, &["job.completed"]).await;
    run_one(&network, &mut island).await;
    receiver.next().await;
    postponed_delivery(&network, &id).await;
    // Years pass, in which the event is given up and no other one happens.
    let past = [
        "UPDATE webhook_deliveries SET state = 'failed', created_at = 1, ended_at = 1",
        "UPDATE webhooks SET failing_since = 1",
    ];
    change(&network, &past).await;
    let job = run_one(&network, &mut island).await;
    receiver.next().await;
    postponed_delivery(&network, &id).await;
    let path = format!("/webhooks/{id}");
    assert!(network.get(&path).await["data"]["disabled_at"].is_null(), "the event is tried again");
    // The time after which it is given up passes as well.
    let past = ["UPDATE webhook_deliveries SET created_at = 2, next_at = 2 WHERE state = 'pending'"];
    change(&network, &past).await;
    receiver.next().await;
    let failed = delivery(&network, &id, "failed").await;
    assert_eq!((&failed["subject"], &failed["last_status"]), (&json!(job), &json!(500)));
    let webhook = network.get(&path).await["data"].clone();
    assert!(webhook["disabled_at"].is_string(), "{webhook}");
}

#[tokio::test]
async fn events_of_a_newer_coordinator_are_left_to_it_and_delay_no_others() {
    let network = Network::start_with(quick).await;
    let mut island = Island::start(&network).await;
    let mut receiver = Receiver::start(&[]).await;
    let (id, _) = create(&network, &receiver.url, &["job.completed"]).await;
    let pool = network.sql().await;
    // More than the deliveries of one webhook that are attempted at once.
    for number in 1..=8 {
        sqlx::query(
            "INSERT INTO webhook_deliveries (id, webhook_id, event, subject, state, next_at, created_at) \
             VALUES ($1, $2, 'job.moved', 'x', 'pending', 1, 1)",
        )
        .bind(format!("00000000-0000-7000-8000-00000000000{number}"))
        .bind(&id)
        .execute(&pool)
        .await
        .expect("written");
    }
    let job = run_one(&network, &mut island).await;
    assert_eq!(receiver.next().await.json()["data"]["id"], job);
    delivery(&network, &id, "delivered").await;
    let log = network.get(&format!("/webhooks/{id}/deliveries")).await;
    assert_eq!((&log["meta"]["total"], &log["data"][0]["subject"]), (&json!(1), &json!(job)), "{log}");
    let left: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM webhook_deliveries WHERE event = 'job.moved' AND state = 'pending' AND attempts = 0",
    )
    .fetch_one(&pool)
    .await
    .expect("count");
    assert_eq!(left, 8);
    pool.close().await;
}

#[tokio::test]
async fn a_coordinator_that_dies_before_the_delivery_still_delivers() {
    let mut network = Network::start_process(quick).await;
    network.kill();
    let mut receiver = Receiver::start(&[]).await;
    assert!(network.start_failing("webhooks.attempt=return").await);
    let mut island = Island::start(&network).await;
    let (_, secret) = create(&network, &receiver.url, &["job.completed"]).await;
    let job = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("x")]).await;
    // The reply may be lost with the process, but the end is committed with its event.
    let _ = island.try_end(run.key, run.first_event + 1, completed(1, 1)).await;
    let dead = async {
        while network.is_running() {
            tokio::task::yield_now().await;
        }
    };
    soon("the crash", dead).await;
    assert!(receiver.received.try_recv().is_err(), "nothing was sent");
    network.up().await;
    let event = receiver.next().await;
    assert!(event.is_signed_with(&secret));
    assert_eq!(event.json()["data"]["id"], job);
}

#[tokio::test]
async fn secrets_are_shown_once_and_replaced() {
    let network = Network::start_with(quick).await;
    let mut receiver = Receiver::start(&[]).await;
    let (id, old) = create(&network, &receiver.url, &["job.completed", "job.completed"]).await;
    let path = format!("/webhooks/{id}");
    let shown = network.get(&path).await;
    assert_eq!(shown["data"]["events"], json!(["job.completed"]));
    assert!(!shown.to_string().contains("whsec_") && !network.get("/webhooks").await.to_string().contains("whsec_"));
    let (status, replaced) = answer(network.call(Method::POST, &format!("{path}/secret"))).await;
    assert_eq!(status, 200, "{replaced}");
    let new = replaced["secret"].as_str().expect("a secret");
    assert_ne!(new, old);
    assert_eq!(answer(network.call(Method::POST, &format!("{path}/test"))).await.0, 202);
    let event = receiver.next().await;
    assert!(event.is_signed_with(new) && event.is_signed_with(&old), "both for a day");

    // Another account knows nothing of it.
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::POST, format!("{path}/secret")),
        (Method::POST, format!("{path}/test")),
        (Method::GET, format!("{path}/deliveries")),
    ] {
        let request = network.http.request(method, format!("{}{path}", network.url));
        let (status, body) = answer(request.bearer_auth(&network.owner.key)).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("webhook_not_found")), "{path}");
    }
    let (status, deleted) = answer(network.call(Method::DELETE, &path)).await;
    assert_eq!((status, &deleted["data"]["deleted"]), (200, &json!(true)));
    assert_eq!(answer(network.call(Method::GET, &path)).await.0, 404);
    assert_eq!(network.get("/webhooks").await, json!({"data": []}));
}

#[tokio::test]
async fn only_public_encrypted_addresses_are_accepted() {
    let network = Network::start_with(|config| config.webhooks.per_account = 1).await;
    let create = |url: &str, events: Value| {
        answer(network.call(Method::POST, "/webhooks").json(&json!({"url": url, "events": events})))
    };
    for url in [
        "",
        "example.org",
        "http://example.org/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[::1]/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://user:password@example.org/",
    ] {
        let (status, body) = create(url, json!(["job.completed"])).await;
        assert_eq!((status, &body["error"]["param"]), (422, &json!("url")), "{url}: {body}");
    }
    for events in [json!([]), json!(["job.started"]), json!("job.completed")] {
        let (status, body) = create("https://example.org/", events).await;
        assert_eq!(status, 422, "{body}");
        assert!(body["error"]["param"].as_str().expect("a field").starts_with("events"), "{body}");
    }
    assert_eq!(create("https://example.org/", json!(["job.completed"])).await.0, 201);
    let (status, body) = create("https://example.org/", json!(["job.completed"])).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("too_many_webhooks")));
}

#[tokio::test]
async fn an_address_that_became_private_is_not_connected_to() {
    // The operator allowed private addresses when the webhook was created, and does not any more.
    let mut network = Network::start_with(quick).await;
    let mut receiver = Receiver::start(&[]).await;
    let (id, _) = create(&network, &receiver.url, &["job.completed"]).await;
    network.down().await;
    network.config.webhooks.private_addresses = false;
    network.up().await;
    assert_eq!(answer(network.call(Method::POST, &format!("/webhooks/{id}/test"))).await.0, 202);
    let path = format!("/webhooks/{id}/deliveries");
    let refused = async {
        loop {
            let delivery = network.get(&path).await["data"][0].clone();
            if delivery["last_error"].is_string() {
                return delivery;
            }
            tokio::task::yield_now().await;
        }
    };
    let delivery = soon("the refusal", refused).await;
    assert_eq!((&delivery["state"], &delivery["last_status"]), (&json!("pending"), &Value::Null), "{delivery}");
    assert!(receiver.received.try_recv().is_err(), "no connection was made");
}
