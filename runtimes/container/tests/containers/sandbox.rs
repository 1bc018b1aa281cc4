//! The worker, as the agent starts it: in the full sandbox it can use its daemon, and nothing else.

use std::{path::Path, sync::Arc};

use island_protocol::{
    cargo::CargoSpec, event::AttemptEvent, host::SandboxLevel, ids::InstanceId, job::Outcome,
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{self, Worker},
    launch::{ContainerRules, Launch},
};
use serde_json::json;
use uuid::Uuid;

use crate::support::{World, cargo, key, script, within};

const PROGRAM: &str = env!("CARGO_BIN_EXE_island-worker-container");

pub(crate) async fn a_sandboxed_worker_runs_containers(world: Arc<World>) {
    let state = tempfile::tempdir().expect("a folder");
    let (mut worker, level, _) = start(&world, state.path()).await;
    assert_eq!(level, SandboxLevel::Full);
    for round in ["one", "two"] {
        let outcome = run(&mut worker, &world, round).await;
        assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}: {}", log(state.path()));
    }
    // It is stopped, and removes what it created in advance.
    worker.connection.commands.send(ToWorker::Shutdown { now: true }).await.expect("sent");
    within(worker.process.wait()).await.expect("ended");
    world.settle(None, 0).await;
}

/// A program that only sleeps uses no processor time, and this one ignores signals and the end of its input.
const SLEEPER: &str =
    r#"trap '' TERM INT HUP; echo '{"type":"token","content":"asleep"}'; while :; do sleep 1; done"#;

pub(crate) async fn containers_end_with_a_worker_that_is_killed(world: Arc<World>) {
    let state = tempfile::tempdir().expect("a folder");
    let (mut worker, _, _) = start(&world, state.path()).await;
    let outcome = run(&mut worker, &world, "one").await;
    assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}");
    world.one_ahead_is_left().await;
    begin(&mut worker, &world, script(SLEEPER)).await;
    assert!(world.containers(None).await.len() >= 2, "one that waits and one that sleeps");
    worker.process.kill().expect("killed");
    within(worker.process.wait()).await.expect("ended");
    // There is no agent here, and no other worker.
    world.settle(None, 0).await;
}

/// Starts a job, and waits for its first word.
async fn begin(worker: &mut Worker, world: &World, cargo: CargoSpec) {
    let request = RunRequest {
        cargo,
        input: json!({}),
        artifacts: [("model".to_owned(), world.image.clone())].into_iter().collect(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    };
    let key = key();
    let run = ToWorker::Run { key, first_event: 1, request: Box::new(request), reports_steps: false };
    worker.connection.commands.send(run).await.expect("sent");
    loop {
        let frame =
            within(worker.connection.frames.next()).await.expect("the worker is there").expect("a frame");
        if let FromWorker::Events { key: of, events } = frame
            && of == key
            && events.iter().any(|event| matches!(event.event, AttemptEvent::Token { .. }))
        {
            return;
        }
    }
}

fn log(state: &Path) -> String {
    host::stderr_tail(&state.join("w"), 4000)
}

async fn start(world: &World, state: &Path) -> (Worker, SandboxLevel, InstanceId) {
    let mut launch = Launch::new(InstanceId(Uuid::now_v7()), cargo(&["/bin/cargo"]));
    launch.folders = vec![world.files.path().to_owned()];
    launch.containers = ContainerRules { socket: Some(world.socket.clone()), ..ContainerRules::default() };
    let mut worker =
        within(host::spawn(Path::new(PROGRAM), &state.join("w"), &launch)).await.expect("a worker");
    let mut level = SandboxLevel::None;
    loop {
        let frame = within(worker.connection.frames.next()).await;
        match frame.unwrap_or_else(|| panic!("the worker is gone: {}", log(state))).expect("a frame") {
            FromWorker::Hello { sandbox, .. } => level = sandbox.level,
            FromWorker::Ready { version, .. } => {
                assert!(version.contains("Docker"), "{version}");
                return (worker, level, launch.instance);
            }
            FromWorker::LoadFailed { failure } => panic!("{failure:?}: {}", log(state)),
            _ => {}
        }
    }
}

async fn run(worker: &mut Worker, world: &World, text: &str) -> Outcome {
    let request = RunRequest {
        cargo: cargo(&["/bin/cargo"]),
        input: json!({"text": text}),
        artifacts: [("model".to_owned(), world.image.clone())].into_iter().collect(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    };
    let key = key();
    let run = ToWorker::Run { key, first_event: 1, request: Box::new(request), reports_steps: false };
    worker.connection.commands.send(run).await.expect("sent");
    let mut said = String::new();
    loop {
        let frame =
            within(worker.connection.frames.next()).await.expect("the worker is there").expect("a frame");
        let FromWorker::Events { events, .. } = frame else { continue };
        for event in events {
            match event.event {
                AttemptEvent::Token { content, .. } => said.push_str(&content),
                AttemptEvent::Ended { outcome } => {
                    assert_eq!(said.trim(), text, "{outcome:?}");
                    worker
                        .connection
                        .commands
                        .send(ToWorker::Spooled { key, below: event.n + 1 })
                        .await
                        .expect("sent");
                    return outcome;
                }
                _ => {}
            }
        }
    }
}
