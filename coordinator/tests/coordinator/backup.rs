//! Backups that are taken while a coordinator runs, and networks that go back to one.

use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Output, time::Duration};

use island_coordinator_domain::config::{Config, Database};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::process::Command;

use crate::support::{
    answer, database,
    island::{Island, completed, token},
    network::Network,
    soon,
};

/// Runs the program with these settings.
pub(crate) async fn program(config: &Config, folder: &Path, arguments: &[&str]) -> Output {
    let settings = folder.join("backup.toml");
    std::fs::write(&settings, island_daemon::config::show(config)).expect("settings");
    let mut command = Command::new(env!("CARGO_BIN_EXE_island-coordinator"));
    command.env("ISLAND_COORDINATOR_CONFIG_FILE", settings).args(arguments);
    command.output().await.expect("island-coordinator starts")
}

pub(crate) async fn succeeds(config: &Config, folder: &Path, arguments: &[&str]) {
    let done = program(config, folder, arguments).await;
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Stops the coordinator and starts it again on a database that is restored from this file.
async fn go_back(network: &mut Network, file: &Path) {
    network.down().await;
    // What the fabric remembers is of the lost time.
    network.nats.down();
    std::fs::remove_dir_all(network.path("fabric/jetstream")).expect("removed");
    network.nats.up();
    let folder = network.path("restored");
    std::fs::create_dir(&folder).expect("folder");
    let settings = Database { connections: network.config.database.connections, ..database::fresh(&folder) };
    network.config.database = settings;
    succeeds(&network.config, &folder, &["restore", file.to_str().expect("text")]).await;
    network.up().await;
}

#[tokio::test]
async fn attempts_of_the_future_have_no_effect_after_a_restore() {
    let mut network = Network::start_with(|config| {
        config.jobs.heartbeat_ms = 3_000;
        config.jobs.lease_ms = 9_000;
    })
    .await;
    let mut island = Island::start(&network).await;
    let ended = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    let running = network.submit().await;
    let before = island.take().await;
    assert_eq!(before.key.job_id.to_string(), running);
    island.slots = 0;
    island.beat(&[]).await;
    let waiting = network.submit().await;
    let waits = async {
        while network.job(&waiting).await["status"] != "pending" {
            tokio::task::yield_now().await;
        }
    };
    soon("a job without an Island", waits).await;
    let earned = network.credits(&network.owner).await;

    let file = network.path("backup.db");
    let path = file.to_str().expect("text").to_owned();
    succeeds(&network.config, &network.path(""), &["backup", &path]).await;
    let again = program(&network.config, &network.path(""), &["backup", &path]).await;
    assert!(!again.status.success(), "an existing file is never overwritten");
    let mode = std::fs::metadata(&file).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can read the inputs and outputs of jobs: {mode:o}");
    // The future: the open jobs end, and another one begins.
    island.slots = 4;
    island.beat(&[]).await;
    island.send(before.key, before.first_event, vec![token("a")]).await;
    island.end(before.key, before.first_event + 1, completed(1, 1)).await;
    let taken = island.take().await;
    assert_eq!(taken.key.job_id.to_string(), waiting);
    island.end(taken.key, taken.first_event, completed(1, 1)).await;
    let unknown = network.submit().await;
    let future = island.take().await;
    network.audit().await;

    go_back(&mut network, &file).await;
    assert_eq!(network.job(&ended).await["status"], "completed");
    let (status, _) = answer(network.call(Method::GET, &format!("/jobs/{unknown}"))).await;
    assert_eq!(status, 404);
    // What the Island reports of its attempts changes nothing.
    island.register(&[]).await;
    for key in [before.key, taken.key, future.key] {
        island.send(key, 3, vec![token("old")]).await;
    }
    let anew = async {
        loop {
            island.beat(&[]).await;
            if let Ok(run) = tokio::time::timeout(Duration::from_millis(200), island.take()).await {
                return run;
            }
        }
    };
    let anew = soon("another attempt", anew).await;
    assert_eq!(anew.key.job_id, taken.key.job_id, "the job that waited");
    assert!(anew.key.epoch > taken.key.epoch + (1 << 31), "{:?}", anew.key);
    island.end(anew.key, anew.first_event, completed(1, 1)).await;
    // Its reader may have received text that this database does not have, so it is not repeated.
    let over = async {
        loop {
            island.beat(&[]).await;
            let job = network.job(&running).await;
            if !job["completed_at"].is_null() {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let over = soon("the end of the job that ran", over).await;
    assert_eq!((&over["status"], &over["error"]["code"]), (&json!("failed"), &json!("island_lost")), "{over}");
    assert_eq!(over["usage"]["credits_used"], 0, "{over}");
    let ended = async {
        while network.job(&waiting).await["status"] != "completed" {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of the job that waited", ended).await;
    network.audit().await;
    assert!(network.credits(&network.owner).await >= earned);
    assert_eq!(network.get("/jobs").await["meta"]["total"], 3, "counted once");
}

#[tokio::test]
async fn a_backup_is_restored_to_the_other_kind_of_database_and_never_over_another_one() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    let file = network.path("backup.db");
    let path = file.to_str().expect("text").to_owned();
    succeeds(&network.config, &network.path(""), &["backup", &path]).await;
    let over = program(&network.config, &network.path(""), &["restore", &path]).await;
    assert!(!over.status.success(), "the database has accounts");
    assert_eq!(network.job(&id).await["status"], "completed", "it is as it was");

    network.down().await;
    // A file, whatever the network used until now.
    network.config.database = Database { path: network.path("other.db"), ..Database::default() };
    succeeds(&network.config, &network.path(""), &["restore", &path]).await;
    network.up().await;
    assert_eq!(network.job(&id).await["output"], "a");
    let rest = network.stream(&id, 0).await.rest().await;
    assert_eq!(rest.last().expect("events").name, "done");
    network.audit().await;
    let body = json!({"workload": "echo", "input": {"prompt": "x"}});
    let more = network.call(Method::POST, "/jobs").json(&body).send().await.expect("answer");
    assert_eq!(more.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_damaged_ledger_is_not_restored() {
    let network = Network::start().await;
    let file = network.path("backup.db");
    let path = file.to_str().expect("text").to_owned();
    succeeds(&network.config, &network.path(""), &["backup", &path]).await;
    let pool = database::connect(&Database { path: file, ..Database::default() }).await;
    sqlx::query("UPDATE balances SET amount = amount + 1 WHERE ledger LIKE 'account:%'")
        .execute(&pool)
        .await
        .expect("damaged");
    pool.close().await;
    let settings = Database { path: network.path("other.db"), ..Database::default() };
    let config = Config { database: settings, ..network.config.clone() };
    let done = program(&config, &network.path(""), &["restore", &path]).await;
    let shown = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && shown.contains("ledger is damaged"), "{shown}");
    assert!(!network.path("other.db").exists());
}
