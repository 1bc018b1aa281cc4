//! Failures injected into the running agent: crashes, panics, full disks and tasks that stand still.

use std::{fs, time::Duration};

use island_protocol::{
    artifact::Artifact,
    event::{AttemptEvent, Numbered},
    fabric::{Assignment, RefusalReason},
    job::{FailureCode, Outcome},
};
use island_runtimes_api::simulated::reply;
use serde_json::json;

use crate::{
    fixture::{Island, assignment, wait_for},
    stories::{assert_completed, failure, outcome, text},
};

/// Time in which an injected failure must show.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the limits of the watchdog allow, and some time for a busy machine.
const LIMIT: Duration = Duration::from_secs(100);
/// Tokens of a job.
const TOKENS: u64 = 12;

/// Every place between a request and its answer at which an agent can end, and how often a job passes it before.
const PLACES: [(&str, u32); 19] = [
    ("assign.verified", 0),
    ("assign.spooled", 0),
    ("assign.recorded", 0),
    ("assign.decided", 0),
    ("assign.answered", 0),
    ("job.begin", 0),
    ("job.spooled", 0),
    ("job.spooled", 1),
    ("job.spooled", 5),
    ("job.spooled", 10),
    ("report.published", 0),
    ("report.published", 1),
    ("report.published", 2),
    ("report.published", 5),
    ("report.published", 10),
    ("report.ending", 0),
    ("request.served", 0),
    ("report.committed", 0),
    ("attempt.unspooled", 0),
];

/// Every place between a request of the agent's own, a registration or a renewal of leases, and what its answer changes; and how
/// often an agent that starts passes it before. The coordinator may not get a registration that is the last act of an agent.
const OWN_REQUESTS: [(&str, u32); 3] =
    [("request.answered", 0), ("request.sent", 1), ("request.answered", 1)];

fn job() -> Assignment {
    assignment(json!({"prompt": "one two", "max_tokens": TOKENS, "delay_ms": 10}))
}

/// `NAME=ACTION` at the passage after the first `passed`.
fn once(name: &str, passed: u32, action: &str) -> String {
    let off = if passed == 0 { String::new() } else { format!("{passed}*off->") };
    format!("{name}={off}1*{action}->off")
}

/// Assigns a job whose assignment was not answered once more, as the coordinator may.
async fn offer_again(island: &Island, job: &Assignment) {
    let again = island.coordinator.assign(island.host, job).await;
    // The agent took it up from its journal, and it has ended meanwhile.
    let has_ended = again.refusal.is_some_and(|refusal| refusal.reason == RefusalReason::Invalid);
    assert!(again.accepted || has_ended);
}

/// Content of a file of a Cargo.
fn content(name: &str) -> Vec<u8> {
    name.as_bytes().repeat(100)
}

/// A job of a Cargo with these files, which the coordinator serves.
fn job_with_files(island: &Island, names: &[String]) -> Assignment {
    let artifact = |name: &String| {
        let bytes = content(name);
        let url = format!("{}/files/{name}", island.coordinator.url);
        let (sha256, size_bytes) = (Some(island_cache::digest_of(&bytes)), Some(bytes.len() as u64));
        island.coordinator.seen().files.insert(name.clone(), (bytes, 0));
        Artifact { name: name.clone(), url, sha256, size_bytes }
    };
    let mut job = job();
    job.cargo.artifacts = names.iter().map(artifact).collect();
    job
}

/// Whether the cache offers these files. What it offers is complete, whichever files these are.
fn offers(island: &Island, names: &[String]) -> bool {
    let files = island.files("cache/blobs");
    for file in &files {
        let bytes = fs::read(island.path("cache/blobs").join(file)).expect("a file of the cache");
        assert_eq!(island_cache::digest_of(&bytes).hex(), *file, "of {} bytes", bytes.len());
    }
    names.iter().all(|name| files.contains(&island_cache::digest_of(&content(name)).hex()))
}

/// Parts of files in the cache, without locks.
fn parts(island: &Island) -> Vec<String> {
    let files = island.files("cache/partial").into_iter();
    files.filter(|name| !name.ends_with(".lock")).collect()
}

async fn nothing_is_left(island: &Island) {
    for folder in ["spool", "journal"] {
        wait_for("empty folders", || island.files(folder).is_empty().then_some(())).await;
    }
}

#[tokio::test]
async fn an_agent_that_crashes_anywhere_loses_no_job() {
    let mut island = Island::start().await;
    for (place, passed) in PLACES {
        island.start_failing(&once(place, passed, "return")).await;
        let job = job();
        let answer = island.offer(&job, PATIENCE).await;
        island.agent_ended(PATIENCE).await;
        let workers = island.workers();
        island.start_agent().await;
        match answer {
            Some(answer) => assert!(answer.accepted, "{place}: {answer:?}"),
            None => offer_again(&island, &job).await,
        }
        let events = island.coordinator.end(job.key).await;
        assert_completed(&events, "one two", TOKENS);
        if !workers.is_empty() {
            assert_eq!(island.workers(), workers, "{place}: the worker was adopted");
        }
        nothing_is_left(&island).await;
    }
}

#[tokio::test]
async fn a_panic_anywhere_ends_no_more_than_one_job() {
    let mut island = Island::start().await;
    // The last one is in a destructor.
    for (place, passed) in PLACES.into_iter().filter(|(place, _)| *place != "attempt.unspooled") {
        island.start_failing(&once(place, passed, "panic")).await;
        let job = job();
        let answer = island.offer(&job, PATIENCE).await;
        // A task of the agent itself that panics ends the agent; one of an attempt ends the attempt.
        let has_ended = place.starts_with("assign.");
        if has_ended {
            island.agent_ended(PATIENCE).await;
            island.start_agent().await;
            if answer.is_none() {
                offer_again(&island, &job).await;
            }
        }
        let events = island.coordinator.end(job.key).await;
        match outcome(&events) {
            Outcome::Completed { .. } => assert_completed(&events, "one two", TOKENS),
            Outcome::Failed { failure, .. } => {
                assert_eq!(failure.code, FailureCode::InternalError, "{place}: {failure:?}");
                assert!(reply("one two", TOKENS).starts_with(&text(&events)), "{place}");
            }
        }
        let next = assignment(json!({"prompt": "b", "max_tokens": 3}));
        assert_completed(&island.coordinator.end(island.run(&next).await).await, "b", 3);
        nothing_is_left(&island).await;
    }
}

#[tokio::test]
async fn an_agent_that_crashes_at_a_request_of_its_own_loses_no_job() {
    let mut island = Island::start().await;
    for (place, passed) in OWN_REQUESTS {
        let long = assignment(json!({"prompt": "x y", "max_tokens": 200, "delay_ms": 20}));
        let key = island.run(&long).await;
        island.coordinator.tokens(key, 3).await;
        let workers = island.workers();
        island.start_failing(&once(place, passed, "return")).await;
        island.agent_ended(PATIENCE).await;
        assert_eq!(island.workers(), workers, "{place} {passed}: the worker goes on");
        island.start_agent().await;
        let events = island.coordinator.end(key).await;
        assert_completed(&events, "x y", 200);
        assert_numbered(&events);
        assert_eq!(island.workers(), workers, "{place} {passed}: the worker was adopted");
        nothing_is_left(&island).await;
    }
}

#[tokio::test]
async fn answers_to_requests_of_the_agent_may_be_lost() {
    let mut island = Island::start().await;
    for place in ["request.sent", "request.answered"] {
        let long = assignment(json!({"prompt": "x y", "max_tokens": 200, "delay_ms": 20}));
        let key = island.run(&long).await;
        island.coordinator.tokens(key, 3).await;
        island.start_failing(&format!("{place}=3*return(lost)->off")).await;
        let pid = island.pid();
        let events = island.coordinator.end(key).await;
        assert_completed(&events, "x y", 200);
        assert_numbered(&events);
        assert_eq!(island.pid(), pid, "{place}");
        assert!(island.coordinator.seen().registers.len() > 1, "{place}");
        nothing_is_left(&island).await;
    }
}

/// The coordinator commits the end at the first request, and the agent learns it from the answer to the fourth.
#[tokio::test]
async fn answers_to_the_end_of_a_job_may_be_lost() {
    let mut island = Island::start().await;
    island.start_failing("request.served=3*return(lost)->off").await;
    let pid = island.pid();
    let key = island.run(&job()).await;
    island.coordinator.end(key).await;
    nothing_is_left(&island).await;
    let events = island.coordinator.end(key).await;
    assert_completed(&events, "one two", TOKENS);
    assert_numbered(&events);
    assert_eq!(island.coordinator.seen().ends, 4, "the same end is sent until an answer arrives");
    assert_eq!(island.pid(), pid);
    let book = fs::read(island.path("earnings.json")).expect("the earnings");
    let book: serde_json::Value = serde_json::from_slice(&book).expect("JSON");
    assert_eq!(book["total"]["jobs"], 1, "the job is counted once");
}

#[tokio::test]
async fn an_attempt_that_cannot_be_recorded_is_refused_and_leaves_nothing() {
    let mut island = Island::start().await;
    for place in ["spool.open", "journal.write", "journal.write_half", "journal.rename"] {
        island.start_failing(&once(place, 0, "return")).await;
        let refused = island.coordinator.assign(island.host, &job()).await.refusal.expect("refused");
        assert_eq!(refused.reason, RefusalReason::NoDisk, "{place}: {refused:?}");
        for folder in ["spool", "journal"] {
            assert!(island.files(folder).is_empty(), "{place}: {:?}", island.files(folder));
        }
        let key = island.run(&job()).await;
        assert_completed(&island.coordinator.end(key).await, "one two", TOKENS);
        nothing_is_left(&island).await;
    }
}

#[tokio::test]
async fn every_write_of_a_job_may_fail() {
    let mut island = Island::start().await;
    for place in ["spool.write", "spool.write_half"] {
        for passed in 0.. {
            island.start_failing(&once(place, passed, "return")).await;
            let pid = island.pid();
            let key = island.run(&job()).await;
            let events = island.coordinator.end(key).await;
            assert_numbered(&events);
            if matches!(outcome(&events), Outcome::Completed { .. }) {
                assert!(passed > 2, "the status, text and the end are separate writes");
                break;
            }
            assert_eq!(failure(&events).1, FailureCode::DiskFull, "{place} {passed}");
            assert!(reply("one two", TOKENS).starts_with(&text(&events)), "{place} {passed}");
            let next = island.run(&job()).await;
            assert_completed(&island.coordinator.end(next).await, "one two", TOKENS);
            assert_eq!(island.pid(), pid);
            nothing_is_left(&island).await;
        }
    }
}

#[tokio::test]
async fn a_disk_that_stays_full_fails_each_job_with_that_reason() {
    let mut island = Island::start().await;
    island.start_failing("spool.write=return").await;
    for _ in 0..3 {
        let key = island.run(&job()).await;
        assert_eq!(failure(&island.coordinator.end(key).await).1, FailureCode::DiskFull);
    }
    nothing_is_left(&island).await;
}

/// The files of a Cargo are downloaded together, so that each failure meets one of them while the other one may be at
/// any step.
#[tokio::test]
async fn an_agent_that_crashes_while_it_keeps_a_file_offers_no_half_of_it() {
    let mut island = Island::start().await;
    for place in ["cache.sync", "cache.rename"] {
        for passed in 0..2 {
            let names = ["a", "b"].map(|name| format!("{place}-{passed}-{name}"));
            island.start_failing(&once(place, passed, "return(crash)")).await;
            let job = job_with_files(&island, &names);
            let answer = island.offer(&job, PATIENCE).await;
            island.agent_ended(PATIENCE).await;
            assert!(!offers(&island, &names), "{place} {passed}: it ended before it kept both");
            island.start_agent().await;
            match answer {
                Some(answer) => assert!(answer.accepted, "{place} {passed}: {answer:?}"),
                None => offer_again(&island, &job).await,
            }
            assert_completed(&island.coordinator.end(job.key).await, "one two", TOKENS);
            assert!(offers(&island, &names), "{place} {passed}");
            nothing_is_left(&island).await;
            assert!(parts(&island).is_empty(), "{place} {passed}: {:?}", parts(&island));
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_kept_costs_one_job() {
    let mut island = Island::start().await;
    let failures = [
        ("cache.sync", "return", FailureCode::DiskFull),
        ("cache.rename", "return", FailureCode::ModelUnavailable),
        ("cache.sync", "panic", FailureCode::ModelUnavailable),
        ("cache.rename", "panic", FailureCode::ModelUnavailable),
    ];
    for (place, action, expected) in failures {
        for passed in 0..2 {
            let case = format!("{place} {passed} {action}");
            let names = ["a", "b"].map(|name| format!("{place}-{passed}-{action}-{name}"));
            island.start_failing(&once(place, passed, action)).await;
            let (pid, job) = (island.pid(), job_with_files(&island, &names));
            let key = island.run(&job).await;
            assert_eq!(failure(&island.coordinator.end(key).await).1, expected, "{case}");
            assert!(!offers(&island, &names), "{case}");
            let again = Assignment { key: self::job().key, ..job };
            assert_completed(&island.coordinator.end(island.run(&again).await).await, "one two", TOKENS);
            assert!(offers(&island, &names), "{case}");
            assert_eq!(island.pid(), pid, "{case}");
            nothing_is_left(&island).await;
            assert!(parts(&island).is_empty(), "{case}: {:?}", parts(&island));
        }
    }
}

#[tokio::test]
async fn an_attempt_that_cannot_be_recovered_is_ended_in_its_worker() {
    for place in ["spool.open", "journal.read"] {
        let mut island = Island::start().await;
        let job = assignment(json!({"prompt": "a", "max_tokens": 100_000, "delay_ms": 10}));
        let key = island.run(&job).await;
        island.coordinator.tokens(key, 3).await;
        island.start_failing(&once(place, 0, "return")).await;
        let registered = island.coordinator.seen().registers.last().expect("registered").holding.clone();
        assert_eq!(registered, [], "{place}: the coordinator places it elsewhere");
        nothing_is_left(&island).await;
        // A worker with a running job would not stop without force.
        let stopped = tokio::time::timeout(Duration::from_secs(8), island.stop_agent()).await;
        assert!(stopped.expect("stops at once").success(), "{place}");
        assert!(island.workers().is_empty(), "{place}");
    }
}

#[tokio::test]
async fn an_agent_whose_heartbeat_stands_still_is_replaced_and_its_worker_adopted() {
    stands_still("heartbeat").await;
}

#[tokio::test]
async fn an_agent_whose_dispatch_stands_still_is_replaced_and_its_worker_adopted() {
    stands_still("assign.verified").await;
}

/// systemd ends what is not ready in time, together with the workers that it has found.
#[tokio::test]
async fn an_agent_is_ready_when_it_has_found_its_workers_without_a_fabric() {
    let mut island = Island::start().await;
    let key = island.run(&assignment(json!({"prompt": "a", "max_tokens": 900, "delay_ms": 50}))).await;
    island.coordinator.tokens(key, 3).await;
    let workers = island.workers();
    island.kill_agent();
    island.nats.stop();
    let notices = island.start_notifying();
    let ready = async {
        let mut notice = [0; 4096];
        loop {
            let length = notices.recv(&mut notice).await.expect("a notice");
            if String::from_utf8_lossy(&notice[..length]).contains("READY=1") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("the agent is ready");
    assert_eq!(island.workers(), workers);
}

/// The unit's own watchdog is the last resort, and neither it nor a crash may end the workers.
#[test]
fn the_unit_ends_only_the_agent() {
    let unit = fs::read_to_string("../systemd/island-agent.service").expect("the unit");
    let lines = [
        "KillMode=process",
        "Restart=on-failure",
        "WatchdogSec=60",
        "WatchdogSignal=SIGKILL",
        // Memory and tasks of all workers together are limited, and one that is ended for it takes no other with it.
        "MemoryMax=90%",
        "TasksMax=8192",
        "OOMPolicy=continue",
    ];
    for line in lines {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
}

/// Stops a task of the agent at `place` for good, while a job runs.
async fn stands_still(place: &str) {
    let mut island = Island::start().await;
    let long = assignment(json!({"prompt": "x y", "max_tokens": 900, "delay_ms": 100}));
    let key = island.run(&long).await;
    island.coordinator.tokens(key, 3).await;
    let workers = island.workers();
    island.start_failing(&format!("{place}=pause")).await;
    if place.starts_with("assign.") {
        assert_eq!(island.offer(&job(), LIMIT).await, None);
    }
    island.agent_ended(LIMIT).await;
    let log = fs::read_to_string(island.log()).expect("a log");
    let name = if place == "heartbeat" { "heartbeat" } else { "dispatch" };
    let line = log.lines().find(|line| line.contains("makes no progress"));
    assert!(line.is_some_and(|line| line.contains(name)), "{log}");
    island.start_agent().await;
    let seen = island.coordinator.seen().registers.last().expect("registered").holding.clone();
    assert_eq!(seen, [key], "the job goes on");
    assert_eq!(island.workers(), workers, "in the same process");
    island.coordinator.cancel(island.host, key).await;
    let events = island.coordinator.end(key).await;
    assert_numbered(&events);
    assert!(reply("x y", 900).starts_with(&text(&events)));
}

fn assert_numbered(events: &[Numbered<AttemptEvent>]) {
    let numbers = events.iter().map(|event| event.n);
    assert!(numbers.eq(1..=events.len() as u64), "{events:?}");
}
