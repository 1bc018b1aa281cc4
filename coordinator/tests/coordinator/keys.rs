//! API keys: scopes, expiry, caps, revocation.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, finished},
    network::Network,
    soon,
};

async fn make(network: &Network, key: &str, body: Value) -> (u16, Value) {
    answer(with(network, key, Method::POST, "/api-keys").json(&body)).await
}

fn with(network: &Network, key: &str, method: Method, path: &str) -> RequestBuilder {
    network.http.request(method, format!("{}{path}", network.url)).bearer_auth(key)
}

fn job() -> Value {
    json!({"workload": "echo", "input": {"prompt": "x"}})
}

#[tokio::test]
async fn a_key_is_shown_once_and_listed_without_its_secret() {
    let network = Network::start().await;
    let (status, made) = make(&network, &network.consumer.key, json!({"name": "laptop"})).await;
    assert_eq!(status, 201, "{made}");
    let secret = made["key"].as_str().expect("secret").to_owned();
    assert!(
        secret.starts_with("ak_") && secret.starts_with(made["data"]["prefix"].as_str().expect("prefix"))
    );
    assert_eq!(made["data"]["scopes"], json!(["read", "write"]));
    let listed = network.get("/api-keys").await;
    let listed = listed["data"].as_array().expect("list");
    assert_eq!(listed.iter().map(|key| &key["name"]).collect::<Vec<_>>(), ["test", "laptop"]);
    assert_eq!(listed[1]["id"], made["data"]["id"]);
    assert!(!listed.iter().any(|key| key.to_string().contains(&secret) || key.get("key").is_some()));
    assert_eq!(answer(with(&network, &secret, Method::GET, "/account")).await.0, 200);
    let noted = async {
        while network.get("/api-keys").await["data"][1]["last_used_at"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    soon("the note of the last use", noted).await;
}

#[tokio::test]
async fn a_list_is_bounded_and_prefers_keys_that_are_accepted() {
    let network = Network::start().await;
    let pool = network.sql().await;
    // They are newer than the key that is used.
    sqlx::query(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000) \
         INSERT INTO api_keys (id, account_id, name, prefix, hash, created_at, expires_at) \
         SELECT '00000000-0000-7000-8000-' || CAST(100000000000 + n AS TEXT), $1, 'old', 'ak_old', \
         'old ' || CAST(n AS TEXT), 9000000000000, 1 FROM numbers",
    )
    .bind(network.consumer.id.to_string())
    .execute(&pool)
    .await
    .expect("written");
    pool.close().await;
    let listed = network.get("/api-keys").await;
    let listed = listed["data"].as_array().expect("list");
    assert_eq!(listed.len(), 1_000);
    assert_eq!((&listed[0]["name"], &listed[1]["name"]), (&json!("test"), &json!("old")));
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_once_and_keys_of_other_accounts_do_not_exist() {
    let network = Network::start().await;
    let (_, made) = make(&network, &network.consumer.key, json!({"name": "k"})).await;
    let (id, secret) = (made["data"]["id"].as_str().expect("id"), made["key"].as_str().expect("key"));
    let path = format!("/api-keys/{id}");
    let code = |body: &Value| body["error"]["code"].as_str().map(str::to_owned);
    let (status, body) = answer(with(&network, &network.owner.key, Method::DELETE, &path)).await;
    assert_eq!((status, code(&body)), (404, Some("api_key_not_found".into())));
    assert_eq!(answer(with(&network, secret, Method::GET, "/account")).await.0, 200);
    // The key in use may revoke itself.
    let (status, body) = answer(with(&network, secret, Method::DELETE, &path)).await;
    assert_eq!((status, body["data"]["revoked_at"].is_string()), (200, true), "{body}");
    let (status, body) = answer(with(&network, secret, Method::GET, "/account")).await;
    assert_eq!((status, code(&body)), (401, Some("invalid_api_key".into())));
    for path in [path.as_str(), "/api-keys/nonsense"] {
        let (status, body) = answer(with(&network, &network.consumer.key, Method::DELETE, path)).await;
        assert_eq!((status, code(&body)), (404, Some("api_key_not_found".into())));
    }
    assert_eq!(network.get("/api-keys").await["data"].as_array().expect("list").len(), 1);
}

#[tokio::test]
async fn scopes_restrict_a_key() {
    let network = Network::start().await;
    let key = async |scopes: Value| {
        let (_, made) = make(&network, &network.consumer.key, json!({"name": "k", "scopes": scopes})).await;
        made["key"].as_str().expect("key").to_owned()
    };
    let (reader, writer) = (key(json!("read")).await, key(json!(["write"])).await);
    assert_eq!(answer(with(&network, &reader, Method::GET, "/jobs")).await.0, 200);
    assert_eq!(answer(with(&network, &writer, Method::POST, "/jobs").json(&job())).await.0, 201);
    for refused in [
        with(&network, &reader, Method::POST, "/jobs").json(&job()),
        with(&network, &reader, Method::POST, "/api-keys").json(&json!({"name": "more"})),
        with(&network, &writer, Method::GET, "/jobs"),
    ] {
        let (status, body) = answer(refused).await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")), "{body}");
    }
    let (status, body) = make(&network, &writer, json!({"name": "n", "scopes": ["read"]})).await;
    assert_eq!((status, &body["error"]["param"]), (403, &json!("scopes")));
    let (_, child) = make(&network, &writer, json!({"name": "n"})).await;
    assert_eq!(child["data"]["scopes"], json!(["write"]), "what is left out is as with its maker");
}

#[tokio::test]
async fn a_key_that_has_expired_is_refused() {
    let network = Network::start().await;
    let body = json!({"name": "k", "expires_at": "2100-01-01T00:00:00Z"});
    let (_, made) = make(&network, &network.consumer.key, body).await;
    let secret = made["key"].as_str().expect("key");
    assert_eq!(answer(with(&network, secret, Method::GET, "/account")).await.0, 200);
    let pool = network.sql().await;
    sqlx::query("UPDATE api_keys SET expires_at = 1 WHERE name = 'k'").execute(&pool).await.expect("update");
    pool.close().await;
    let (status, body) = answer(with(&network, secret, Method::GET, "/account")).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("invalid_api_key")));
}

#[tokio::test]
async fn a_cap_is_never_exceeded_and_refunds_return_to_it() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 0).await;
    let mut island = Island::start(&network).await;
    let body = json!({"name": "k", "spend_cap": 3});
    let (_, made) = make(&network, &network.consumer.key, body).await;
    let secret = made["key"].as_str().expect("key").to_owned();
    let submit = || answer(with(&network, &secret, Method::POST, "/jobs").json(&job()));
    let answers = futures::future::join_all((0..10).map(|_| submit())).await;
    let accepted: Vec<&Value> =
        answers.iter().filter(|(status, _)| *status == 201).map(|(_, body)| body).collect();
    let refused: Vec<&Value> =
        answers.iter().filter(|(status, _)| *status == 402).map(|(_, body)| body).collect();
    assert_eq!((accepted.len(), refused.len()), (3, 7), "{answers:?}");
    assert_eq!(refused[0]["error"]["message"], "1 credits are needed and this key's spend_cap of 3 leaves 0");
    assert_eq!((&refused[0]["error"]["required"], &refused[0]["error"]["available"]), (&json!(1), &json!(0)));

    let spent = async || network.get("/api-keys").await["data"][1]["spent"].clone();
    assert_eq!(spent().await, 3);
    let run = island.take().await;
    island.end(run.key, run.first_event, finished(json!("done"))).await;
    let mut ids = accepted.iter().map(|body| body["data"]["id"].as_str().expect("id"));
    let other = ids.rfind(|id| **id != run.key.job_id.to_string()).expect("another job").to_owned();
    let cancelled = network.call(Method::DELETE, &format!("/jobs/{other}")).send().await.expect("answer");
    assert_eq!(cancelled.status(), StatusCode::OK);
    assert_eq!(spent().await, 2, "what was cancelled may be spent again, what was paid may not");
    assert_eq!(submit().await.0, 201);
    assert_eq!(submit().await.0, 402);
    network.audit().await;
}

#[tokio::test]
async fn a_capped_key_passes_on_its_own_cap_only() {
    let network = Network::start().await;
    let (_, made) = make(&network, &network.consumer.key, json!({"name": "k", "spend_cap": 5})).await;
    let parent = made["key"].as_str().expect("key").to_owned();
    let (status, _) = make(&network, &parent, json!({"name": "free"})).await;
    assert_eq!(status, 403);
    let (status, child) = make(&network, &parent, json!({"name": "child", "spend_cap": 4})).await;
    assert_eq!(status, 201, "{child}");
    let (status, body) = make(&network, &parent, json!({"name": "more", "spend_cap": 2})).await;
    assert_eq!((status, &body["error"]["param"]), (403, &json!("spend_cap")));
    let secret = child["key"].as_str().expect("key");
    assert_eq!(answer(with(&network, secret, Method::POST, "/jobs").json(&job())).await.0, 201);
    let id = child["data"]["id"].as_str().expect("id");
    let (status, _) = answer(with(&network, &parent, Method::DELETE, &format!("/api-keys/{id}"))).await;
    assert_eq!(status, 200);
    let listed = network.get("/api-keys").await;
    assert_eq!(listed["data"][1]["spent"], 1, "what the child had not spent came back: {listed}");
    let open = network.get("/jobs").await["data"][0]["id"].as_str().expect("id").to_owned();
    let cancel = network.call(Method::DELETE, &format!("/jobs/{open}"));
    assert_eq!(answer(cancel).await.0, 200);
    let listed = network.get("/api-keys").await;
    assert_eq!(listed["data"][1]["spent"], 0, "what its job released later came back, too: {listed}");
}

#[tokio::test]
async fn a_capped_key_revokes_itself_and_its_own_keys_only() {
    let network = Network::start().await;
    let revoke = |key: &str, id: &str| with(&network, key, Method::DELETE, &format!("/api-keys/{id}"));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let (_, capped) = make(&network, &network.consumer.key, json!({"name": "k", "spend_cap": 5})).await;
    let (_, other) = make(&network, &network.consumer.key, json!({"name": "o", "spend_cap": 5})).await;
    let (_, child) = make(&network, &text(&capped["key"]), json!({"name": "c", "spend_cap": 4})).await;
    let (_, grandchild) = make(&network, &text(&child["key"]), json!({"name": "g", "spend_cap": 3})).await;
    let first = text(&network.get("/api-keys").await["data"][0]["id"]);
    for id in [&first, &text(&other["data"]["id"])] {
        let (status, body) = answer(revoke(&text(&capped["key"]), id)).await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")));
    }
    assert_eq!(answer(revoke(&text(&child["key"]), &text(&capped["data"]["id"]))).await.0, 403, "its parent");
    for id in [&grandchild, &capped] {
        assert_eq!(answer(revoke(&text(&capped["key"]), &text(&id["data"]["id"]))).await.0, 200);
    }
    assert_eq!(answer(revoke(&network.consumer.key, &text(&other["data"]["id"]))).await.0, 200);
}
