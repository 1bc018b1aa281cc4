//! Containers end with the leave of their owner, whatever ends first: asked of the daemon itself, through the whole network.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
};

use island_integration::{
    Network, Options,
    expect::{Story, eventually},
    processes, program,
};
use island_runtimes_container::testing::{Dockerd, busybox};
use serde_json::{Value, json};

/// Runs for longer than any test.
const PROGRAM: &str =
    "#!/bin/sh\ncat >/dev/null\necho '{\"type\":\"token\",\"content\":\"begun \"}'\nsleep 3600\n";

const ENTRY: &str = r#"
slug = "waits"
name = "Waits"
description = "Runs for an hour."
category = "utility"
runtime_type = "container"
price_per_job = 0.001
required_vram_mb = 0
required_ram_mb = 64
sandbox_tier = "elevated"
model_url = "file://image.tar"

[engine]
command = ["/bin/waits"]

[limits]
timeout_s = 600
max_tokens = 0

[input_schema]
type = "object"

[output_schema]
type = "string"

[example]
input = {}
"#;

/// A network whose Island runs a container; none where no daemon can be started.
async fn running() -> Option<(Dockerd, Network, tempfile::TempDir)> {
    let docker = match Dockerd::start().await {
        Ok(docker) => docker,
        Err(reason) => {
            island_testing::skip("the ends of containers", &reason);
            return None;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let image = busybox().expect("busybox").file("bin/waits", 0o755, PROGRAM.as_bytes()).expect("a program");
    fs::write(folder.path().join("image.tar"), image.finish().expect("an image")).expect("written");
    fs::write(folder.path().join("waits.toml"), ENTRY).expect("written");
    let agent = vec![
        ("CONTAINERS__SOCKET", docker.socket().display().to_string()),
        ("CONTAINERS__MAX_TIER", "elevated".to_owned()),
    ];
    let cargos = Some(folder.path().to_owned());
    let network = Network::start_with(&Options { agent, cargos, ..Options::default() });
    let client = network.client();
    let job = client.submit_job("waits", json!({}), 0).await.expect("submit");
    let story = Story::default().read_tokens(&mut client.job_events(job.id, None), 1).await;
    assert_eq!(story.text, "begun ");
    Some((docker, network, folder))
}

/// Names of all containers of a daemon, also of those that do not run.
fn containers(socket: &Path) -> BTreeSet<String> {
    let mut stream = UnixStream::connect(socket).expect("the daemon runs");
    // With HTTP 1.0 the answer ends with the connection.
    stream.write_all(b"GET /containers/json?all=1 HTTP/1.0\r\nHost: docker\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let found: Vec<Value> = serde_json::from_str(body).expect("a list");
    found.iter().map(|container| container["Id"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn a_pause_removes_every_container() {
    let Some((docker, network, _catalogue)) = running().await else { return };
    assert!(!containers(&docker.socket()).is_empty(), "one runs the job");
    let state = network.folder().join("island-1");
    let paused = Command::new(program("island-agent")).args(["pause", "--state-dir"]).arg(state).status();
    assert!(paused.expect("run island-agent").success());
    eventually("no container is left", || async { containers(&docker.socket()).is_empty().then_some(()) })
        .await;
    drop(network);
    docker.stop().await;
}

#[tokio::test]
async fn no_container_outlives_a_killed_worker_and_a_killed_agent() {
    let Some((docker, network, _catalogue)) = running().await else { return };
    let before = containers(&docker.socket());
    assert!(!before.is_empty(), "one runs the job");
    network.kill("island-1");
    // Not the keepers beside them: their part is to survive this.
    let workers = processes::workers(network.folder());
    for worker in workers.iter().filter(|worker| worker.command.contains("--dir ")) {
        processes::kill(worker.pid);
    }
    // The Island that returns may have the job again, in another container.
    eventually("none of the containers is left", || async {
        containers(&docker.socket()).is_disjoint(&before).then_some(())
    })
    .await;
    drop(network);
    docker.stop().await;
}
