//! Orders of an owner to an Island: who may give them, what reaches the Island, and what is recorded.

use island_protocol::{
    FABRIC_VERSION,
    fabric::{Control, ControlReply},
    host::{ControlState, Order},
};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::Island,
    network::Network,
};

fn order(network: &Network, key: &str, island: &str, verb: &str) -> RequestBuilder {
    network.http.request(Method::POST, format!("{}/hosts/{island}/{verb}", network.url)).bearer_auth(key)
}

fn accepted(order: Option<Order>) -> ControlReply {
    let control = ControlState { allowed: true, order, remote: order.is_some() };
    ControlReply { v: FABRIC_VERSION, accepted: true, control, message: None }
}

/// What the audit log has about the owner's Islands, newest first.
async fn recorded(network: &Network, admin: &Admin<'_>) -> Vec<Value> {
    let log = admin.get(&format!("/audit-log?account={}", network.owner.id)).await;
    let entries = log["data"].as_array().expect("entries").clone();
    entries.into_iter().filter(|entry| entry.get("host").is_some()).collect()
}

#[tokio::test]
async fn an_order_reaches_the_island_and_the_audit_log() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let island = Island::start(&network).await;
    let mut orders = island.orders().await;
    let id = island.id.to_string();
    let mut last: Option<Control> = None;
    for (verb, sent, applies) in [
        ("pause", Order::Pause, Some(Order::Pause)),
        ("drain", Order::Drain, Some(Order::Drain)),
        ("resume", Order::Resume, None),
    ] {
        let reply = accepted(applies);
        let request = answer(order(&network, &network.owner.key, &id, verb));
        let ((status, body), received) = tokio::join!(request, island.take_order(&mut orders, &reply));
        assert_eq!(status, 200, "{body}");
        assert_eq!(received.order, sent);
        assert!(last.is_none_or(|last| last.sent_at <= received.sent_at), "an Island refuses older ones");
        last = Some(received);
        let mut shown = json!({"host_id": id, "allowed": true});
        if let Some(order) = applies {
            shown["order"] = json!(order.as_str());
            shown["remote"] = json!(true);
        }
        assert_eq!(body, json!({ "data": shown }));
    }
    let by = json!(network.owner.id.to_string());
    let entries: Vec<Value> = recorded(&network, &admin)
        .await
        .into_iter()
        .map(|entry| {
            assert_eq!((&entry["actor"], &entry["host"]), (&by, &json!(id)));
            entry["action"].clone()
        })
        .collect();
    assert_eq!(entries, ["order_resume", "order_drain", "order_pause"]);
}

#[tokio::test]
async fn an_island_that_refuses_or_does_not_answer_has_no_order() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let island = Island::start(&network).await;
    let id = island.id.to_string();
    // An agent that does not know this subject.
    let (status, body) = answer(order(&network, &network.owner.key, &id, "pause")).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("host_unreachable")), "{body}");

    let mut orders = island.orders().await;
    for (allowed, expected) in [(false, (403, "remote_control_disabled")), (true, (409, "order_refused"))] {
        let control = ControlState { allowed, ..ControlState::default() };
        let message = Some("for a reason of the Island".to_owned());
        let reply = ControlReply { v: FABRIC_VERSION, accepted: false, control, message };
        let request = answer(order(&network, &network.owner.key, &id, "drain"));
        let ((status, body), _) = tokio::join!(request, island.take_order(&mut orders, &reply));
        assert_eq!((status, &body["error"]["code"]), (expected.0, &json!(expected.1)), "{body}");
        assert_eq!(body["error"]["message"], "for a reason of the Island");
    }
    assert_eq!(recorded(&network, &admin).await, Vec::<Value>::new(), "nothing was done");
}

#[tokio::test]
async fn only_the_account_of_an_island_gives_it_orders() {
    let network = Network::start().await;
    let operator = operator(&network).await;
    let island = Island::start(&network).await;
    let _orders = island.orders().await;
    let id = island.id.to_string();
    for (key, island) in [
        (&network.consumer.key, id.as_str()),
        (&operator.key, id.as_str()),
        (&network.owner.key, "00000000-0000-0000-0000-000000000000"),
        (&network.owner.key, "not-an-id"),
    ] {
        for verb in ["pause", "drain", "resume"] {
            let (status, body) = answer(order(&network, key, island, verb)).await;
            assert_eq!((status, &body["error"]["code"]), (404, &json!("host_not_found")), "{verb}: {body}");
        }
    }
    let (status, _) = answer(order(&network, "ak_0", &id, "pause")).await;
    assert_eq!(status, 401);
    let reader = network.http.post(format!("{}/api-keys", network.url)).bearer_auth(&network.owner.key);
    let (status, made) = answer(reader.json(&json!({"name": "reads", "scopes": ["read"]}))).await;
    assert_eq!(status, 201, "{made}");
    let key = made["key"].as_str().expect("a key");
    let (status, body) = answer(order(&network, key, &id, "pause")).await;
    assert_eq!(status, 403, "{body}");
}
