//! What operators set for the whole network: maintenance, disabled Cargos, notices, and the trust of Islands.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, completed, token},
    network::Network,
};

async fn submit(network: &Network) -> (u16, Value) {
    let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
    answer(network.call(Method::POST, "/jobs").json(&body)).await
}

#[tokio::test]
async fn in_maintenance_no_job_is_accepted_and_open_ones_end() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let job = network.submit().await;
    let reason = json!({"reason": "the database moves"});
    for _ in 0..2 {
        let (status, body) = admin.post("/maintenance/start", &reason).await;
        assert_eq!((status, &body["data"]["maintenance"]["reason"]), (200, &json!("the database moves")), "{body}");
    }
    let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
    let refused = network.call(Method::POST, "/jobs").json(&body).send().await.expect("answer");
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"60".parse().expect("a value")));
    assert_eq!(refused.json::<Value>().await.expect("json")["error"]["code"], "maintenance");
    let chat = json!({"model": "echo", "messages": [{"role": "user", "content": "hello"}]});
    let (status, body) = answer(network.call(Method::POST, "/chat/completions").json(&chat)).await;
    assert_eq!((status, &body["error"]["code"]), (503, &json!("maintenance")), "{body}");
    let notices = answer(network.http.get(format!("{}/network/notices", network.url))).await.1;
    assert_eq!(notices["data"]["maintenance"]["reason"], "the database moves");

    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&job).await["status"], "completed");

    let (status, body) = admin.post("/maintenance/end", &json!({"reason": "done"})).await;
    assert_eq!((status, &body["data"].get("maintenance")), (200, &None));
    assert_eq!(submit(&network).await.0, 201);
    let log = admin.get("/audit-log?limit=3").await;
    let actions: Vec<_> = log["data"].as_array().expect("entries").iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions[..2], [json!("end_maintenance"), json!("start_maintenance")]);
    assert_ne!(actions[2], "start_maintenance", "recorded once");
    network.audit().await;
}

#[tokio::test]
async fn a_coordinator_that_restarts_is_still_in_maintenance() {
    let mut network = Network::start().await;
    let key = operator(&network).await.key;
    {
        let admin = Admin { network: &network, key: key.clone() };
        assert_eq!(admin.post("/maintenance/start", &json!({"reason": "r"})).await.0, 200);
        assert_eq!(admin.post("/cargos/echo/disable", &json!({"reason": "r"})).await.0, 200);
    }
    network.down().await;
    network.up().await;
    assert_eq!(submit(&network).await.1["error"]["code"], "maintenance");
    let admin = Admin { network: &network, key };
    assert_eq!(admin.post("/maintenance/end", &json!({"reason": "r"})).await.0, 200);
    assert_eq!(submit(&network).await.1["error"]["code"], "workload_disabled");
}

#[tokio::test]
async fn a_disabled_cargo_is_not_offered_and_its_open_jobs_end() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let job = network.submit().await;
    let (status, body) = admin.post("/cargos/echo/disable", &json!({"reason": "its model was withdrawn"})).await;
    assert_eq!((status, &body["data"]["is_enabled"]), (200, &json!(false)), "{body}");
    let (status, body) = submit(&network).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("workload_disabled")));
    assert!(body["error"]["message"].as_str().expect("text").contains("its model was withdrawn"), "{body}");
    assert_eq!(network.get("/workloads/echo").await["data"]["is_enabled"], false);
    let models = answer(network.call(Method::GET, "/models")).await.1;
    assert_eq!(models["data"], json!([]), "{models}");
    let cargos = answer(network.call(Method::GET, "/cargos")).await.1;
    assert_eq!(cargos["count"], 1, "{cargos}");
    let states = admin.get("/cargos").await;
    let disabled: Vec<_> =
        states["data"].as_array().expect("Cargos").iter().filter(|state| state["is_enabled"] == false).collect();
    assert_eq!(disabled.len(), 1);
    assert_eq!(disabled[0]["disabled"]["reason"], "its model was withdrawn");

    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&job).await["status"], "completed");
    assert_eq!(admin.post("/cargos/echo/enable", &json!({"reason": "it is back"})).await.0, 200);
    assert_eq!(submit(&network).await.0, 201);
    assert_eq!(admin.post("/cargos/nothing/disable", &json!({"reason": "r"})).await.1["error"]["code"], "workload_not_found");
    let log = admin.get("/audit-log?limit=1").await;
    assert_eq!((&log["data"][0]["action"], &log["data"][0]["subject"]), (&json!("enable_cargo"), &json!("echo")));
    network.audit().await;
}

#[tokio::test]
async fn notices_reach_everybody_until_they_are_removed() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let (status, notice) = admin.post("/notices", &json!({"text": "Update on Sunday."})).await;
    assert_eq!(status, 201, "{notice}");
    let past = json!({"text": "too late", "until": "2020-01-01T00:00:00Z"});
    assert_eq!(admin.post("/notices", &past).await.1["error"]["param"], "until");
    let open = async || answer(network.http.get(format!("{}/network/notices", network.url))).await.1;
    let shown = open().await;
    assert_eq!(shown["data"]["notices"], json!([notice["data"]]));
    let path = format!("/notices/{}", notice["data"]["id"].as_str().expect("an id"));
    assert_eq!(answer(admin.call(Method::DELETE, &path)).await.0, 200);
    assert_eq!(answer(admin.call(Method::DELETE, &path)).await.1["error"]["code"], "notice_not_found");
    assert_eq!(open().await["data"]["notices"], json!([]));
    for number in 0..21 {
        let (status, _) = admin.post("/notices", &json!({"text": "one of many"})).await;
        assert_eq!(status, if number < 20 { 201 } else { 422 });
    }
}

#[tokio::test]
async fn an_island_of_low_trust_gets_what_no_other_can_take() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut little = Island::start(&network).await;
    let path = format!("/hosts/{}/annotate", little.id);
    let body = json!({"trust": "low", "note": "new owner", "reason": "seen twice"});
    let (status, body) = admin.post(&path, &body).await;
    assert_eq!((status, &body["data"]["trust"], &body["data"]["note"]), (200, &json!("low"), &json!("new owner")), "{body}");
    let mut other = Island::start(&network).await;
    // As many as the other one has slots for, and one more.
    for _ in 0..other.slots {
        network.submit().await;
        other.take().await;
    }
    network.submit().await;
    little.take().await;
    let (_, body) = admin.post(&path, &json!({"trust": "normal", "note": "", "reason": "fine"})).await;
    assert_eq!((&body["data"]["trust"], body["data"].get("note")), (&json!("normal"), None), "{body}");
    for bad in [json!({"trust": "very high", "reason": "r"}), json!({"trust": "low"})] {
        assert_eq!(admin.post(&path, &bad).await.0, 422, "{bad}");
    }
}
