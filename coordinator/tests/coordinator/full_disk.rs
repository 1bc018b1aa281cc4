//! A disk without space: for the database, on which nothing may be accepted by half, and for the log, without which the coordinator goes on.

use std::{fs, io::Write as _, os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, token},
    network::Network,
    soon,
};

/// Set in the process that the test starts: a folder on a disk of 24 MiB.
const SMALL_DISK: &str = "COORDINATOR_SMALL_DISK";

/// Runs this test in a mount namespace, in which it may mount a small disk.
#[test]
fn a_full_disk_refuses_jobs_and_loses_none() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        let runtime = tokio::runtime::Runtime::new().expect("runtime");
        return runtime.block_on(fill_up(Path::new(&disk)));
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let namespaces = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
    let run = Command::new("unshare")
        .args([namespaces, "sh", "-c"])
        .arg(format!("mount -t tmpfs -o size=24m none \"${SMALL_DISK}\" && exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().expect("this test's path"))
        .args(["--exact", "full_disk::a_full_disk_refuses_jobs_and_loses_none", "--nocapture"])
        .env(SMALL_DISK, folder.path())
        .output()
        .expect("run `unshare` of util-linux");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", run.status);
}

/// The id of the new job, or `None` if the request was refused because of the database.
async fn post(network: &Network, key: u32) -> Option<String> {
    let body = json!({"workload": "echo", "input": {"prompt": "x".repeat(900), "max_tokens": 10}});
    let request = network.call(Method::POST, "/jobs").header("Idempotency-Key", key.to_string()).json(&body);
    let answer = soon("an answer", request.send()).await.expect("answer");
    let (status, retry) = (answer.status(), answer.headers().contains_key(header::RETRY_AFTER));
    let body: Value = answer.json().await.expect("json");
    if status == StatusCode::CREATED {
        return Some(body["data"]["id"].as_str().expect("id").to_owned());
    }
    assert_eq!((status, retry), (StatusCode::SERVICE_UNAVAILABLE, true), "{body}");
    assert_eq!(body["error"]["code"], "service_unavailable", "{body}");
    None
}

async fn total(network: &Network) -> u64 {
    network.get("/jobs").await["meta"]["total"].as_u64().expect("total")
}

async fn fill_up(disk: &Path) {
    /// A log of pages that are written again in place takes some jobs after the disk is full.
    const MAX_JOBS: u32 = 900;
    let mut network = Network::start_process(|config| {
        config.database.path = disk.join("island.db");
        config.limits.concurrent_jobs = MAX_JOBS;
    })
    .await;
    network.grant_1000_credits().await;
    let mut accepted = vec![post(&network, 0).await.expect("space")];
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).expect("create");
    while file.write_all(&[7; 4096]).is_ok() {}

    let mut key = 0;
    let refused = loop {
        key += 1;
        assert!(key < MAX_JOBS, "no job of {MAX_JOBS} was refused on a full disk");
        match post(&network, key).await {
            Some(id) => accepted.push(id),
            None => break key,
        }
    };
    assert!(network.is_running());
    assert_eq!(total(&network).await, accepted.len() as u64, "the refused job was not accepted by half");

    drop(file);
    fs::remove_file(&filler).expect("space again");
    let again = soon("a job with the same key", async {
        loop {
            if let Some(id) = post(&network, refused).await {
                return id;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    accepted.push(again.await);
    assert_eq!(total(&network).await, accepted.len() as u64);

    let mut island = Island::start(&network).await;
    for _ in &accepted {
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    }
    for id in &accepted {
        assert_eq!(network.job(id).await["status"], "completed", "{id}");
    }
    network.audit().await;
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let network = Network::start_process(|config| {
        let folder = config.fabric.dir.parent().expect("the folder of the test");
        symlink("/dev/full", folder.join("coordinator.log")).expect("a disk without space");
    })
    .await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&id).await["status"], "completed");
    network.audit().await;
}
