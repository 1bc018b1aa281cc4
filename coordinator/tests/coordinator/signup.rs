//! Accounts by invitation.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    network::Network,
};

async fn sign_up(network: &Network, email: &str, code: &str) -> (u16, Value) {
    let body = json!({"email": email, "code": code});
    answer(network.http.post(format!("{}/signup", network.url)).json(&body)).await
}

fn as_key(network: &Network, key: &Value) -> RequestBuilder {
    network.http.get(format!("{}/account", network.url)).bearer_auth(key.as_str().expect("a key"))
}

async fn invite(admin: &Admin<'_>, body: Value) -> (String, String) {
    let (status, made) = admin.post("/invitations", &body).await;
    assert_eq!(status, 201, "{made}");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    (text(&made["data"]["id"]), text(&made["code"]))
}

#[tokio::test]
async fn a_code_makes_as_many_accounts_as_it_is_for() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let (id, code) = invite(&admin, json!({"credits": 2.5, "uses": 2, "reason": "course"})).await;
    let (status, first) = sign_up(&network, "one@example.org", &code).await;
    assert_eq!((status, &first["data"]["credits"]), (201, &json!(2.5)), "{first}");
    let (status, own) = answer(as_key(&network, &first["key"])).await;
    assert_eq!((status, &own["data"]["id"]), (200, &first["data"]["id"]));
    // Others know the code as well, so it gives no new key to an account that exists.
    let (status, again) = sign_up(&network, "one@example.org", &code).await;
    assert_eq!((status, &again["error"]["param"]), (422, &json!("email")));
    assert_eq!(sign_up(&network, "two@example.org", &code).await.0, 201);
    let (status, third) = sign_up(&network, "three@example.org", &code).await;
    assert_eq!((status, &third["error"]["code"]), (403, &json!("invalid_invitation")));
    assert_eq!(sign_up(&network, "three@example.org", "wrong").await.0, 403);
    let listed = admin.get("/invitations").await;
    assert_eq!((&listed["data"][0]["used"], &listed["data"][0]["uses"]), (&json!(2), &json!(2)));
    assert!(listed["data"][0].get("code").is_none());
    let log = admin.get("/audit-log?limit=1").await;
    assert_eq!((&log["data"][0]["action"], &log["data"][0]["subject"]), (&json!("create_invitation"), &json!(id)));
    network.audit().await;
}

#[tokio::test]
async fn a_sign_up_whose_answer_was_lost_is_repeated() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let (_, code) = invite(&admin, json!({"credits": 1, "reason": "a friend"})).await;
    let (_, first) = sign_up(&network, "one@example.org", &code).await;
    let (status, again) = sign_up(&network, "one@example.org", &code).await;
    assert_eq!((status, &again["data"]), (201, &first["data"]), "{again}");
    assert_eq!(answer(as_key(&network, &first["key"])).await.0, 401, "the lost key is revoked");
    assert_eq!(answer(as_key(&network, &again["key"])).await.0, 200);
    assert_eq!(sign_up(&network, "other@example.org", &code).await.0, 403, "used up");
    network.audit().await;
}

#[tokio::test]
async fn a_code_that_was_revoked_or_has_expired_replaces_no_key() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    for (email, is_revoked) in [("one@example.org", true), ("two@example.org", false)] {
        let (id, code) = invite(&admin, json!({"reason": "r", "expires_at": "2100-01-01T00:00:00Z"})).await;
        let (status, first) = sign_up(&network, email, &code).await;
        assert_eq!(status, 201, "{first}");
        if is_revoked {
            let path = format!("/invitations/{id}/revoke");
            assert_eq!(admin.post(&path, &json!({"reason": "the code is public"})).await.0, 200);
        } else {
            let pool = network.sql().await;
            let expire = sqlx::query("UPDATE invitations SET expires_at = 1 WHERE id = $1").bind(id);
            expire.execute(&pool).await.expect("update");
            pool.close().await;
        }
        let (status, again) = sign_up(&network, email, &code).await;
        assert_eq!((status, &again["error"]["code"]), (403, &json!("invalid_invitation")), "{email}");
        assert_eq!(answer(as_key(&network, &first["key"])).await.0, 200, "{email} keeps the account and its key");
    }
    network.audit().await;
}

#[tokio::test]
async fn codes_expire_and_can_be_revoked() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let past = json!({"reason": "r", "expires_at": "2020-01-01T00:00:00Z"});
    assert_eq!(admin.post("/invitations", &past).await.1["error"]["param"], "expires_at");
    let (id, code) = invite(&admin, json!({"reason": "r", "expires_at": "2100-01-01T00:00:00Z"})).await;
    let path = format!("/invitations/{id}/revoke");
    for _ in 0..2 {
        let (status, body) = admin.post(&path, &json!({"reason": "public"})).await;
        assert_eq!(status, 200);
        assert!(body["data"]["revoked_at"].is_string(), "{body}");
    }
    assert_eq!(sign_up(&network, "one@example.org", &code).await.0, 403);
    let unknown = admin.post(&format!("/invitations/{}/revoke", network.consumer.id), &json!({"reason": "r"})).await;
    assert_eq!(unknown.1["error"]["code"], "invitation_not_found");
    let create = || {
        let body = json!({"reason": "twice"});
        admin.call(Method::POST, "/invitations").header("Idempotency-Key", "i").json(&body)
    };
    let (first, again) = (answer(create()).await.1, answer(create()).await.1);
    assert_eq!(first["data"], again["data"]);
    assert!(first["code"].is_string() && again.get("code").is_none());
}
