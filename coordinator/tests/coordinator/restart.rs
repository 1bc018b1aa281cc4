//! A coordinator or a fabric that restarts.

use std::{io::ErrorKind, time::Duration};

use island_coordinator::app::{App, BuildError};
use island_coordinator_domain::clock::Clock;
use island_daemon::chain::Chain;
use island_testing::port::free_port;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::{
    backup::program,
    support::{
        database::ON_POSTGRES,
        island::{Island, completed, token},
        network::{Event, Network, add_input},
        soon,
    },
};

/// Requests during which another one, which was sent before them, reaches its job.
const LATER_REQUESTS: u32 = 50;

fn text(events: &[Event]) -> String {
    events.iter().filter_map(|event| event.json()["content"].as_str().map(str::to_owned)).collect()
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id.expect("id")).collect()
}

#[tokio::test]
async fn a_killed_coordinator_resumes_its_job_and_the_client_its_stream() {
    let mut network = Network::start_process(|_| {}).await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = network.stream(&id, 0).await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a"), token("b")]).await;
    let mut seen = Vec::new();
    while text(&seen) != "ab" {
        seen.push(stream.next().await.expect("event"));
    }
    network.kill();
    // Nothing receives these two.
    island.send(key, first + 2, vec![token("c"), token("d")]).await;
    network.up().await;

    let resumed = network.stream(&id, seen.last().and_then(|event| event.id).expect("id")).await;
    let lease = island.renew_until_answered(key, "run", 1, first + 3).await.leases.remove(0);
    assert!(lease.held, "the same attempt goes on under the same epoch");
    let from = lease.replay_from.expect("events are missing");
    assert!(from <= first + 2);
    let all = ["a", "b", "c", "d"].map(token);
    island.send(key, from, all[(from - first) as usize..].to_vec()).await;
    assert!(island.end(key, first + 4, completed(1, 4)).await.committed);
    seen.extend(resumed.rest().await);
    assert_eq!(text(&seen), "abcd");
    assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
    assert_eq!(network.stream(&id, 0).await.rest().await, seen);
    network.audit().await;
}

#[tokio::test]
async fn a_waiting_job_survives_a_restart() {
    let mut network = Network::start().await;
    let id = network.submit().await;
    network.down().await;
    network.up().await;
    let mut island = Island::start(&network).await;
    let assignment = island.take().await;
    assert_eq!(assignment.key.job_id.to_string(), id);
    island.end(assignment.key, assignment.first_event, completed(1, 0)).await;
    let events = network.stream(&id, 0).await.rest().await;
    assert_eq!(numbers(&events), (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(network.job(&id).await["status"], "completed");
}

#[tokio::test]
async fn an_end_sent_during_an_outage_is_received_later() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    network.down().await;
    network.up().await;
    let reply = island.end_until_answered(key, first + 1, completed(1, 1)).await;
    assert_eq!((reply.committed, reply.replay_from), (false, Some(first)));
    island.send(key, first, vec![token("x")]).await;
    assert!(island.end(key, first + 1, completed(1, 1)).await.committed);
    assert_eq!(text(&network.stream(&id, 0).await.rest().await), "x");
}

#[tokio::test]
async fn a_restart_of_the_fabric_leaves_no_gap_and_no_repeat() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut stream = network.stream(&id, 0).await;
    let assignment = island.take().await;
    let (key, first) = (assignment.key, assignment.first_event);
    island.send(key, first, vec![token("a")]).await;
    let mut seen = Vec::new();
    while text(&seen) != "a" {
        seen.push(stream.next().await.expect("event"));
    }
    network.nats.down();
    network.nats.up();
    // Both sides reconnect; what was sent meanwhile is sent again on request.
    let lease = island.renew_until_answered(key, "run", 2, first + 2).await.leases.remove(0);
    assert_eq!((lease.held, lease.replay_from), (true, Some(first + 1)));
    island.send(key, first + 1, vec![token("b"), token("c")]).await;
    assert!(island.end(key, first + 3, completed(1, 3)).await.committed);
    seen.extend(stream.rest().await);
    assert_eq!(text(&seen), "abc");
    assert_eq!(numbers(&seen), (1..=seen.len() as u64).collect::<Vec<_>>());
}

/// Reverts migration 16, as a coordinator of the version before would have left the database.
const FORMER_SCHEMA: [&str; 4] = [
    "DROP INDEX jobs_open_of_coordinator",
    "ALTER TABLE jobs RENAME COLUMN coordinator_id TO owner",
    "CREATE INDEX jobs_open_of_owner ON jobs (owner) WHERE status IN ('submitted', 'pending', 'queued', 'running')",
    "DELETE FROM _sqlx_migrations WHERE version = 16",
];

#[tokio::test]
async fn an_open_job_survives_the_migration_of_the_database() {
    let mut network = Network::start().await;
    let id = network.submit().await;
    network.down().await;
    let pool = network.sql().await;
    for statement in FORMER_SCHEMA {
        sqlx::query(statement).execute(&pool).await.expect(statement);
    }
    // The second one has nothing to do.
    for _ in 0..2 {
        let done = program(&network.config, &network.path(""), &["migrate"]).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        sqlx::query("SELECT coordinator_id FROM jobs").execute(&pool).await.expect("the schema of this version");
    }
    pool.close().await;
    network.up().await;
    let mut island = Island::start(&network).await;
    let assignment = island.take().await;
    assert_eq!(assignment.key.job_id.to_string(), id);
    assert!(island.end(assignment.key, assignment.first_event, completed(1, 0)).await.committed);
    assert_eq!(network.job(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_second_coordinator_on_the_same_file_is_refused_and_other_commands_are_not() {
    if ON_POSTGRES {
        // Coordinators share it.
        return;
    }
    let mut network = Network::start().await;
    let (soft, hard) = (CancellationToken::new(), CancellationToken::new());
    let second = App::build(&network.config, Clock::System, soft, hard).await;
    let error = Chain(&second.expect_err("refused")).to_string();
    assert!(error.contains("another coordinator uses the database"), "{error}");
    let backup = network.path("backup.db");
    let backup = backup.to_str().expect("text");
    for arguments in [&["admin", "audit"][..], &["admin", "account", "list"], &["backup", backup]] {
        let done = program(&network.config, &network.path(""), arguments).await;
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let assignment = island.take().await;
    island.end(assignment.key, assignment.first_event, completed(1, 0)).await;
    assert_eq!(network.job(&id).await["status"], "completed", "the first one still has its jobs");
    network.down().await;
    network.up().await;
}

#[tokio::test]
async fn a_coordinator_stops_in_order_while_a_write_waits_for_the_database() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    let pool = network.sql().await;
    let mut lock = pool.begin().await.expect("begun");
    sqlx::query("UPDATE jobs SET price = price").execute(&mut *lock).await.expect("locked");
    // The end cannot be committed.
    assert!(island.try_end(run.key, run.first_event + 1, completed(1, 1)).await.is_none());
    network.down().await;
    lock.rollback().await.expect("unlocked");
    pool.close().await;
    network.up().await;
    assert!(island.end_until_answered(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&id).await["status"], "completed");
    network.audit().await;
}

#[tokio::test]
async fn a_cancellation_that_is_committed_while_the_coordinator_stops_reaches_the_island() {
    let mut network = Network::start().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    let mut events = network.stream(&id, 0).await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    while events.next().await.expect("event").json()["content"] != "a" {}
    drop(events);
    let pool = network.sql().await;
    let mut lock = pool.begin().await.expect("begun");
    sqlx::query("UPDATE jobs SET price = price").execute(&mut *lock).await.expect("locked");
    let path = format!("/jobs/{id}");
    let cancel = tokio::spawn(network.call(Method::DELETE, &path).send());
    // By the time that these later requests are answered, it has reached the job.
    for _ in 0..LATER_REQUESTS {
        network.get(&path).await;
    }
    network.ask_to_stop();
    let cancel = soon("the end of the time for requests", cancel).await.expect("no panic");
    assert!(cancel.is_err(), "the coordinator stops before it can be committed: {cancel:?}");
    lock.rollback().await.expect("unlocked");
    pool.close().await;
    assert_eq!(island.cancelled().await.key, run.key);
    network.down().await;
    network.up().await;
    assert_eq!(network.job(&id).await["status"], "cancelled");
    network.audit().await;
}

#[tokio::test]
async fn a_coordinator_that_is_starting_refuses_connections() {
    let mut network = Network::start().await;
    network.down().await;
    network.nats.down();
    network.config.http.listen = ([127, 0, 0, 1], free_port()).into();
    let address = network.config.http.listen;
    // In place of the fabric: it accepts a connection, and then sends nothing.
    let silent = TcpListener::bind(("127.0.0.1", network.nats.port)).await.expect("the fabric's port");
    let (config, soft) = (network.config.clone(), CancellationToken::new());
    let stop = soft.clone();
    let starting = tokio::spawn(async move {
        App::build(&config, Clock::System, stop, CancellationToken::new())
            .await
            .map(|app| tokio::spawn(app.run()))
    });
    let waiting = soon("a connection to the fabric", silent.accept()).await.expect("accepted");
    let refused = TcpStream::connect(address).await.expect_err("nobody would answer");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    assert!(!starting.is_finished(), "it waits for the fabric");

    drop((waiting, silent));
    network.nats.up();
    let running = soon("its start", starting).await.expect("no panic");
    let running = running.unwrap_or_else(|error| panic!("{}", Chain(&error)));
    network.url = format!("http://{address}/api/v1");
    network.get("/account").await;
    soft.cancel();
    soon("its end", running).await.expect("no panic").expect("served");
}

#[tokio::test]
async fn an_address_in_use_is_reported_before_the_fabric_is_waited_for() {
    let mut network = Network::start().await;
    network.down().await;
    network.nats.down();
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    network.config.http.listen = other.local_addr().expect("an address");
    let (soft, hard) = (CancellationToken::new(), CancellationToken::new());
    let built = App::build(&network.config, Clock::System, soft, hard).await;
    assert!(matches!(built, Err(BuildError::Listen { .. })), "{built:?}");
}

/// The input was never valid for the other version, and the price was agreed to for this one.
#[tokio::test]
async fn a_waiting_job_does_not_run_another_version() {
    let mut network = Network::start().await;
    let id = network.submit().await;
    network.down().await;
    add_input(&network.config, "words = { type = \"integer\" }");
    network.up().await;
    let ended = async {
        loop {
            let job = network.job(&id).await;
            if job["completed_at"] != Value::Null {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let end = soon("the end of the job", ended).await;
    assert_eq!((&end["status"], &end["error"]["code"]), (&json!("failed"), &json!("cargo_changed")), "{end}");
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9, "the hold is released");
    network.audit().await;
}

/// Prices and limits are not part of what runs: the job keeps its price.
#[tokio::test]
async fn a_waiting_job_survives_another_price() {
    let mut network = Network::start().await;
    let id = network.submit().await;
    network.down().await;
    let file = network.config.catalogue.dir.join("echo.toml");
    let text = std::fs::read_to_string(&file).expect("read").replace("price_per_job = 1\n", "price_per_job = 5\n");
    std::fs::write(&file, text).expect("write");
    network.up().await;
    let mut island = Island::start(&network).await;
    let run = island.take().await;
    assert_eq!(run.key.job_id.to_string(), id);
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
}
