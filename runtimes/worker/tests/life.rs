//! The life of a worker, as its agent sees it: the real binary around the scripted engine.

use std::{path::Path, time::Duration};

use island_protocol::{
    event::{AttemptEvent, Numbered},
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{RunRequest, simulated::reply};
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{self, Connection, Exit, Worker},
    launch::{EXIT_LOAD_FAILED, Launch, SOCKET_FILE},
};
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_island-worker-simulated");
const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    dir: TempDir,
    launch: Launch,
}

impl Fixture {
    fn new(engine: &Value) -> Self {
        let cargo = json!({"slug": "sim-chat", "runtime_type": "llmcpp", "engine": engine});
        let cargo = serde_json::from_value(cargo).expect("a Cargo");
        let launch = Launch {
            memory_limit_mb: 1024,
            slots: 4,
            allow_weak_sandbox: true,
            ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo)
        };
        Self { dir: tempfile::tempdir().expect("a directory"), launch }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    async fn spawn(&self) -> Worker {
        host::spawn(Path::new(BINARY), self.path(), &self.launch).await.expect("a worker")
    }

    fn run(&self, key: AttemptKey, input: Value) -> ToWorker {
        let request = RunRequest {
            cargo: self.launch.cargo.clone(),
            input,
            artifacts: self.launch.artifacts.clone(),
            continues: None,
            continues_reasoning: None,
            scope: "test".to_owned(),
        };
        ToWorker::Run { key, first_event: 5, request: Box::new(request), reports_steps: false }
    }
}

fn new_key() -> AttemptKey {
    AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 7 }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

async fn next(connection: &mut Connection) -> Option<FromWorker> {
    within(connection.frames.next()).await.map(|frame| frame.expect("a sound frame"))
}

/// Waits for the first frame for which `find` returns a value.
async fn wait<T>(connection: &mut Connection, mut find: impl FnMut(FromWorker) -> Option<T>) -> T {
    loop {
        let frame = next(connection).await.expect("the worker lives");
        if let Some(found) = find(frame) {
            return found;
        }
    }
}

async fn ready(connection: &mut Connection) {
    wait(connection, |frame| matches!(frame, FromWorker::Ready { .. }).then_some(())).await;
}

/// Events of an attempt up to its end.
async fn events_to_the_end(connection: &mut Connection, key: AttemptKey) -> Vec<Numbered<AttemptEvent>> {
    let mut all: Vec<Numbered<AttemptEvent>> = Vec::new();
    loop {
        let wanted = |frame| match frame {
            FromWorker::Events { key: of, events } if of == key => Some(events),
            _ => None,
        };
        all.extend(wait(connection, wanted).await);
        if matches!(all.last().map(|last| &last.event), Some(AttemptEvent::Ended { .. })) {
            return all;
        }
    }
}

fn text(events: &[Numbered<AttemptEvent>]) -> String {
    let token = |event: &Numbered<AttemptEvent>| match &event.event {
        AttemptEvent::Token { content, .. } => Some(content.clone()),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

fn outcome(events: &[Numbered<AttemptEvent>]) -> &Outcome {
    match events.last().map(|last| &last.event) {
        Some(AttemptEvent::Ended { outcome }) => outcome,
        other => panic!("no end: {other:?}"),
    }
}

fn failure(events: &[Numbered<AttemptEvent>]) -> &Failure {
    match outcome(events) {
        Outcome::Failed { failure, .. } => failure,
        Outcome::Completed { .. } => panic!("it completed"),
    }
}

#[tokio::test]
async fn jobs_run_to_their_end_and_the_worker_stops_on_command() {
    let fixture = Fixture::new(&json!({"simulated": true, "load_ms": 40}));
    let mut worker = fixture.spawn().await;
    let hello = next(&mut worker.connection).await;
    let Some(FromWorker::Hello { instance, pid, jobs, .. }) = hello else { panic!("first {hello:?}") };
    assert_eq!((instance, pid, jobs.len()), (fixture.launch.instance, worker.process.pid(), 0));
    let keys = [new_key(), new_key(), new_key()];
    for (key, prompt) in keys.iter().zip(["a b", "c", "d e f"]) {
        let input = json!({"prompt": prompt, "max_tokens": 20, "delay_ms": 1});
        worker.connection.commands.send(fixture.run(*key, input)).await.expect("send");
    }
    let mut ended = std::collections::BTreeMap::<AttemptKey, Vec<_>>::new();
    let mut left = keys.len();
    while left > 0 {
        let frame = next(&mut worker.connection).await.expect("the worker lives");
        let FromWorker::Events { key, events } = frame else { continue };
        left -= events.iter().filter(|event| matches!(event.event, AttemptEvent::Ended { .. })).count();
        ended.entry(key).or_default().extend(events);
    }
    for (key, prompt) in keys.iter().zip(["a b", "c", "d e f"]) {
        let events = &ended[key];
        assert_eq!(text(events), reply(prompt, 20));
        let numbers: Vec<u64> = events.iter().map(|event| event.n).collect();
        assert_eq!(numbers, (5..26).collect::<Vec<_>>(), "numbers continue from the first without a gap");
        let below = numbers.last().expect("events") + 1;
        worker.connection.commands.send(ToWorker::Spooled { key: *key, below }).await.expect("send");
    }
    worker.connection.commands.send(ToWorker::Shutdown { now: false }).await.expect("send");
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(0));
}

#[tokio::test]
async fn a_new_agent_finds_the_same_worker_and_misses_nothing() {
    let fixture = Fixture::new(&json!({"simulated": true}));
    let mut worker = fixture.spawn().await;
    ready(&mut worker.connection).await;
    let key = new_key();
    let input = json!({"prompt": "x y", "max_tokens": 400, "delay_ms": 2});
    worker.connection.commands.send(fixture.run(key, input)).await.expect("send");
    let seen = wait(&mut worker.connection, |frame| match frame {
        FromWorker::Events { events, .. } => events.last().map(|last| last.n),
        _ => None,
    });
    let seen = seen.await;
    worker.connection.commands.send(ToWorker::Spooled { key, below: seen }).await.expect("send");
    let pid = worker.process.pid();
    drop(worker);

    let mut again = host::attach(fixture.path()).await.expect("attach");
    assert_eq!(again.process.pid(), pid);
    let Some(FromWorker::Hello { jobs, ready, .. }) = next(&mut again.connection).await else {
        panic!("no hello")
    };
    assert!(ready && jobs.len() == 1 && jobs[0].key == key && jobs[0].oldest_event <= seen, "{jobs:?}");
    again.connection.commands.send(ToWorker::Replay { key, from: seen }).await.expect("send");
    let rest = events_to_the_end(&mut again.connection, key).await;
    let numbers: Vec<u64> = rest.iter().map(|event| event.n).collect();
    assert_eq!(numbers, (seen..=405).collect::<Vec<_>>());
    let whole = reply("x y", 400);
    assert!(whole.ends_with(&text(&rest)) && !text(&rest).is_empty());
    again.process.kill().expect("kill");
    assert_eq!(within(again.process.wait()).await.expect("wait"), Exit::Gone);
}

#[tokio::test]
async fn the_newest_connection_counts() {
    let fixture = Fixture::new(&json!({"simulated": true}));
    let mut worker = fixture.spawn().await;
    ready(&mut worker.connection).await;
    let mut newer = host::attach(fixture.path()).await.expect("attach");
    assert!(matches!(next(&mut newer.connection).await, Some(FromWorker::Hello { .. })));
    while next(&mut worker.connection).await.is_some() {}
    newer.process.kill().expect("kill");
}

#[tokio::test]
async fn an_invalid_frame_ends_the_connection_and_not_the_worker() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fixture = Fixture::new(&json!({"simulated": true}));
    let mut worker = fixture.spawn().await;
    ready(&mut worker.connection).await;
    for nonsense in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x04{{{{", b"\0\0\0\x02{}"] {
        let mut raw =
            tokio::net::UnixStream::connect(fixture.path().join(SOCKET_FILE)).await.expect("connect");
        raw.write_all(nonsense).await.expect("write");
        let mut rest = Vec::new();
        // Closed by the worker: the end, or a reset if it had more to send.
        let _ = within(raw.read_to_end(&mut rest)).await;
    }
    let mut again = host::attach(fixture.path()).await.expect("attach");
    assert!(matches!(next(&mut again.connection).await, Some(FromWorker::Hello { ready: true, .. })));
    again.process.kill().expect("kill");
}

#[tokio::test]
async fn it_exits_without_a_connection() {
    let mut fixture = Fixture::new(&json!({"simulated": true}));
    fixture.launch.orphan_timeout_s = 1;
    let Worker { mut process, mut connection, .. } = fixture.spawn().await;
    ready(&mut connection).await;
    drop(connection);
    assert_eq!(within(process.wait()).await.expect("wait"), Exit::Code(0));
}

/// In a unit with `ProtectProc=invisible`, a process that is not dumpable is hidden from its own user: an agent that had no processor time
/// after starting a worker could not measure it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn it_is_confined_only_when_its_agent_measures_it() {
    use std::{fs, os::fd::OwnedFd, os::unix::net};
    let fixture = Fixture::new(&json!({"simulated": true}));
    fs::create_dir_all(fixture.path().join("scratch")).expect("a folder");
    let launch = serde_json::to_vec(&fixture.launch).expect("plain data");
    fs::write(fixture.path().join("launch.json"), launch).expect("written");
    let socket = fixture.path().join(SOCKET_FILE);
    let listener = net::UnixListener::bind(&socket).expect("a socket");
    let mut worker = tokio::process::Command::new(BINARY)
        .arg("--dir")
        .arg(fixture.path())
        .stdin(OwnedFd::from(listener))
        .kill_on_drop(true)
        .spawn()
        .expect("a worker");
    let status = format!("/proc/{}/status", worker.id().expect("it runs"));
    let is_confined = || {
        let status = fs::read_to_string(&status).expect("it runs");
        status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]))
    };
    for _ in 0..50 {
        assert!(!is_confined());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _connection = tokio::net::UnixStream::connect(&socket).await.expect("it listens");
    within(async {
        while !is_confined() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    worker.kill().await.expect("kill");
}

#[tokio::test]
async fn a_cancelled_job_ends_for_the_reason_given() {
    let fixture = Fixture::new(&json!({"simulated": true}));
    let mut worker = fixture.spawn().await;
    let key = new_key();
    let input = json!({"prompt": "x", "max_tokens": 100_000, "delay_ms": 5});
    worker.connection.commands.send(fixture.run(key, input)).await.expect("send");
    wait(&mut worker.connection, |frame| matches!(frame, FromWorker::Events { .. }).then_some(())).await;
    let why = Failure::interrupted(FailureCode::DeadlineExceeded, "too late");
    worker.connection.commands.send(ToWorker::Cancel { key, failure: why.clone() }).await.expect("send");
    assert_eq!(failure(&events_to_the_end(&mut worker.connection, key).await), &why);
    worker.process.terminate().expect("terminate");
    drop(worker.connection);
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(0));
}

#[tokio::test]
async fn too_much_output_ends_the_run() {
    let mut fixture = Fixture::new(&json!({"simulated": true, "lie": "flood"}));
    fixture.launch.cargo.limits.max_output_bytes = 20_000;
    let mut worker = fixture.spawn().await;
    let key = new_key();
    worker.connection.commands.send(fixture.run(key, json!({"prompt": "x"}))).await.expect("send");
    let events = events_to_the_end(&mut worker.connection, key).await;
    assert_eq!(failure(&events).code, FailureCode::OutputLimit);
    assert!(text(&events).len() <= 20_000);
    worker.process.kill().expect("kill");
}

#[tokio::test]
async fn a_crash_is_detected() {
    let fixture = Fixture::new(&json!({"simulated": true}));
    let mut worker = fixture.spawn().await;
    let input = json!({"prompt": "x", "crash_after": 3});
    worker.connection.commands.send(fixture.run(new_key(), input)).await.expect("send");
    while next(&mut worker.connection).await.is_some() {}
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Signal(6));
}

#[tokio::test]
async fn a_model_that_does_not_load_is_reported_and_the_worker_exits() {
    let fixture = Fixture::new(&json!({"simulated": true, "load_fails": "out_of_memory"}));
    let mut worker = fixture.spawn().await;
    let code = wait(&mut worker.connection, |frame| match frame {
        FromWorker::LoadFailed { failure } => Some(failure.code),
        _ => None,
    });
    assert_eq!(code.await, FailureCode::OutOfMemory);
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(EXIT_LOAD_FAILED));
    assert!(host::stderr_tail(fixture.path(), 4096).contains("cannot be loaded"));
}

#[tokio::test]
async fn a_directory_too_deep_for_a_socket_address_works() {
    let fixture = Fixture::new(&json!({"simulated": true}));
    let deep = fixture.path().join("d".repeat(60)).join("e".repeat(60)).join("f".repeat(60));
    let mut worker = host::spawn(Path::new(BINARY), &deep, &fixture.launch).await.expect("a worker");
    ready(&mut worker.connection).await;
    let mut again = host::attach(&deep).await.expect("attach");
    assert!(matches!(next(&mut again.connection).await, Some(FromWorker::Hello { .. })));
    worker.process.kill().expect("kill");
}
