//! An owner reclaims the machine, and no job fails because of it.

use std::{path::Path, process::Command, time::Instant};

use island_coordinator_client::{
    JobFilter,
    protocol::{
        host::{ControlState, Order},
        job::JobStatus,
    },
};
use island_integration::{
    Network, Options,
    expect::{Story, eventually, final_job},
    processes, program,
};
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    metrics::v1::{metric::Data, number_data_point::Value as Number},
};
use prost::Message as _;
use serde_json::{Value, json};

/// Runs `island-agent` with these arguments for the Island in `state` and returns its output.
fn agent(state: &Path, command: &[&str]) -> String {
    let ran = Command::new(program("island-agent")).args(command).arg("--state-dir").arg(state).output();
    let ran = ran.expect("run island-agent");
    let (output, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {errors}");
    output.into_owned()
}

fn status(state: &Path) -> Value {
    serde_json::from_str(&agent(state, &["status", "--json"])).expect("a status")
}

/// The status, once the agent runs.
fn try_status(state: &Path) -> Option<Value> {
    let ran =
        Command::new(program("island-agent")).args(["status", "--json", "--state-dir"]).arg(state).output();
    serde_json::from_slice(&ran.ok()?.stdout).ok()
}

fn islands(network: &Network) -> [std::path::PathBuf; 2] {
    ["island-1", "island-2"].map(|name| network.folder().join(name))
}

/// The Island of the two in which a worker runs a job, and the other.
async fn busy(network: &Network) -> [std::path::PathBuf; 2] {
    eventually("an Island runs the job", || async {
        let [one, two] = islands(network);
        let works = |state: &Path| status(state)["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty());
        match (works(&one), works(&two)) {
            (true, _) => Some([one, two]),
            (_, true) => Some([two, one]),
            _ => None,
        }
    })
    .await
}

/// `doctor` sends a job through the whole network and reports each step.
#[tokio::test]
async fn a_doctor_runs_a_real_job() {
    let network = Network::start();
    let state = network.folder().join("island-1");
    let looked = || {
        let ran = Command::new(program("island-agent")).arg("doctor").arg("--state-dir").arg(&state).output();
        let output = String::from_utf8(ran.expect("run island-agent").stdout).expect("text");
        let coordinator = output.lines().find(|line| line.contains("coordinator  ")).unwrap_or_default();
        assert!(coordinator.starts_with("ok"), "the one that it enrolled with: {coordinator}");
        let line =
            output.lines().find(|line| line.contains("test job")).unwrap_or_else(|| panic!("{output}"));
        line.to_owned()
    };
    let passed = looked();
    assert!(passed.starts_with("ok"), "{passed}");
    assert!(passed.contains("llm-chat: submitted after") && passed.contains("tokens/s"), "{passed}");
    let again = looked();
    assert!(again.starts_with("ok") && again.ends_with(" s ago)"), "one a minute: {again}");
    let jobs = network.client().jobs(&JobFilter::default(), 10, 0).await.expect("jobs");
    assert!(jobs.data.is_empty(), "it is not listed: {jobs:?}");

    agent(&state, &["pause"]);
    let paused = looked();
    assert!(paused.starts_with('-') && paused.contains("accepts no jobs now"), "{paused}");
}

#[tokio::test]
async fn an_island_tries_itself_out_once_and_starts_again_with_what_it_found() {
    let agent = vec![("MEASURE", "true".to_owned())];
    let network = Network::start_with(&Options { agent, ..Options::default() });
    let (client, state) = (network.client(), network.folder().join("island-1"));
    let kept = state.join("measured.json");
    eventually("it was tried out", || async { kept.exists().then_some(()) }).await;
    let written = std::fs::read(&kept).expect("read");
    let speed = client.hosts().await.expect("hosts")[0].tokens_per_second;
    assert!(speed.is_some_and(|speed| speed > 0.0), "the coordinator saw its job: {speed:?}");

    let before = network.pid("island-1");
    network.kill("island-1");
    eventually("it is back", || async { (network.pid("island-1") != before).then_some(()) }).await;
    let again = eventually("it is registered", || async {
        let ran = Command::new(program("island-agent"))
            .args(["status", "--json"])
            .arg("--state-dir")
            .arg(&state)
            .output();
        let status: Value = serde_json::from_slice(&ran.ok()?.stdout).ok()?;
        (status["connected"] == true && status["measured"].is_object()).then_some(status)
    })
    .await;
    assert!(again["measured"]["memory_mb_s"].as_u64().is_some_and(|speed| speed > 0), "{again}");
    assert_eq!(std::fs::read(&kept).expect("read"), written, "once is enough");
}

/// A collector that passes on what Islands send.
async fn collector() -> (String, tokio::sync::mpsc::UnboundedReceiver<ExportMetricsServiceRequest>) {
    let (sender, received) = tokio::sync::mpsc::unbounded_channel();
    let take = async move |headers: axum::http::HeaderMap, body: axum::body::Bytes| {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let _ = sender.send(ExportMetricsServiceRequest::decode(body).expect("a message of OTLP"));
    };
    let router = axum::Router::new().route("/v1/metrics", axum::routing::post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

#[tokio::test]
async fn a_collector_is_sent_what_there_is_to_see() {
    let (url, mut received) = collector().await;
    let agent = vec![("OTLP__ENDPOINT", url), ("OTLP__EVERY_S", "1".to_owned())];
    let network = Network::start_with(&Options { agent, ..Options::default() });
    let client = network.client();
    let input = json!({ "prompt": "once upon a time", "max_tokens": 3, "delay_ms": 1 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    final_job(&client, job.id).await;
    let paid = async {
        loop {
            let message = received.recv().await.expect("the collector runs");
            let resource = message.resource_metrics.into_iter().next().expect("one Island");
            let resource_text = format!("{:?}", resource.resource);
            assert!(
                resource_text.contains("island-agent") && resource_text.contains("service.instance.id"),
                "{resource_text}"
            );
            let metrics = resource.scope_metrics.into_iter().next().expect("one scope").metrics;
            let paid =
                metrics.into_iter().find(|metric| metric.name == "island.paid_jobs").expect("a counter");
            let Some(Data::Sum(sum)) = paid.data else { panic!("no sum: {paid:?}") };
            assert!(sum.is_monotonic, "a counter");
            if sum.data_points[0].value == Some(Number::AsDouble(1.0)) {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), paid).await.expect("the paid job is reported");
}

#[tokio::test]
async fn a_reply_goes_on_elsewhere_when_the_owner_comes_back() {
    let network = Network::start_with(&Options { islands: 2, ..Options::default() });
    let client = network.client();
    let before = client.account().await.expect("account").credits;
    let input = json!({ "prompt": "once upon a time", "max_tokens": 600, "delay_ms": 20 });
    let job = client.submit_job("sim-story", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 5).await;
    let [left, other] = busy(&network).await;

    assert!(!processes::workers(&left).is_empty(), "a worker is there to be stopped");
    let start = Instant::now();
    let output = agent(&left, &["pause", "1h"]);
    eventually("its workers are gone", || async { processes::workers(&left).is_empty().then_some(()) }).await;
    println!("the machine was free {} ms after `island-agent pause`", start.elapsed().as_millis());
    assert!(output.starts_with("paused: until"), "{output}");
    // The updater reads these names.
    assert_eq!(status(&left)["order"]["order"], "pause");

    let story = story.read_to_end(&mut events).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    let words: Vec<String> =
        (0..600).map(|n| format!("{}{n}", ["once", "upon", "a", "time"][n % 4])).collect();
    let whole = words.join(" ");
    assert_eq!(story.text, whole, "not a word twice, and none missing");
    let job = final_job(&client, job.id).await;
    assert_eq!(
        (job.status, job.usage.map(|usage| usage.completion_tokens)),
        (JobStatus::Completed, Some(600))
    );
    assert!(client.account().await.expect("account").credits < before, "paid, once");
    let earned = |state: &Path| status(state)["earned"]["jobs"].as_u64();
    eventually("the owner of the Island that completed it is paid", || async {
        (earned(&other) == Some(1)).then_some(())
    })
    .await;
    assert_eq!(earned(&left), Some(0));
    eventually("everybody sees that it is paused", || async {
        client.hosts().await.expect("hosts").iter().any(|host| host.status == "paused").then_some(())
    })
    .await;
    assert_eq!(agent(&left, &["resume"]), "working\n");
    eventually("it is back", || async {
        client.hosts().await.expect("hosts").iter().all(|host| host.status == "online").then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_owner_gives_orders_remotely_and_a_local_one_overrides_them() {
    let agent = vec![("CONTROL__ALLOW_REMOTE", "true".to_owned())];
    let network = Network::start_with(&Options { agent, ..Options::default() });
    let (client, owner) = (network.client(), network.owner());
    let (id, state) = (network.info("host_id").parse().expect("an id"), network.folder().join("island-1"));
    let seen = |expected: &'static str| {
        let client = &client;
        eventually("the network has this state of the Island", move || async move {
            client.hosts().await.ok()?.iter().any(|host| host.status == expected).then_some(())
        })
    };

    let paused = owner.order_host(id, Order::Pause).await.expect("an answer").control;
    assert_eq!(paused, ControlState { allowed: true, order: Some(Order::Pause), remote: true });
    seen("paused").await;
    let input = json!({ "prompt": "waits", "max_tokens": 2, "delay_ms": 1 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let shown = status(&state);
    assert_eq!(
        (&shown["verdict"]["cause"], &shown["control"]["remote"]),
        (&json!("paused"), &json!(true)),
        "{shown}"
    );
    assert!(self::agent(&state, &["status"]).contains("ordered remotely"), "in words");

    // It is on disk before it is answered.
    let before = network.pid("island-1");
    network.kill("island-1");
    eventually("it is back", || async { (network.pid("island-1") != before).then_some(()) }).await;
    eventually("it is still paused", || async {
        let shown = try_status(&state)?;
        (shown["connected"] == true && shown["control"]["order"] == "pause").then_some(())
    })
    .await;

    let resumed = owner.order_host(id, Order::Resume).await.expect("an answer").control;
    assert_eq!(resumed, ControlState { allowed: true, order: None, remote: false });
    assert_eq!(final_job(&client, job.id).await.status, JobStatus::Completed);

    // A local pause ends the remote order, and no remote one ends it.
    owner.order_host(id, Order::Drain).await.expect("an answer");
    seen("draining").await;
    self::agent(&state, &["pause"]);
    let still = owner.order_host(id, Order::Resume).await.expect("an answer").control;
    assert_eq!(still, ControlState { allowed: true, order: Some(Order::Pause), remote: false });
    seen("paused").await;
    assert_eq!(self::agent(&state, &["resume"]), "working\n", "nothing remote is left");
    seen("online").await;
}

#[tokio::test]
async fn an_island_refuses_remote_orders_unless_its_settings_allow_them() {
    let network = Network::start();
    let id = network.info("host_id").parse().expect("an id");
    let refused = network.owner().order_host(id, Order::Pause).await.expect_err("not allowed");
    assert_eq!(refused.code(), Some("remote_control_disabled"), "{refused:?}");
    let other = network.client().order_host(id, Order::Pause).await.expect_err("of another account");
    assert_eq!(other.code(), Some("host_not_found"), "{other:?}");
    let state = network.folder().join("island-1");
    assert_eq!(status(&state)["control"], json!({ "allowed": false }));
}

#[tokio::test]
async fn what_cannot_go_on_elsewhere_begins_there_anew_or_is_refunded() {
    let network = Network::start_with(&Options { islands: 2, ..Options::default() });
    let client = network.client();
    let before = client.account().await.expect("account").credits;
    // Nothing was delivered yet: it starts again elsewhere, unnoticed.
    let silent = json!({ "prompt": "slow to begin", "max_tokens": 2, "delay_ms": 5000 });
    let job = client.submit_job("sim-chat", silent, 0).await.expect("submit");
    let [left, _] = busy(&network).await;
    agent(&left, &["pause"]);
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    story.assert_whole();
    assert!(story.is_done(), "{:?}", story.last);
    agent(&left, &["resume"]);
    let paid = client.account().await.expect("account").credits;
    assert!(paid < before);
    // Delivered and not to be continued: it ends, and costs nothing.
    let input = json!({ "prompt": "half a word", "max_tokens": 500, "delay_ms": 20 });
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 2).await;
    let [left, _] = busy(&network).await;
    agent(&left, &["pause"]);
    let story = story.read_to_end(&mut events).await;
    assert_eq!(story.error_code(), Some("handed_back"));
    assert_eq!(final_job(&client, job.id).await.status, JobStatus::Failed);
    assert_eq!(client.account().await.expect("account").credits, paid, "refunded in full");
}

#[tokio::test]
async fn draining_lets_what_runs_finish() {
    let network = Network::start();
    let client = network.client();
    let state = network.folder().join("island-1");
    let input = json!({ "prompt": "on and on", "max_tokens": 60, "delay_ms": 20 });
    let job = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let mut events = client.job_events(job.id, None);
    let story = Story::default().read_tokens(&mut events, 2).await;
    assert!(agent(&state, &["drain"]).starts_with("finishing"));
    let waits = client.submit_job("sim-chat", input, 0).await.expect("submit");
    let story = story.read_to_end(&mut events).await;
    assert!(story.is_done(), "{:?}", story.last);
    eventually("the next job waits", || async {
        (client.job(waits.id).await.expect("job").status == JobStatus::Pending).then_some(())
    })
    .await;
    assert!(agent(&state, &["status"]).contains("requested by the owner"));
    agent(&state, &["resume"]);
    let story = Story::default().read_to_end(&mut client.job_events(waits.id, None)).await;
    assert!(story.is_done(), "{:?}", story.last);
}

#[tokio::test]
async fn a_machine_becomes_an_island_with_one_command_and_a_code() {
    let network = Network::start_with(&Options { islands: 0, ..Options::default() });
    let client = network.client();
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("a folder");
    let state = folder.path().join("state");
    // The service may run already: it waits for its owner.
    let mut service = Agent::start(&state, network.info("api_url"), &[]);
    let asked = Command::new(program("island-agent")).arg("status").arg("--state-dir").arg(&state).output();
    let output = String::from_utf8(asked.expect("run island-agent").stderr).expect("text");
    assert!(output.contains("not enrolled; run `island-agent enroll --coordinator URL`"), "{output}");
    let mut enrolling = Agent::start(&state, network.info("api_url"), &["enroll"]);
    let line = enrolling.line("island hosts pair");
    let code = line.rsplit(' ').next().expect("a code").to_owned();
    assert_eq!(code.replace('-', "").len(), 6, "{line}");

    let wrong = client.pair_host("AAA-AAA").await.expect_err("nobody shows it");
    assert_eq!(wrong.code(), Some("pairing_not_found"));
    let host = client.pair_host(&code.to_lowercase()).await.expect("paired");
    assert!(enrolling.wait().success(), "{}", enrolling.rest());
    assert_eq!(client.pair_host(&code).await.expect_err("once").code(), Some("pairing_not_found"));

    let input = json!({ "prompt": "first job", "max_tokens": 3, "delay_ms": 0 });
    let job = client.submit_job("sim-chat", input.clone(), 0).await.expect("submit");
    let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
    assert!(story.is_done(), "{:?}", story.last);
    assert!(client.hosts().await.expect("hosts").iter().any(|known| known.id == host.id));

    let mut leaving = Agent::start(&state, network.info("api_url"), &["leave"]);
    assert!(leaving.wait().success(), "{}", leaving.rest());
    assert!(client.hosts().await.expect("hosts").is_empty());
    let job = client.submit_job("sim-chat", input, 0).await.expect("submit");
    eventually("the job waits for an Island", || async {
        (client.job(job.id).await.expect("job").status == JobStatus::Pending).then_some(())
    })
    .await;
    service.stop();
}

#[tokio::test]
async fn an_island_whose_coordinator_is_away_says_so() {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("a folder");
    let (state, key) = (folder.path().join("state"), folder.path().join("key"));
    std::fs::write(&key, "isl_0123456789").expect("write");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", nobody.local_addr().expect("its address"));
    drop(nobody);
    let key = key.to_str().expect("text");
    let mut service = Agent::start(&state, &url, &["--api-key-file", key]);
    let status = eventually("it answers its owner", || async {
        let asked = Command::new(program("island-agent"))
            .args(["status", "--json", "--state-dir"])
            .arg(&state)
            .output();
        serde_json::from_slice::<Value>(&asked.ok()?.stdout).ok()
    })
    .await;
    assert_eq!((&status["connected"], &status["api_url"]), (&json!(false), &json!(url)));
    service.stop();
    assert!(!state.join("control.sock").exists(), "it stopped in order");
}

/// `island-agent`, with what it prints.
struct Agent {
    process: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Agent {
    fn start(state: &Path, api_url: &str, command: &[&str]) -> Self {
        use std::io::BufRead as _;
        let mut process = Command::new(program("island-agent"))
            .args(command)
            .arg("--state-dir")
            .arg(state)
            .args(["--api-url", api_url, "--simulated", "true", "--allow-weak-sandbox", "true"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("start island-agent");
        let output = process.stdout.take().expect("its output");
        Self { process, lines: std::io::BufReader::new(output).lines() }
    }

    /// The first line that holds `text`.
    fn line(&mut self, text: &str) -> String {
        let found = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("it never printed {text}")).trim().to_owned()
    }

    fn rest(&mut self) -> String {
        self.lines.by_ref().map_while(Result::ok).collect::<Vec<_>>().join("\n")
    }

    fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().expect("its end")
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.process.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("stop it");
        self.wait();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
