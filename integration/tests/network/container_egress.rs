//! Containers that connect to what their Cargos declare, through the whole network. The Island connects to the internet itself, which a
//! test does not have: forwarding is tested with the proxy; this tests what is refused, reported and left behind.

use std::{fs, path::Path};

use island_integration::{
    Network, Options,
    expect::{Story, eventually, final_job},
    processes,
};
use island_protocol::job::JobStatus;
use island_runtimes_container::testing::{Dockerd, busybox};
use serde_json::json;

/// Prints the results of some requests, then waits for what its input names: that the proxy disappears, or that it returns.
const PROGRAM: &str = r#"#!/bin/sh
input=$(cat)
emit() { printf '{"type":"token","content":"%s "}\n' "$1"; }
connect() { printf "CONNECT $1 HTTP/1.1\r\n\r\n" | nc -w 5 127.0.0.1 3128 2>/dev/null | head -n 1 | cut -d ' ' -f 2; }
for place in declared.test:443 declared.test:80 other.test:443 127.0.0.1:443; do emit "$(connect $place)"; done
emit "$(ls /sys/class/net)"
case $input in *waits*)
    while [ -n "$(connect declared.test:443)" ]; do sleep 0.02; done; emit gone
    while [ "$(connect declared.test:443)" != 502 ]; do sleep 0.02; done; emit back ;;
esac
echo '{"type":"done"}'
"#;

/// A catalogue of one Cargo.
fn catalogue(folder: &Path) {
    let image = busybox().expect("busybox").file("bin/asks", 0o755, PROGRAM.as_bytes()).expect("a program");
    fs::write(folder.join("image.tar"), image.finish().expect("an image")).expect("written");
    let entry = r#"
slug = "asks"
name = "Asks"
description = "Asks the proxy."
category = "utility"
runtime_type = "container"
price_per_job = 0.001
required_vram_mb = 0
required_ram_mb = 64
sandbox_tier = "elevated"
model_url = "file://image.tar"

[engine]
command = ["/bin/asks"]
egress = ["declared.test:443"]

[limits]
timeout_s = 60
max_tokens = 0

[input_schema]
type = "object"

[output_schema]
type = "string"

[example]
input = {}
"#;
    fs::write(folder.join("asks.toml"), entry).expect("written");
}

/// A network whose Island has Docker and allows this; none where that cannot be.
async fn start(egress: &str) -> Option<(Dockerd, Network, tempfile::TempDir)> {
    let agent = island_integration::program("island-agent");
    let built = agent.parent().expect("a folder").join("../cargos/built/island-forwarder");
    let daemon = if built.is_file() {
        Dockerd::start().await
    } else {
        Err("island-forwarder is not built; `make cargos` builds it".to_owned())
    };
    match daemon {
        Ok(docker) => {
            let folder = tempfile::tempdir().expect("a folder");
            catalogue(folder.path());
            let agent = vec![
                ("CONTAINERS__SOCKET", docker.socket().display().to_string()),
                ("CONTAINERS__MAX_TIER", "elevated".to_owned()),
                ("CONTAINERS__EGRESS", egress.to_owned()),
            ];
            let cargos = Some(folder.path().to_owned());
            Some((docker, Network::start_with(&Options { agent, cargos, ..Options::default() }), folder))
        }
        Err(reason) => {
            island_testing::skip("the way out of containers", &reason);
            None
        }
    }
}

/// Ways out that there are on the Island.
fn ways_out(network: &Network) -> usize {
    fs::read_dir(network.folder().join("island-1/egress")).expect("the folder is there").count()
}

#[tokio::test]
async fn a_program_is_let_out_where_its_cargo_says_and_its_owner_allows() {
    let Some((docker, network, _catalogue)) = start(r#"["declared.test"]"#).await else { return };
    let client = network.client();
    let job = client.submit_job("asks", json!({}), 0).await.expect("submit");
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    assert!(story.is_done(), "{:?}", story.last);
    // The name does not resolve anywhere; the port, the other host and the address are rejected before that.
    assert_eq!(story.text, "502 403 403 400 lo ");
    let log = eventually("the log is whole", || async {
        let logs = fs::read_dir(network.folder().join("island-1/job-logs")).ok()?;
        let texts: Vec<_> = logs.filter_map(|log| fs::read_to_string(log.ok()?.path()).ok()).collect();
        Some(texts.concat()).filter(|text| text.matches("egress: ").count() == 4)
    })
    .await;
    assert!(
        log.contains("egress: CONNECT declared.test:443: refused: declared.test:443 cannot be resolved"),
        "{log}"
    );
    assert!(log.contains("egress: CONNECT other.test:443: refused: the Cargo does not declare"), "{log}");
    eventually("nothing is left", || async { (ways_out(&network) == 0).then_some(()) }).await;
    drop(network);
    docker.stop().await;
}

#[tokio::test]
async fn a_job_whose_agent_is_killed_gets_its_way_out_back() {
    let Some((docker, network, _catalogue)) = start("declared").await else { return };
    let client = network.client();
    let job = client.submit_job("asks", json!({"waits": true}), 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 5).await;
    let workers = processes::workers(network.folder());
    network.kill("island-1");
    let story = story.read_to_end(&mut events).await;
    assert_eq!(story.text, "502 403 403 400 lo gone back ", "{:?}", story.last);
    story.assert_whole();
    assert_eq!(processes::workers(network.folder()), workers, "the same worker");
    eventually("nothing is left", || async { (ways_out(&network) == 0).then_some(()) }).await;
    drop(network);
    docker.stop().await;
}

#[tokio::test]
async fn where_the_owner_allows_nothing_the_job_waits_and_says_why() {
    for egress in ["none", r#"["declared.test:80"]"#] {
        let Some((docker, network, _catalogue)) = start(egress).await else { return };
        let client = network.client();
        let job = client.submit_job("asks", json!({}), 0).await.expect("submit");
        let waiting = eventually("the job waits", || async {
            client.job(job.id).await.expect("read the job").waiting.filter(|reasons| !reasons.is_empty())
        })
        .await;
        assert_eq!(waiting.get("no_egress"), Some(&json!(1)), "{egress}: {waiting:?}");
        client.cancel_job(job.id).await.expect("cancel");
        assert_eq!(final_job(&client, job.id).await.status, JobStatus::Cancelled);
        drop(network);
        docker.stop().await;
    }
}
