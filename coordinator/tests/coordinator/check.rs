//! An Island that checks itself: a free job, on this Island only.

use std::time::Duration;

use island_protocol_api::claim::ClaimVerb;
use island_protocol::{event::AttemptEvent, job::{Failure, FailureCode, Outcome, Usage}};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, completed, enroll, finished, signed},
    network::Network,
};

/// Requests a check in the Island's name.
async fn ask(network: &Network, island: &Requester) -> (u16, Value) {
    let body = signed(island.id, &island.key, ClaimVerb::Check);
    answer(network.http.post(format!("{}/island/check", network.url)).json(&body)).await
}

/// The requesting side of an Island, whose other side runs the job meanwhile.
struct Requester {
    id: island_protocol::ids::HostId,
    key: std::sync::Arc<nkeys::KeyPair>,
}

impl Requester {
    fn of(island: &Island) -> Self {
        Self { id: island.id, key: island.key.clone() }
    }
}

async fn job_of_owner(network: &Network, check: &Value) -> Value {
    let id = check["job_id"].as_str().expect("a job");
    let request = network.http.get(format!("{}/jobs/{id}", network.url)).bearer_auth(&network.owner.key);
    answer(request).await.1["data"].clone()
}

#[tokio::test]
async fn a_check_is_free_and_runs_on_the_requesting_island() {
    let network = Network::start().await;
    let (mut island, _other) = (Island::start(&network).await, Island::start(&network).await);
    let (before, requester) = (network.credits(&network.owner).await, Requester::of(&island));
    let serve = async {
        let mut inputs = Vec::new();
        for _ in 0..2 {
            let run = island.take().await;
            let running = AttemptEvent::Status { state: "running".to_owned() };
            let token = |text: &str| AttemptEvent::token(text.to_owned(), 1);
            // It computes for a while, then sends all that it has at once and reports that it has just begun.
            tokio::time::sleep(Duration::from_millis(200)).await;
            island.send(run.key, run.first_event, vec![running, token("Hel"), token("lo")]).await;
            island.end(run.key, run.first_event + 3, finished(json!({"count": 1}))).await;
            inputs.push(run.input);
        }
        inputs
    };
    let (asked, inputs) = tokio::join!(ask(&network, &requester), serve);
    assert_eq!(asked.0, 200, "{}", asked.1);
    assert_ne!(inputs[0], inputs[1], "no input is known beforehand");
    let check = &asked.1["data"];
    assert_eq!((&check["passed"], &check["error"]), (&json!(true), &json!(null)), "{check}");
    let names: Vec<_> = check["steps"].as_array().expect("steps").iter().map(|step| &step["name"]).collect();
    assert_eq!(names, ["submitted", "queued", "running", "output", "completed"]);
    let speed = check["tokens_per_second"].as_f64().expect("a speed");
    assert!((0.0..10.0).contains(&speed), "two tokens in 0.2 s are at most ten a second: {speed}");

    assert_eq!(network.credits(&network.owner).await, before, "it costs and earns nothing");
    let karma = network.get(&format!("/hosts/{}", island.id)).await["data"]["karma"].clone();
    assert_eq!(karma, json!(0.0), "no work was done for anybody");
    let stats = network.get("/network/stats").await["data"].clone();
    assert_eq!(stats["jobs_completed"], json!(0), "{stats}");
    let job = job_of_owner(&network, check).await;
    assert_eq!(job["status"], "completed", "its owner can read it: {job}");

    let (status, body) = ask(&network, &Requester::of(&island)).await;
    assert_eq!((status, &body["error"]["code"]), (429, &json!("rate_limited")), "{body}");
    network.audit().await;
}

#[tokio::test]
async fn a_failed_check_is_reported_and_not_retried_elsewhere() {
    let network = Network::start().await;
    let (mut refuses, mut fails) = (Island::start(&network).await, Island::start(&network).await);

    let requester = Requester::of(&refuses);
    let refuse = async {
        let offer = refuses.offer().await;
        refuses.refuse(&offer).await;
    };
    let (asked, ()) = tokio::join!(ask(&network, &requester), refuse);
    let check = &asked.1["data"];
    assert_eq!(check["passed"], json!(false), "{check}");
    assert_eq!(check["error"]["message"], "the Island did not take the job: scripted");

    let requester = Requester::of(&fails);
    let fail = async {
        let run = fails.take().await;
        let failure = Failure::of_host(FailureCode::RuntimeCrashed, "the engine fell over");
        let outcome = Outcome::Failed { failure, usage: Usage::default() };
        fails.end(run.key, run.first_event, outcome).await;
    };
    let (asked, ()) = tokio::join!(ask(&network, &requester), fail);
    let check = &asked.1["data"];
    assert_eq!(check["error"]["code"], "runtime_crashed", "{check}");
    let job = job_of_owner(&network, check).await;
    assert_eq!(job["status"], "failed", "no second attempt: {job}");
    network.audit().await;
}

#[tokio::test]
async fn a_check_without_a_suitable_cargo_has_a_reason_and_needs_the_islands_signature() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    island.slots = 0;
    island.beat(&[]).await;
    let full = async {
        loop {
            let (status, body) = ask(&network, &Requester::of(&island)).await;
            assert_eq!(status, 200, "{body}");
            if body["data"]["error"]["message"] == "no_slot" {
                return body;
            }
        }
    };
    let body = crate::support::soon("the heartbeat", full).await;
    assert_eq!(body["data"]["job_id"], json!(null), "no job was made: {body}");

    let stranger =
        Requester { id: island_protocol::ids::HostId(uuid::Uuid::new_v4()), key: island.key.clone() };
    let (status, body) = ask(&network, &stranger).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("host_not_found")), "{body}");
}

#[tokio::test]
async fn an_island_that_enrolls_again_retains_its_karma() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    let running = AttemptEvent::Status { state: "running".to_owned() };
    island.send(run.key, run.first_event, vec![running]).await;
    let runs = async { while network.job(&id).await["status"] != "running" {} };
    crate::support::soon("the job's start", runs).await;
    // Karma counts milliseconds of work.
    tokio::time::sleep(Duration::from_millis(20)).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    let karma = async || {
        network.get(&format!("/hosts/{}", island.id)).await["data"]["karma"].as_f64().expect("karma")
    };
    let before = karma().await;
    assert!(before > 0.0, "{before}");

    let body = signed(island.id, &island.key, ClaimVerb::Leave);
    let (status, body) = answer(network.http.post(format!("{}/island/leave", network.url)).json(&body)).await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = enroll(&network, &network.owner, island.id, &island.key).await;
    assert_eq!(status, 200, "{body}");
    assert!((karma().await - before).abs() < f64::EPSILON, "it came back with nothing");
}
