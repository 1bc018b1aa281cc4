//! What an owner should know at once about the Islands of the account.

use std::{sync::Arc, time::Duration};

use island_coordinator_domain::clock::Clock;
use island_protocol::{FABRIC_VERSION, ids::HostId, subjects::HostTopic};
use nkeys::KeyPair;
use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, enroll},
    network::{Account, Network},
    soon,
};

/// Adds an Island that never runs.
async fn absent(network: &Network, account: &Account) -> HostId {
    let (id, key) = (HostId(Uuid::new_v4()), Arc::new(KeyPair::new_user()));
    let (status, body) = enroll(network, account, id, &key).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    id
}

/// The heartbeat of an Island whose GPU has this temperature.
fn with_temperature(island: &Island, degrees: u32) -> Value {
    let sample = include_str!("../../../protocol/tests/wire/heartbeat.json");
    let mut beat: Value = serde_json::from_str(sample).expect("JSON");
    beat["v"] = json!(FABRIC_VERSION);
    beat["host_id"] = json!(island.id);
    beat["instance"] = json!(island.instance());
    beat["timestamp"] = json!(Clock::System.now());
    beat["jobs"] = json!([]);
    beat["gpus"][0]["temperature_c"] = json!(degrees);
    beat
}

#[tokio::test]
async fn an_owner_reads_the_alerts_of_their_islands_and_of_no_others() {
    let network = Network::start_with(|config| {
        // None of them is offline before the end, however long the requests take: they send no further heartbeats.
        config.jobs.heartbeat_ms = 600_000;
        config.jobs.lease_ms = 1_800_000;
    })
    .await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let alerts = async |key: &str| {
        let (status, body) =
            answer(network.http.get(format!("{}/hosts/alerts", network.url)).bearer_auth(key)).await;
        assert_eq!(status, 200, "{body}");
        body["data"].as_array().expect("alerts").clone()
    };
    assert_eq!(alerts(&network.owner.key).await, Vec::<Value>::new());

    let (well, hot, suspended) =
        (Island::start(&network).await, Island::start(&network).await, Island::start(&network).await);
    let (offline, of_another) =
        (absent(&network, &network.owner).await, absent(&network, &network.consumer).await);
    let reason = json!({"reason": "wrong results"});
    assert_eq!(admin.post(&format!("/hosts/{}/suspend", suspended.id), &reason).await.0, 200);
    hot.publish(HostTopic::Heartbeat, &with_temperature(&hot, 91)).await;
    well.publish(HostTopic::Heartbeat, &with_temperature(&well, 60)).await;

    let mut expected = vec![
        json!({"host_id": hot.id, "name": "scripted", "alert": "hot", "degrees": 91}),
        json!({"host_id": suspended.id, "name": "scripted", "alert": "suspended"}),
        json!({"host_id": offline, "name": "scripted", "alert": "offline"}),
    ];
    expected.sort_by_key(|alert| alert["host_id"].to_string());
    soon("every alert, and no other", async {
        while alerts(&network.owner.key).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let of_consumer = json!({"host_id": of_another, "name": "scripted", "alert": "offline"});
    assert_eq!(alerts(&network.consumer.key).await, [of_consumer]);
    assert_eq!(
        alerts(&admin.key).await,
        Vec::<Value>::new(),
        "operators read those of their own Islands here"
    );
    let (status, body) = answer(network.http.get(format!("{}/hosts/alerts", network.url))).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("missing_api_key")));
}
