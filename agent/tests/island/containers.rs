//! What the agent does about containers that workers left, with a program in the place of the container worker that records how it is run.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use island_protocol::ids::InstanceId;
use island_runtimes_worker::launch::{LAUNCH_FILE, Launch};

use crate::fixture::{Island, assignment, wait_for, workers_dir};

/// Puts a program in the folder of programs that answers probes as `probe` does, and fails the first removal.
fn install(programs: &Path, probe: &str) {
    let log = programs.join("removals");
    let script = format!(
        "#!/bin/sh\ncase $1 in\n--probe) {probe} ;;\n--reap) echo \"$@\" >> {log}; [ $(wc -l < {log}) -gt 1 ] ;;\nesac\n",
        log = log.display()
    );
    let path = programs.join("island-worker-container");
    fs::write(&path, script).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// How often the program was run to remove containers of others than the workers that live.
fn removals(programs: &Path) -> usize {
    let log = fs::read_to_string(programs.join("removals")).unwrap_or_default();
    log.lines().filter(|line| line.starts_with("--reap ") && line.ends_with("/w")).count()
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
    let mut cargo = assignment(serde_json::Value::Null).cargo;
    cargo.runtime_type = island_protocol::cargo::RuntimeType::Container;
    let left = island.path("w/left-behind");
    fs::create_dir_all(&left).expect("a folder");
    let launch = Launch::new(InstanceId(uuid::Uuid::new_v4()), cargo);
    fs::write(left.join(LAUNCH_FILE), serde_json::to_vec(&launch).expect("json")).expect("write");
    island.start_agent().await;
    wait_for("another try after the first has failed", || (removals(programs.path()) == 2).then_some(()))
        .await;
}
