//! Quotas of accounts and keys.

use island_protocol::ids::JobId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, completed, token},
    network::Network,
};

async fn submit(network: &Network, key: &str) -> (u16, Value) {
    let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
    answer(network.http.post(format!("{}/jobs", network.url)).bearer_auth(key).json(&body)).await
}

async fn cancel(network: &Network, job: &Value) {
    let path = format!("/jobs/{}", job.as_str().expect("an id"));
    let (status, body) = answer(network.call(Method::DELETE, &path)).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn an_account_has_so_many_requests_a_day_and_earlier_ones_count() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let key = &network.consumer.key;
    assert_eq!(submit(&network, key).await.0, 201);
    let path = format!("/accounts/{}/quotas", network.consumer.id);
    let set = |requests: u64| json!({"quotas": {"day": {"requests": requests}}, "reason": "trial"});
    let (status, body) = admin.post(&path, &set(2)).await;
    assert_eq!((status, &body["data"][0]["requests"]), (200, &json!({"used": 1, "max": 2})), "{body}");
    let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
    let request = || network.call(Method::POST, "/jobs").header("Idempotency-Key", "k").json(&body);
    for _ in 0..2 {
        assert_eq!(answer(request()).await.0, 201, "a repeated request is one request");
    }
    let refused = network.call(Method::POST, "/jobs").json(&body).send().await.expect("answer");
    let wait: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("a number");
    assert!((1..=86_400).contains(&wait), "{wait}");
    assert_eq!(refused.status(), 429);
    let refused: Value = refused.json().await.expect("json");
    assert_eq!(refused["error"]["code"], "quota_exceeded");
    let message = refused["error"]["message"].as_str().expect("text");
    assert!(message.starts_with("the request quota of this account for the day is used up until "), "{message}");
    // Reading is not limited by it, and nothing of a refused job is left.
    let own = network.get("/account/quotas").await;
    assert_eq!(own["data"]["account"][0]["requests"], json!({"used": 2, "max": 2}));
    assert_eq!(own["data"]["key"], json!([]));
    assert_eq!(network.get("/jobs").await["meta"]["total"], 2);
    assert!((network.credits(&network.consumer).await - 8.0).abs() < 1e-9);

    assert_eq!(admin.post(&path, &set(3)).await.0, 200);
    assert_eq!(submit(&network, key).await.0, 201);
    assert_eq!(submit(&network, key).await.0, 429);
    let (status, body) = admin.post(&path, &json!({"quotas": {}, "reason": "paid"})).await;
    assert_eq!((status, &body["data"]), (200, &json!([])));
    assert_eq!(submit(&network, key).await.0, 201);
    let log = admin.get("/audit-log?limit=1").await;
    assert_eq!((&log["data"][0]["action"], &log["data"][0]["reason"]), (&json!("set_quotas"), &json!("paid")));
    for bad in [json!({"quotas": {"week": {}}, "reason": "r"}), json!({"quotas": {"day": {"requests": -1}}, "reason": "r"})] {
        assert_eq!(admin.post(&path, &bad).await.0, 422, "{bad}");
    }
    network.audit().await;
}

#[tokio::test]
async fn credits_that_are_not_charged_return_to_the_quota_and_tokens_are_added_at_the_end() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let path = format!("/accounts/{}/quotas", network.consumer.id);
    let quotas = json!({"month": {"credits": 2, "tokens": 5}});
    assert_eq!(admin.post(&path, &json!({"quotas": quotas, "reason": "trial"})).await.0, 200);
    let key = &network.consumer.key;
    let used = async || {
        let month = network.get("/account/quotas").await["data"]["account"][0].clone();
        (month["credits"]["used"].clone(), month["tokens"]["used"].clone())
    };
    let (first, second) = (submit(&network, key).await.1, submit(&network, key).await.1);
    assert_eq!(used().await, (json!(2), json!(0)), "what is held counts");
    let (status, body) = submit(&network, key).await;
    assert_eq!((status, &body["error"]["code"]), (429, &json!("quota_exceeded")));
    cancel(&network, &first["data"]["id"]).await;
    assert_eq!(used().await, (json!(1), json!(0)));
    let mut island = Island::start(&network).await;
    let run = island.take().await;
    assert_eq!(json!(run.key.job_id.to_string()), second["data"]["id"]);
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(3, 1)).await.committed);
    assert_eq!(used().await, (json!(1), json!(4)));
    // A job that exceeds the tokens runs; the next one is refused.
    assert_eq!(submit(&network, key).await.0, 201);
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(3, 1)).await.committed);
    assert_eq!(used().await, (json!(2), json!(8)));
    let (status, body) = submit(&network, key).await;
    assert_eq!(status, 429);
    let refund = format!("/jobs/{}/refund", run.key.job_id);
    assert_eq!(admin.post(&refund, &json!({"reason": "wrong"})).await.0, 200);
    assert_eq!(used().await, (json!(1), json!(8)), "{body}");
    // What was used before a quota is set is the same.
    assert_eq!(admin.post(&path, &json!({"quotas": {}, "reason": "r"})).await.0, 200);
    let quotas = json!({"month": {"credits": 9, "tokens": 9, "requests": 9}});
    let (_, body) = admin.post(&path, &json!({"quotas": quotas, "reason": "r"})).await;
    let month = &body["data"][0];
    assert_eq!((&month["requests"]["used"], &month["tokens"]["used"]), (&json!(3), &json!(8)));
    assert_eq!(month["credits"]["used"], 1, "what was refunded is not used: {month}");
    network.audit().await;
}

#[tokio::test]
async fn a_key_with_quotas_cannot_evade_them() {
    let network = Network::start().await;
    let body = json!({"name": "limited", "quotas": {"day": {"requests": 1}}});
    let (status, limited) = answer(network.call(Method::POST, "/api-keys").json(&body)).await;
    assert_eq!(status, 201, "{limited}");
    let (id, key) = (limited["data"]["id"].as_str().expect("an id"), limited["key"].as_str().expect("a key"));
    assert_eq!(submit(&network, key).await.0, 201);
    let (status, body) = submit(&network, key).await;
    assert_eq!((status, &body["error"]["code"]), (429, &json!("quota_exceeded")));
    assert!(body["error"]["message"].as_str().expect("text").contains("of this API key"), "{body}");
    assert_eq!(submit(&network, &network.consumer.key).await.0, 201, "another key of the account");
    let own = network.http.get(format!("{}/account/quotas", network.url)).bearer_auth(key);
    assert_eq!(answer(own).await.1["data"]["key"][0]["requests"], json!({"used": 1, "max": 1}));

    let as_limited = |path: &str, body: Value| {
        network.http.post(format!("{}{path}", network.url)).bearer_auth(key).json(&body)
    };
    for (path, body) in [
        ("/api-keys".to_owned(), json!({"name": "more"})),
        (format!("/api-keys/{id}/quotas"), json!({})),
    ] {
        let (status, body) = answer(as_limited(&path, body)).await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")), "{path}");
    }
    let path = format!("/api-keys/{id}/quotas");
    let other = network.http.get(format!("{}{path}", network.url)).bearer_auth(&network.owner.key);
    assert_eq!(answer(other).await.1["error"]["code"], "api_key_not_found", "of another account");
    let (status, body) = answer(network.call(Method::POST, &path).json(&json!({"day": {"requests": 2}}))).await;
    assert_eq!((status, &body["data"][0]["requests"]), (200, &json!({"used": 1, "max": 2})), "{body}");
    assert_eq!(network.get(&path).await["data"], body["data"]);
    assert_eq!(submit(&network, key).await.0, 201);
    assert_eq!(submit(&network, key).await.0, 429);
    network.audit().await;
}

#[tokio::test]
async fn requests_at_one_time_do_not_exceed_a_quota() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let path = format!("/accounts/{}/quotas", network.consumer.id);
    let quotas = json!({"quotas": {"day": {"requests": 4}}, "reason": "trial"});
    assert_eq!(admin.post(&path, &quotas).await.0, 200);
    let key = network.consumer.key.as_str();
    let results = futures::future::join_all((0..20).map(|_| submit(&network, key))).await;
    let accepted: Vec<JobId> = results
        .iter()
        .filter(|(status, _)| *status == 201)
        .map(|(_, body)| body["data"]["id"].as_str().expect("an id").parse().expect("an id"))
        .collect();
    assert_eq!(accepted.len(), 4);
    assert!(results.iter().all(|(status, _)| [201, 429].contains(status)));
    network.audit().await;
}
