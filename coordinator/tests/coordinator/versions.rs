//! Islands whose agents speak other versions of the fabric's messages.

use island_protocol::version::{VERSIONS, Versions, negotiate};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, completed, token},
    network::Network,
    soon,
};

fn range(oldest: u32, newest: u32) -> Versions {
    Versions::new(oldest, newest).expect("a range")
}

/// Waits until the only Island of the network is as `holds` expects, as operators see it.
async fn shown(admin: &Admin<'_>, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    soon(what, async {
        loop {
            let island = admin.get("/hosts").await["data"][0].clone();
            if holds(&island) {
                return island;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn the_newest_common_version_is_agreed_on() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    // An agent from before versions were negotiated states none.
    let answer = island.register(&[]).await;
    assert_eq!((answer.v, answer.versions), (1, Some(VERSIONS)));
    // One that speaks later versions as well.
    let both = range(1, 7);
    let answer = island.register_with(1, both).await;
    let agreed = negotiate(both, answer.versions.expect("the coordinator states its own")).expect("a version");
    assert_eq!((agreed, answer.v), (1, 1));
    island.beat(&[]).await;
    let seen = shown(&admin, "online", |island| island["status"] == "online").await;
    assert_eq!((&seen["fabric_version"], seen.get("incompatible")), (&json!(1), None));
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&id).await["status"], "completed");
}

#[tokio::test]
async fn an_agent_with_newer_versions_only_is_refused_until_the_coordinator_is_upgraded() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    shown(&admin, "online", |island| island["status"] == "online").await;
    let newer = range(8, 9);
    for answer in [island.register_with(9, newer).await, island.introduce(newer).await] {
        let refused = negotiate(newer, answer.versions.expect("the coordinator states its own"));
        let refused = refused.expect_err("nothing in common").to_string();
        assert!(refused.ends_with("upgrade the coordinator"), "{refused}");
    }
    island.beat_in(9, &[]).await;
    let seen = shown(&admin, "refused", |island| island["incompatible"].is_string()).await;
    let reason = seen["incompatible"].as_str().expect("text");
    assert!(reason.contains("version 8 to 9") && reason.ends_with("upgrade the coordinator"), "{reason}");
    assert_eq!((&seen["status"], seen.get("fabric_version")), (&json!("offline"), None));
    let refused = answer(network.call(Method::POST, "/jobs").json(&json!({"workload": "echo", "input": {"prompt": "x"}}))).await;
    assert_eq!(refused.0, 201, "{refused:?}");
    let id = refused.1["data"]["id"].as_str().expect("an id").to_owned();
    // A heartbeat of another version does not bring it back; an agent that fits gets the job.
    island.beat_in(9, &[]).await;
    assert_eq!(network.get("/hosts?status=online&limit=1").await["meta"]["total"], 0);
    island.register(&[]).await;
    island.beat(&[]).await;
    let run = island.take().await;
    assert_eq!(run.key.job_id.to_string(), id);
    let seen = shown(&admin, "online", |island| island["status"] == "online").await;
    assert_eq!(seen.get("incompatible"), None);
}

#[tokio::test]
async fn an_agent_with_older_versions_only_is_refused() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let older = Versions::only(0);
    let answer = island.register_with(0, older).await;
    let refused = negotiate(older, answer.versions.expect("the coordinator states its own"));
    let refused = refused.expect_err("nothing in common").to_string();
    assert!(refused.ends_with("upgrade island-agent"), "{refused}");
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let seen = shown(&admin, "refused", |island| island["incompatible"].is_string()).await;
    assert!(seen["incompatible"].as_str().expect("text").ends_with("upgrade island-agent"), "{seen}");
}
