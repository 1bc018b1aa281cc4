//! What owners earn for what consumers pay.

use island_protocol_api::claim::ClaimVerb;
use island_protocol::event::AttemptEvent;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, signed, token},
    network::{Account, Network},
    soon,
};

async fn cancelled(network: &Network, id: &str) {
    let answer = network.call(Method::DELETE, &format!("/jobs/{id}")).send().await.expect("answer");
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_job_that_is_cancelled_after_its_island_left_costs_what_the_books_show() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = network.stream(&id, 0).await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    while stream.next().await.expect("an event").json()["content"] != "a" {}
    let body = signed(island.id, &island.key, ClaimVerb::Leave);
    let left = network.http.post(format!("{}/island/leave", network.url)).json(&body).send().await;
    assert_eq!(left.expect("answer").status(), StatusCode::OK);
    cancelled(&network, &id).await;
    let used = network.job(&id).await["usage"]["credits_used"].as_f64().expect("credits");
    let (paid, earned) = (10.0 - network.credits(&network.consumer).await, network.credits(&network.owner).await);
    assert!((used - paid).abs() < 1e-9 && (earned - paid).abs() < 1e-9, "{used} {paid} {earned}");
    network.audit().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_between_two_attempts_costs_what_the_books_show() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    island.slots = 0;
    island.beat(&[]).await;
    let failure = island_protocol::job::Failure::of_host(
        island_protocol::job::FailureCode::RuntimeCrashed,
        "aborted",
    );
    let outcome = island_protocol::job::Outcome::failed(failure);
    assert!(island.end(run.key, run.first_event + 1, outcome).await.committed);
    cancelled(&network, &id).await;
    let used = network.job(&id).await["usage"]["credits_used"].as_f64().expect("credits");
    let (paid, earned) = (10.0 - network.credits(&network.consumer).await, network.credits(&network.owner).await);
    assert!(used > 0.0, "text was delivered");
    assert!((used - paid).abs() < 1e-9 && (earned - paid).abs() < 1e-9, "{used} {paid} {earned}");
    network.audit().await;
}

/// Karma of all Islands, counted or not, in milliseconds.
async fn karma(network: &Network) -> i64 {
    let pool = network.sql().await;
    let sum = "SELECT CAST((SELECT SUM(karma_ms) FROM hosts) + \
               (SELECT COALESCE(SUM(ms), 0) FROM uncounted_karma) AS BIGINT)";
    let sum = sqlx::query_scalar(sum).fetch_one(&pool).await.expect("karma");
    pool.close().await;
    sum
}

async fn submit_as(network: &Network, account: &Account) -> String {
    let body = json!({"workload": "echo", "input": {"prompt": "hi", "max_tokens": 10}});
    let request = network.http.post(format!("{}/jobs", network.url)).bearer_auth(&account.key);
    let sent = request.json(&body).send().await.expect("answer");
    assert_eq!(sent.status(), StatusCode::CREATED);
    let body: Value = sent.json().await.expect("json");
    body["data"]["id"].as_str().expect("id").to_owned()
}

#[tokio::test]
async fn an_owners_own_jobs_earn_no_karma() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let mut work = async |account: &Account| {
        submit_as(&network, account).await;
        let run = island.take().await;
        let progress = AttemptEvent::Progress { step: 1, total: 2, phase: Some("prompt".into()) };
        island.send(run.key, run.first_event, vec![progress]).await;
        // Long enough to be counted.
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        island.send(run.key, run.first_event + 1, vec![token("a")]).await;
        assert!(soon("the end", island.end(run.key, run.first_event + 2, completed(1, 1))).await.committed);
        karma(&network).await
    };
    let earned = work(&network.consumer).await;
    assert!(earned > 0);
    assert_eq!(work(&network.owner).await, earned, "paid with what the first one earned");
    network.audit().await;
}
