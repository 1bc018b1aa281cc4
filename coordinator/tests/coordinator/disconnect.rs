//! Clients that disconnect while their job is being accepted, and open jobs that nothing executes.

use std::{collections::HashSet, time::Duration};

use island_protocol_api::claim::ClaimVerb;
use island_protocol::{ids::AttemptKey, job::{Failure, FailureCode, Outcome}};
use serde_json::{Value, json};
use sqlx::AnyPool;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};
use uuid::Uuid;

use crate::support::{
    island::{Island, completed, signed},
    network::Network,
    soon,
};

/// Minimum number of clients in a test, and how many of them are connected at once.
const CLIENTS: u64 = 200;
const AT_ONCE: usize = 8;
/// Minimum number of jobs accepted in a test; a slow machine needs more clients for them, which stay connected longer.
const JOBS: i64 = 20;

/// How long client `n` stays connected: 0 to 8 ms for the first [`CLIENTS`], the same in every run.
fn delay(n: u64) -> Duration {
    let ms = (n.wrapping_mul(6_364_136_223_846_793_005) >> 40) % 9;
    Duration::from_millis(ms * (1 + n / CLIENTS))
}

/// Sends a request over its own connection and closes it after `delay`, whatever was received until then.
async fn hang_up(url: String, path: &'static str, key: Option<String>, body: String, delay: Duration) {
    let (address, prefix) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("address");
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let request = format!(
        "POST /{prefix}{path} HTTP/1.1\r\nHost: island\r\n{key}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.expect("connect");
    stream.write_all(request.as_bytes()).await.expect("write");
    tokio::time::sleep(delay).await;
}

/// Many clients that post the same body and disconnect.
async fn hang_up_often(network: &Network, pool: &AnyPool, path: &'static str, body: &Value) {
    let mut clients = JoinSet::new();
    let often = async {
        for n in 0.. {
            if clients.len() == AT_ONCE {
                clients.join_next().await.expect("a client").expect("no panic");
            }
            if n >= CLIENTS && count(pool, "1 = 1").await >= JOBS {
                break;
            }
            let key = Some(network.consumer.key.clone());
            clients.spawn(hang_up(network.url.clone(), path, key, body.to_string(), delay(n)));
        }
    };
    soon("enough accepted jobs", often).await;
    clients.join_all().await;
}

async fn count(pool: &AnyPool, condition: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM jobs WHERE {condition}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(pool).await.expect("count")
}

/// Waits until no job is open and none of the consumer's credits is held or spent. A last job may be stored after its
/// client has gone and all others have ended.
async fn settled(network: &Network, pool: &AnyPool) {
    let ended = async {
        while count(pool, "completed_at IS NULL").await > 0
            || (network.credits(&network.consumer).await - 10.0).abs() > 1e-9
        {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of every accepted job", ended).await;
}

#[tokio::test]
async fn a_job_whose_client_disconnects_runs_to_its_end() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 0).await;
    let mut island = Island::start(&network).await;
    let pool = network.sql().await;
    let mut assigned: HashSet<AttemptKey> = HashSet::new();
    let serve = async {
        loop {
            let run = island.take().await;
            assert!(assigned.insert(run.key), "{} is executed once", run.key);
            // A failure costs nothing, so the account's credits last for all clients.
            let outcome = Outcome::failed(Failure::of_job(FailureCode::CargoFailed, "scripted"));
            island.end(run.key, run.first_event, outcome).await;
            island.beat(&[]).await;
        }
    };
    let ask = async {
        let body = json!({"workload": "echo", "input": {"prompt": "hi"}});
        hang_up_often(&network, &pool, "/jobs", &body).await;
        settled(&network, &pool).await;
    };
    tokio::select! {
        () = ask => {}
        () = serve => {}
    }
    assert_eq!(count(&pool, "status IN ('completed', 'cancelled', 'timeout')").await, 0, "all were executed");
    pool.close().await;
    network.audit().await;
}

#[tokio::test]
async fn a_chat_whose_client_disconnects_is_cancelled_and_free() {
    let network = Network::start_with(|config| config.limits.concurrent_jobs = 0).await;
    let mut island = Island::start(&network).await;
    let pool = network.sql().await;
    // If a job still runs at the end, it is not because the Island ended it.
    let serve = async {
        loop {
            island.take().await;
            island.beat(&[]).await;
        }
    };
    let ask = async {
        let body = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
        hang_up_often(&network, &pool, "/chat/completions", &body).await;
        settled(&network, &pool).await;
    };
    tokio::select! {
        () = ask => {}
        () = serve => {}
    }
    assert_eq!(count(&pool, "status IN ('completed', 'failed', 'timeout')").await, 0);
    pool.close().await;
    network.audit().await;
}

#[tokio::test]
async fn a_check_whose_island_disconnects_ends() {
    let network = Network::start().await;
    let pool = network.sql().await;
    let mut islands = Vec::new();
    // An Island may be checked once a minute.
    while islands.len() < 9 || count(&pool, "1 = 1").await == 0 {
        let island = Island::start(&network).await;
        let host = format!("/hosts/{}", island.id);
        let online = async { while network.get(&host).await["data"]["status"] != "online" {} };
        soon("the Island's heartbeat", online).await;
        let body = signed(island.id, &island.key, ClaimVerb::Check).to_string();
        hang_up(
            network.url.clone(),
            "/island/check",
            None,
            body,
            Duration::from_millis(islands.len() as u64),
        )
        .await;
        islands.push(island);
    }
    settled(&network, &pool).await;
    pool.close().await;
}

#[tokio::test]
async fn an_open_job_without_a_runner_is_resumed() {
    let network = Network::start().await;
    let waiting = network.submit().await;
    let pool = network.sql().await;
    // As if its acceptance was committed and the reply of the database was lost.
    let lost = Uuid::now_v7().to_string();
    let copied = sqlx::query(
        "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, coordinator_id, head, \
         first_event, deadline, created_at) \
         SELECT $1, account_id, workload_id, workload_slug, 'submitted', input, priority, 0, coordinator_id, '[]', 1, deadline, \
         created_at FROM jobs WHERE id = $2",
    );
    copied.bind(lost.clone()).bind(waiting.clone()).execute(&pool).await.expect("insert");
    let mut island = Island::start(&network).await;
    let mut assigned = HashSet::new();
    for _ in 0..2 {
        let run = island.take().await;
        assert!(assigned.insert(run.key.job_id.to_string()));
        assert!(island.end(run.key, run.first_event, completed(1, 0)).await.committed);
    }
    assert_eq!(assigned, HashSet::from([waiting, lost.clone()]));
    assert_eq!(network.job(&lost).await["status"], "completed");
    let cancelled =
        network.call(reqwest::Method::DELETE, &format!("/jobs/{lost}")).send().await.expect("answer");
    assert_eq!(cancelled.status(), 422, "it has ended");
    pool.close().await;
    network.audit().await;
}
