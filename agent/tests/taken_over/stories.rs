//! What the agent does with a worker that was taken over: it lives, ends the worker for the right reason, and runs the next job.

use std::{fs, os::unix::fs::symlink};

use island_protocol::{
    cargo::RuntimeType,
    event::{AttemptEvent, Numbered},
    fabric::Assignment,
    job::{FailureCode, Outcome},
};
use island_runtimes_worker::launch::Launch;
use serde_json::{Value, json};

use crate::fixture::{Island, assignment, wait_for, workers_dir};

/// The tests, by name.
pub(crate) const ALL: [(&str, fn()); 7] = [
    ("a_worker_that_breaks_a_limit_is_ended_for_that_reason", || block_on(breaks_limits())),
    ("what_cannot_be_sent_ends_the_job", || block_on(cannot_be_sent())),
    ("events_of_other_jobs_change_nothing", || block_on(other_jobs())),
    ("false_figures_are_not_believed", || block_on(false_figures())),
    ("logs_that_are_not_ordinary_files_are_not_read", || block_on(logs())),
    ("no_signal_reaches_the_agent", || block_on(signals())),
    ("a_worker_that_is_found_again_runs_no_more_jobs_than_it_offers", || block_on(slots_after_a_restart())),
];

/// Most memory that the agent may have needed, megabytes.
const MAX_AGENT_MB: u64 = 512;

fn block_on(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(story);
}

/// An Island whose engine for ONNX models is this program.
async fn island() -> (Island, tempfile::TempDir) {
    let programs = tempfile::tempdir().expect("a folder");
    let honest = workers_dir().join("island-worker-simulated");
    symlink(honest, programs.path().join("island-worker-simulated")).expect("a link");
    let own = std::env::current_exe().expect("own path");
    symlink(own, programs.path().join("island-worker-onnx")).expect("a link");
    (Island::with_programs(programs.path()).await, programs)
}

fn taken_over(act: &str, agent: u32) -> Assignment {
    with_engine(&json!({ "act": act }), agent)
}

fn with_engine(engine: &Value, agent: u32) -> Assignment {
    let mut job = assignment(json!({ "agent": agent }));
    job.cargo.runtime_type = RuntimeType::Onnx;
    job.cargo.slug = "taken-over".parse().expect("a slug");
    job.cargo.engine = engine.clone();
    job.cargo.limits.max_output_bytes = 1 << 20;
    job
}

fn outcome(events: &[Numbered<AttemptEvent>]) -> &Outcome {
    match events.last().map(|last| &last.event) {
        Some(AttemptEvent::Ended { outcome }) => outcome,
        other => panic!("no end: {other:?}"),
    }
}

fn text(events: &[Numbered<AttemptEvent>]) -> String {
    let token = |event: &Numbered<AttemptEvent>| match &event.event {
        AttemptEvent::Token { content, .. } => Some(content.clone()),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

/// Runs an act, and returns the code and message with which its job failed.
async fn failure_of(island: &Island, job: Assignment) -> (FailureCode, String) {
    let key = island.run(&job).await;
    match outcome(&island.coordinator.end(key).await) {
        Outcome::Failed { failure, .. } => (failure.code, failure.message.clone()),
        Outcome::Completed { .. } => panic!("{} must fail", job.cargo.engine),
    }
}

/// The agent lives, is not swollen, and an honest worker's job completes.
async fn lives(island: &Island, pid: u32, after: &str) {
    let key = island.run(&assignment(json!({"prompt": "a b", "max_tokens": 3}))).await;
    let events = island.coordinator.end(key).await;
    assert!(matches!(outcome(&events), Outcome::Completed { .. }), "after {after}: {events:?}");
    assert_eq!(island.pid(), pid);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kb >> 10 < MAX_AGENT_MB, "after {after} the agent had used {peak_kb} kB");
}

async fn breaks_limits() {
    let (island, _programs) = island().await;
    let pid = island.pid();
    let output = (FailureCode::RuntimeCrashed, "more output than the job may have");
    let protocol = (FailureCode::RuntimeCrashed, "invalid messages");
    let acts = [
        ("large batch", output),
        ("large token", output),
        ("long name", output),
        ("long format", output),
        ("large end", output),
        ("endless output", output),
        ("endless frame", protocol),
        ("no frame", protocol),
        ("second hello", protocol),
        ("late load failure", protocol),
        ("pulse of many jobs", protocol),
        ("another job without end", protocol),
        ("empty frames without end", protocol),
        ("progress without end", protocol),
        ("large files", (FailureCode::DiskFull, "more files than this Island allows")),
        ("many files", (FailureCode::DiskFull, "more files than this Island allows")),
        ("deep folders", (FailureCode::DiskFull, "more files than this Island allows")),
        ("many threads", (FailureCode::RuntimeCrashed, "more threads than this Island allows")),
        ("much memory", (FailureCode::OutOfMemory, "ran out of memory")),
        ("long standard error", (FailureCode::RuntimeCrashed, "ended while the job ran")),
    ];
    for (act, (code, message)) in acts {
        let failure = failure_of(&island, taken_over(act, pid)).await;
        assert!(failure.0 == code && failure.1.contains(message), "{act}: {failure:?}");
        lives(&island, pid, act).await;
    }
    // Only the honest one is left.
    wait_for("the ends of the others", || (island.workers().len() == 1).then_some(())).await;
    // A folder and a key.
    wait_for("the removal of their files", || (island.files("w").len() == 2).then_some(())).await;
}

async fn cannot_be_sent() {
    let (island, _programs) = island().await;
    let pid = island.pid();
    for act in ["end larger than a message", "event larger than a message"] {
        let mut job = taken_over(act, pid);
        // Within the limits of the job, and beyond those of this fabric.
        job.cargo.limits.max_output_bytes = 8 << 20;
        let key = island.run(&job).await;
        let events = island.coordinator.end(key).await;
        let Outcome::Failed { failure, .. } = outcome(&events) else { panic!("{act} must fail") };
        assert_eq!(failure.code, FailureCode::OutputLimit, "{act}");
        assert_eq!(text(&events), "x", "what came before it is delivered");
        lives(&island, pid, act).await;
        wait_for("the attempt's files to be removed", || island.files("spool").is_empty().then_some(()))
            .await;
    }
}

async fn other_jobs() {
    let (island, _programs) = island().await;
    let pid = island.pid();
    let key = island.run(&taken_over("another job", pid)).await;
    let events = island.coordinator.end(key).await;
    assert!(matches!(outcome(&events), Outcome::Completed { .. }), "{events:?}");
    assert_eq!(
        island.coordinator.seen().events.len(),
        1,
        "the events of a job that it was not given are dropped"
    );
    let (code, _) = failure_of(&island, taken_over("out of order", pid)).await;
    assert_eq!(code, FailureCode::InternalError);
    lives(&island, pid, "events out of order").await;
}

async fn false_figures() {
    let (mut island, _programs) = island().await;
    let pid = island.pid();
    let key = island.run(&taken_over("false figures", pid)).await;
    island.coordinator.end(key).await;
    // Its pulse arrives with the first job at the latest; heartbeats measure the machine with what it reported.
    let beats = island.coordinator.seen().heartbeats.len();
    let beat = island.coordinator.wait("heartbeats", |seen| seen.heartbeats.get(beats + 3).cloned()).await;
    let total = beat.system.memory_total_mb;
    assert!(beat.headroom.ram_mb <= total, "{} of {total} MB", beat.headroom.ram_mb);
    lives(&island, pid, "false figures").await;
    // A registration contains the report of the sandbox.
    island.kill_agent();
    island.start_agent().await;
    let sandbox =
        island.coordinator.seen().registers.last().expect("registered").capabilities.sandbox.clone();
    assert!(sandbox.layers.iter().all(|layer| layer.len() < 1_000), "{} layers", sandbox.layers.len());
    let pid = island.pid();
    lives(&island, pid, "a restart").await;
}

async fn logs() {
    let (island, _programs) = island().await;
    let pid = island.pid();
    let key = island.run(&taken_over("honest", pid)).await;
    island.coordinator.end(key).await;
    // The folder of a log is the worker's own, and a neighbor's is outside its sandbox.
    let mut folders: Vec<_> =
        fs::read_dir(island.path("w")).expect("list").flatten().map(|entry| entry.path()).collect();
    folders.retain(|path| path.is_dir());
    assert!(!folders.is_empty());
    for folder in folders {
        let launch = fs::read(folder.join("launch.json")).expect("a launch file");
        let launch: Launch = serde_json::from_slice(&launch).expect("readable");
        assert_eq!(launch.log_dir, Some(folder.join("scratch")));
    }
    for act in ["log is a link", "log is a pipe"] {
        // In the sandbox it can create neither.
        let key = island.run(&with_engine(&json!({"act": act, "sandbox": false}), pid)).await;
        let events = island.coordinator.end(key).await;
        assert!(matches!(outcome(&events), Outcome::Completed { .. }), "{act}: {events:?}");
        assert_eq!(island.files("job-logs"), [""; 0], "{act}");
        lives(&island, pid, act).await;
    }
}

async fn signals() {
    let (island, _programs) = island().await;
    let pid = island.pid();
    let key = island.run(&taken_over("signals", pid)).await;
    assert_eq!(text(&island.coordinator.end(key).await), "refused");
    lives(&island, pid, "signals").await;
}

async fn slots_after_a_restart() {
    let (mut island, _programs) = island().await;
    let job = || taken_over("one slot", 0);
    let first = island.run(&job()).await;
    island.coordinator.tokens(first, 1).await;
    island.kill_agent();
    island.start_agent().await;
    let second = island.run(&job()).await;
    // It has been offered two heartbeats later, if it is offered at all beside the first.
    let beats = island.coordinator.seen().heartbeats.len();
    island.coordinator.wait("heartbeats", |seen| seen.heartbeats.get(beats + 2).map(drop)).await;
    island.coordinator.cancel(island.host, first).await;
    island.coordinator.end(first).await;
    island.coordinator.tokens(second, 1).await;
    island.coordinator.cancel(island.host, second).await;
    assert_eq!(text(&island.coordinator.end(second).await), "alone");
}
