//! What remains of ended jobs, after a time and on request.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::AtomicI64},
};

use island_coordinator_domain::clock::Clock;
use island_testing::port::free_port;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, completed, token},
    network::Network,
    soon,
};

const DAY_MS: i64 = 24 * 3_600_000;

async fn run_one(network: &Network, island: &mut Island) -> String {
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    id
}

/// Lets a job have ended earlier.
async fn age(network: &Network, id: &str, ms: i64) {
    let pool = network.sql().await;
    sqlx::query("UPDATE jobs SET completed_at = completed_at - $2 WHERE id = $1")
        .bind(id)
        .bind(ms)
        .execute(&pool)
        .await
        .expect("time passes");
    pool.close().await;
}

#[tokio::test]
async fn data_of_an_ended_job_is_deleted_on_request() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let delete = |id: &str| network.call(Method::DELETE, &format!("/jobs/{id}/data"));
    let (status, body) = answer(delete(&id)).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("job_not_final")), "{body}");
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("secret")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    assert_eq!(network.job(&id).await["output"], "secret");

    let stranger = network.http.delete(format!("{}/jobs/{id}/data", network.url)).bearer_auth(&network.owner.key);
    assert_eq!(answer(stranger).await.0, 404);
    let (status, deleted) = answer(delete(&id)).await;
    assert_eq!((status, &deleted["data"]["id"]), (200, &json!(id)), "{deleted}");
    assert_eq!(answer(delete(&id)).await.1, deleted, "repeating it changes nothing");
    let job = network.job(&id).await;
    assert_eq!((&job["input"], job.get("output")), (&json!({}), None), "{job}");
    assert_eq!((&job["status"], &job["data_deleted_at"]), (&json!("completed"), &deleted["data"]["deleted_at"]));
    assert_eq!(job["usage"]["credits_used"], 1, "what it cost remains");
    for path in [format!("/jobs/{id}/stream"), format!("/jobs/{id}/output")] {
        assert_eq!(answer(network.call(Method::GET, &path)).await.0, 404, "{path}");
    }
    assert_eq!(network.get("/jobs").await["data"][0]["id"], json!(id), "it is still listed");
    let pool = network.sql().await;
    let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM job_events").fetch_one(&pool).await.expect("count");
    assert_eq!(left, 0);
    pool.close().await;
    network.audit().await;
}

#[tokio::test]
async fn each_kind_of_data_is_kept_for_its_own_time() {
    let mut network = Network::start_with(|config| {
        config.retention.inputs_d = 3;
        config.retention.outputs_d = 2;
        config.retention.events_d = 1;
    })
    .await;
    let mut island = Island::start(&network).await;
    let mut ids = Vec::new();
    for days in 0..4 {
        let id = run_one(&network, &mut island).await;
        age(&network, &id, days * DAY_MS + 60_000).await;
        ids.push(id);
    }
    network.down().await;
    network.up().await;
    let has = |job: &Value| (job["input"] != json!({}), job.get("output").is_some());
    let events = |id: String| {
        let request = network.call(Method::GET, &format!("/jobs/{id}/stream"));
        async move { request.send().await.expect("answer").status() == 200 }
    };
    let oldest = async {
        while has(&network.job(&ids[3]).await).0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the deletion of the oldest input", oldest).await;
    let mut kept = Vec::new();
    for id in &ids {
        let (input, output) = has(&network.job(id).await);
        kept.push((input, output, events(id.clone()).await));
    }
    assert_eq!(kept, [(true, true, true), (true, true, false), (true, false, false), (false, false, false)]);
    assert_eq!(network.get("/jobs").await["meta"]["total"], 4);
    network.audit().await;
}

#[tokio::test]
async fn the_market_counts_jobs_once_before_and_after_their_hour_is_summed() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let market = |network: &Network| {
        let requests = ["/market/rates/echo", "/market/history/echo", "/network/stats"]
            .map(|path| answer(network.call(Method::GET, path)));
        async move {
            let [rates, history, stats] = requests;
            let (rates, history, stats) = (rates.await.1, history.await.1, stats.await.1);
            let jobs = |hour: &Value| hour["num_jobs"].as_u64().expect("a number");
            let hours: Vec<u64> = history["data"].as_array().expect("hours").iter().map(jobs).collect();
            (jobs(&rates["data"][0]), hours, stats["data"]["jobs_completed"].clone())
        }
    };
    for hours in [30, 5, 5, 0] {
        let id = run_one(&network, &mut island).await;
        age(&network, &id, hours * 3_600_000).await;
    }
    let expected = (3, vec![1, 2, 1], json!(4));
    assert_eq!(market(&network).await, expected, "read from the jobs");
    network.down().await;
    network.up().await;
    let pool = network.sql().await;
    let summed = async {
        loop {
            let n: i64 = sqlx::query_scalar("SELECT CAST(COALESCE(SUM(completed), 0) AS BIGINT) FROM market_totals")
                .fetch_one(&pool)
                .await
                .expect("a sum");
            if n >= 3 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the sums", summed).await;
    assert_eq!(market(&network).await, expected, "read from the sums");
    pool.close().await;
}

#[tokio::test]
async fn pages_follow_each_other_by_offset_and_by_the_last_entry() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    for _ in 0..5 {
        run_one(&network, &mut island).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        let entries = page["data"].as_array().expect("a list");
        entries.iter().map(|entry| entry["id"].as_str().expect("an id").to_owned()).collect()
    };
    for (path, total) in [("/jobs", 5), ("/account/ledger", 16)] {
        let all = network.get(&format!("{path}?limit=100")).await;
        assert_eq!(all["meta"]["total"], total, "{path}");
        let all = ids(&all);
        assert_eq!(all.len(), total);
        let by_offset = network.get(&format!("{path}?limit=2&offset=2")).await;
        let by_entry = network.get(&format!("{path}?limit=2&after={}", all[1])).await;
        assert_eq!((ids(&by_offset), ids(&by_entry)), (all[2..4].to_vec(), all[2..4].to_vec()), "{path}");
        let unknown = network.get(&format!("{path}?after={}", uuid::Uuid::nil())).await;
        assert_eq!(ids(&unknown), Vec::<String>::new());
    }
    let (status, _) = answer(network.call(Method::GET, "/jobs?after=x")).await;
    assert_eq!(status, 400);
}

/// Otherwise anybody with one credit could fill the disk of a network.
#[tokio::test]
async fn a_large_input_of_a_job_that_never_ran_goes() {
    let network = Network::start().await;
    let cancel = async |id: &str| {
        assert_eq!(answer(network.call(Method::DELETE, &format!("/jobs/{id}"))).await.0, 200);
    };
    let submit = async |messages: Value| {
        let body = json!({"workload": "echo", "input": {"messages": messages}});
        let (status, body) = answer(network.call(Method::POST, "/jobs").json(&body)).await;
        assert_eq!(status, 201, "{body}");
        body["data"]["id"].as_str().expect("id").to_owned()
    };
    let waited = submit(json!(["x".repeat(5_000)])).await;
    let small = submit(json!(["x"])).await;
    cancel(&waited).await;
    cancel(&small).await;
    assert_eq!(network.job(&small).await["input"], json!({"messages": ["x"]}));
    let mut island = Island::start(&network).await;
    let ran = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    cancel(&ran).await;
    let (ran, waited) = (network.job(&ran).await, network.job(&waited).await);
    assert_eq!((&ran["input"], &ran["data_deleted_at"]), (&json!({"prompt": "hi", "max_tokens": 10}), &Value::Null), "{ran}");
    assert_eq!(waited["input"], json!({}), "{waited}");
    assert_eq!(waited["data_deleted_at"], waited["completed_at"]);
}

/// As after a hardware clock was set wrongly, before it is corrected.
#[tokio::test]
async fn a_clock_that_is_far_ahead_deletes_nothing() {
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut network = Network::start_with(|config| config.http.metrics = Some(metrics)).await;
    let mut island = Island::start(&network).await;
    let id = run_one(&network, &mut island).await;
    let sample = async |name: &str| {
        let page = reqwest::get(format!("http://{metrics}/metrics")).await.expect("an answer");
        let page = page.text().await.expect("text");
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("island_coordinator_{name} ")));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    let checked = async |since: i64| {
        while sample("books_checked_timestamp_seconds").await.is_none_or(|at| at < since as f64 / 1e3) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let now = Clock::System.now().unix_ms();
    soon("a round of maintenance", checked(1)).await;
    assert_eq!(sample("clock_trusted").await, Some(1.0));
    network.down().await;
    let ahead = now + 40 * DAY_MS;
    network.up_at(Clock::Manual(Arc::new(AtomicI64::new(ahead)))).await;
    soon("a round of maintenance", checked(ahead)).await;
    assert_eq!(sample("clock_trusted").await, Some(0.0));
    network.down().await;
    network.up().await;
    soon("a round of maintenance", checked(now)).await;
    assert_eq!(sample("clock_trusted").await, Some(1.0));
    let job = network.job(&id).await;
    assert_eq!((&job["input"], &job["data_deleted_at"]), (&json!({"prompt": "hi", "max_tokens": 10}), &Value::Null), "{job}");
}
