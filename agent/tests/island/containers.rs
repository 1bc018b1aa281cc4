//! What the agent does about containers that workers left, with a program in the place of the container worker that records how it is run.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use island_protocol::{
    cargo::RuntimeType,
    fabric::Assignment,
    ids::InstanceId,
    job::{FailureCode, Fault},
};
use island_runtimes_worker::launch::{LAUNCH_FILE, Launch};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::{
    fixture::{Island, assignment, kill_worker, wait_for, workers_dir},
    stories::failure,
};

/// Puts a program in the folder of programs that answers probes as `probe` does, fails the first of equal removals, and
/// runs jobs as the scripted engine. No removal ends while the folder has a file `slow`, as with a daemon that does not
/// answer.
fn install(programs: &Path, probe: &str) {
    let worker = workers_dir().join("island-worker-simulated");
    let (worker, log, slow) = (worker.display(), programs.join("removals"), programs.join("slow"));
    let (log, slow) = (log.display(), slow.display());
    // The keeper beside a worker is left out: the agent must remove containers without it.
    let script = format!(
        r#"#!/bin/sh
case "$*" in
--probe*) {probe} ;;
--dir*) exec {worker} "$@" ;;
--reap*--when-closed) exec cat >/dev/null ;;
--reap*)
  echo "$*" >> {log}
  while [ -e {slow} ]; do sleep 0.1; done
  [ "$(grep -c -x -F -e "$*" {log})" -gt 1 ] ;;
esac
"#
    );
    let path = programs.join("island-worker-container");
    fs::write(&path, script).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// How often the program was run to remove containers of others than the workers that live.
fn removals(programs: &Path) -> usize {
    runs(programs, |line| line.ends_with("/w"))
}

/// How often it was run to remove containers, with arguments that are meant.
fn runs(programs: &Path, is_meant: impl Fn(&str) -> bool) -> usize {
    let log = fs::read_to_string(programs.join("removals")).unwrap_or_default();
    log.lines().filter(|line| line.starts_with("--reap ") && is_meant(line)).count()
}

/// A job in a container that runs until it is cancelled.
fn endless() -> Assignment {
    let mut job = assignment(json!({"prompt": "a", "max_tokens": 1_000_000, "delay_ms": 10}));
    (job.cargo.runtime_type, job.cargo.engine) = (RuntimeType::Container, Value::Null);
    job
}

/// The processes of workers, without programs that remove what workers left.
fn workers(island: &Island) -> Vec<Pid> {
    let is_worker = |pid: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--dir")
    };
    island.workers().into_iter().filter(is_worker).collect()
}

const WORKS: &str = r#"echo '{"kind":"container","version":"1","devices":[],"sandbox":{"level":"full"}}'"#;

fn programs() -> tempfile::TempDir {
    let programs = tempfile::tempdir().expect("a folder");
    let honest = workers_dir().join("island-worker-simulated");
    symlink(honest, programs.path().join("island-worker-simulated")).expect("a link");
    programs
}

#[tokio::test]
async fn containers_that_workers_left_are_removed_as_often_as_it_takes() {
    let programs = programs();
    install(programs.path(), WORKS);
    let _island = Island::with_programs(programs.path()).await;
    wait_for("another try after the first has failed", || (removals(programs.path()) == 2).then_some(()))
        .await;
}

#[tokio::test]
async fn containers_of_a_worker_that_was_found_dead_are_removed_without_a_probe_that_works() {
    let programs = programs();
    // The daemon is away.
    install(programs.path(), "exit 1");
    let mut island = Island::with_programs(programs.path()).await;
    island.kill_agent();
    assert_eq!(removals(programs.path()), 0, "most machines have no daemon");
    let mut cargo = assignment(Value::Null).cargo;
    cargo.runtime_type = RuntimeType::Container;
    let left = island.path("w/left-behind");
    fs::create_dir_all(&left).expect("a folder");
    let launch = Launch::new(InstanceId(uuid::Uuid::new_v4()), cargo);
    fs::write(left.join(LAUNCH_FILE), serde_json::to_vec(&launch).expect("json")).expect("write");
    island.start_agent().await;
    wait_for("another try after the first has failed", || (removals(programs.path()) == 2).then_some(()))
        .await;
}

#[tokio::test]
async fn containers_are_removed_after_each_end_of_a_worker_as_often_as_it_takes() {
    let programs = programs();
    install(programs.path(), WORKS);
    let island = Island::with_programs(programs.path()).await;
    let key = island.run(&endless()).await;
    island.coordinator.tokens(key, 1).await;
    let of_it = format!("--of {}", island.launches()[0]["instance"].as_str().expect("its id"));
    kill_worker(workers(&island)[0]).await;
    let tries = || runs(programs.path(), |line| line.ends_with(&of_it));
    wait_for("another try after the first has failed", || (tries() == 2).then_some(())).await;
}

#[tokio::test]
async fn a_pause_waits_for_no_removal_of_containers() {
    let programs = programs();
    install(programs.path(), WORKS);
    let island = Island::with_programs(programs.path()).await;
    // No container is started meanwhile.
    wait_for("the removals of the start", || (removals(programs.path()) == 2).then_some(())).await;
    fs::write(programs.path().join("slow"), "").expect("write");
    let tries = || runs(programs.path(), |line| line.contains(" --of "));
    // The second pause is enforced although the removal of the first one has not ended.
    for pauses in 1..=2 {
        let key = island.run(&endless()).await;
        island.coordinator.tokens(key, 1).await;
        assert!(island.agent(&["pause"]).starts_with("paused"));
        let end = failure(&island.coordinator.end(key).await);
        assert_eq!(end, (Fault::Interrupted, FailureCode::HandedBack));
        wait_for("the worker to end", || workers(&island).is_empty().then_some(())).await;
        wait_for("a removal to begin", || (tries() >= pauses).then_some(())).await;
        assert_eq!(island.agent(&["resume"]), "working\n");
    }
    fs::remove_file(programs.path().join("slow")).expect("removed");
    wait_for("both removals to be tried again", || (tries() >= 4).then_some(())).await;
}
