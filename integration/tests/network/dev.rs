//! `island dev` itself: what it leaves behind, and what a second start finds.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use island_integration::{
    Network, Options,
    expect::{Story, eventually},
    processes, program,
};
use rustix::process::Signal;
use serde_json::json;

/// Has a job run, so that the Island has a worker; returns the worker's process id.
async fn with_a_worker(network: &Network) -> i32 {
    let client = network.client();
    let input = json!({ "prompt": "one", "max_tokens": 4, "delay_ms": 0 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    processes::workers(network.folder()).first().expect("its worker stays").pid
}

async fn none_left(folder: &Path) {
    eventually("no process of the network is left", || async {
        processes::of(folder).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn stops_everything_and_finds_its_data_again() {
    let network = Network::start();
    let client = network.client();
    let input = json!({ "prompt": "remember me", "max_tokens": 4, "delay_ms": 0 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let first = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    let (key, host) = (network.info("api_key").to_owned(), network.info("host_id").to_owned());
    let (status, folder) = network.stop();
    assert!(status.success(), "{status}");
    assert_eq!(processes::of(folder.path()), [], "no process is left behind");
    assert!(!folder.path().join("dev.json").exists());

    let network = Network::start_in(folder, &Options::default());
    assert_eq!((network.info("api_key"), network.info("host_id")), (key.as_str(), host.as_str()));
    let client = network.client();
    let again = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    assert_eq!(again.text, first.text);
}

/// As after Ctrl-C in the first seconds of the first start, between the accounts and their record.
#[tokio::test]
async fn accounts_that_were_made_and_not_recorded_do_not_stop_the_next_start() {
    let (_, folder) = Network::start().stop();
    fs::remove_file(folder.path().join("accounts.json")).expect("remove the record");
    let network = Network::start_in(folder, &Options::default());
    with_a_worker(&network).await;
}

#[tokio::test]
async fn several_islands_share_the_work() {
    let network = Network::start_with(&Options { islands: 2, ..Options::default() });
    let client = network.client();
    let hosts = client.hosts().await.expect("hosts");
    assert_eq!(hosts.len(), 2);
    // More at once than one Island has slots for.
    let input = json!({ "prompt": "one two three four", "max_tokens": 40, "delay_ms": 25 });
    let mut jobs = Vec::new();
    for _ in 0..12 {
        jobs.push(client.submit_job("sim-chat", input.clone(), 0).await.expect("submit"));
    }
    for job in jobs {
        let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
        assert!(story.is_done(), "{:?}", story.last);
    }
    eventually("both have run some of them", || async {
        let hosts = client.hosts().await.expect("hosts");
        hosts.iter().all(|host| host.status == "online" && host.karma > 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_closed_terminal_stops_everything() {
    let network = Network::start();
    with_a_worker(&network).await;
    let (status, folder) = network.end(Signal::HUP);
    assert!(status.success(), "{status}");
    assert_eq!(processes::of(folder.path()), [], "no process is left behind");
    with_a_worker(&Network::start_in(folder, &Options::default())).await;
}

#[tokio::test]
async fn a_killed_network_leaves_no_process() {
    let network = Network::start_with(&Options { islands: 2, ..Options::default() });
    with_a_worker(&network).await;
    let (_, folder) = network.end(Signal::KILL);
    none_left(folder.path()).await;
    with_a_worker(&Network::start_in(folder, &Options::default())).await;
}

#[tokio::test]
async fn the_next_start_ends_what_an_earlier_one_left() {
    let (_, folder) = Network::start().end(Signal::KILL);
    none_left(folder.path()).await;
    // As one that got no signal: it holds the Island's folder.
    let config = folder.path().join("island-1.toml");
    let mut island = Command::new(program("island-agent"));
    let mut island = island.arg("--config").arg(config).arg("run").spawn().expect("start an Island");
    let pid = island.id().cast_signed();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
    let start = stat.split_whitespace().nth(21).expect("the time of its start");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("this boot");
    let record = format!("{pid}\n{} {start}\n", boot.trim());
    fs::write(folder.path().join("pids/island-1.pid"), record).expect("write the record");

    let network = Network::start_in(folder, &Options::default());
    assert!(island.try_wait().expect("get its state").is_some(), "it was ended");
    with_a_worker(&network).await;
}

#[tokio::test]
async fn the_next_start_ends_no_process_that_only_has_a_recorded_id() {
    let (_, folder) = Network::start().end(Signal::KILL);
    none_left(folder.path()).await;
    let mut other = Command::new("sleep").arg("600").spawn().expect("start sleep");
    let record = format!("{}\nanother-boot 1\n", other.id());
    fs::write(folder.path().join("pids/island-1.pid"), record).expect("write the record");
    let network = Network::start_in(folder, &Options::default());
    assert!(other.try_wait().expect("get its state").is_none(), "it still runs");
    drop(network);
    other.kill().expect("end it");
    other.wait().expect("wait for it");
}

#[tokio::test]
async fn the_next_start_ends_the_workers_of_an_island_that_was_killed_too() {
    let network = Network::start();
    let worker = with_a_worker(&network).await;
    let is_there = |folder: &Path| processes::workers(folder).iter().any(|process| process.pid == worker);
    // Suspended, it does not start the Island again.
    network.signal(Signal::STOP);
    network.kill("island-1");
    let (_, folder) = network.end(Signal::KILL);
    eventually("only the worker is left", || async {
        (processes::of(folder.path()).len() == 1).then_some(())
    })
    .await;
    assert!(is_there(folder.path()), "workers outlive their Island");
    let network = Network::start_in(folder, &Options::default());
    assert!(!is_there(network.folder()));
    with_a_worker(&network).await;
}

/// In a network namespace of its own, which has an address besides those of loopback, and in which everything ends with its first process.
const ON_ANOTHER_MACHINE: &str = r#"
set -e
ip link set lo up
ip address add 10.9.9.9/32 dev lo
"$COORDINATOR" --config "$DIR/init.toml" --fabric-dir "$DIR/fabric" init --store-dir "$DIR/nats" >/dev/null
"$NATS" -a 10.9.9.9 -c "$DIR/fabric/nats.conf" >/dev/null 2>&1 &
exec "$ISLAND" --nats-url nats://10.9.9.9:4222 $PERMISSION dev --fixtures --data-dir "$DIR"
"#;

fn start_on_another_fabric(folder: &Path, permission: &str) -> Child {
    let own = island_testing::workspace().join(".tools/bin/nats-server");
    let namespaces = if rustix::process::geteuid().is_root() { "-npf" } else { "-Urnpf" };
    Command::new("unshare")
        .args([namespaces, "--kill-child", "--mount-proc", "sh", "-c", ON_ANOTHER_MACHINE])
        .env("COORDINATOR", program("island-coordinator"))
        .env("ISLAND", program("island"))
        .env("NATS", if own.is_file() { own } else { "nats-server".into() })
        .env("DIR", folder)
        .env("PERMISSION", permission)
        .env("ISLAND_AGENT_MEASURE", "false")
        .stderr(fs::File::create(folder.join("dev.log")).expect("a log"))
        .stdout(Stdio::null())
        .spawn()
        .expect("run `unshare` of util-linux")
}

#[tokio::test]
async fn a_fabric_on_another_machine_is_used_without_encryption_if_that_is_permitted() {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    let mut network = start_on_another_fabric(folder.path(), "--allow-plaintext");
    eventually("the Island is online", || {
        if let Some(status) = network.try_wait().expect("look at the network") {
            panic!("{status}: {}", fs::read_to_string(folder.path().join("dev.log")).unwrap_or_default());
        }
        let is_ready = folder.path().join("dev.json").exists();
        async move { is_ready.then_some(()) }
    })
    .await;
    network.kill().and_then(|()| network.wait()).expect("end the network");

    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    let mut network = start_on_another_fabric(folder.path(), "");
    let island = folder.path().join("logs/island-1.log");
    eventually("the Island's refusal", || async {
        fs::read_to_string(&island).ok().filter(|log| log.contains("allow_plaintext")).map(drop)
    })
    .await;
    assert!(!folder.path().join("dev.json").exists());
    network.kill().and_then(|()| network.wait()).expect("end the network");
}
