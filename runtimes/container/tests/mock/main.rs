//! The engine against a daemon that is not there, is not fit, or goes away: a few lines of HTTP on a Unix socket.

mod server;

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, FailureCode, Fault, Outcome},
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime, WorkCounter};
use island_runtimes_container::{
    Containers, Settings,
    daemon::{self, Daemon},
    labels::{ISLAND, Maker, WORKER},
    orphans::{self, OrphanError},
};
use island_runtimes_worker::{
    host::Orphans,
    launch::{ContainerRules, ProbeReport},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::server::{MockResponse, Request, Server};

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A fit daemon's answers to the usual requests.
fn usual(request: &Request) -> MockResponse {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/version") => {
            MockResponse::Json(200, json!({"Version": "28.0.0", "ApiVersion": "1.48", "Components": []}))
        }
        ("GET", "/info") => MockResponse::Json(
            200,
            json!({"OSType": "linux", "MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true,
                   "SecurityOptions": ["name=seccomp,profile=builtin"]}),
        ),
        ("GET", "/containers/json") => MockResponse::Json(200, json!([])),
        ("DELETE", _) => MockResponse::Json(204, Value::Null),
        _ => MockResponse::Json(
            500,
            json!({"message": format!("{} {} is not in the script", request.method, request.path)}),
        ),
    }
}

async fn engine(server: &Server, registries: &[&str]) -> Containers {
    let rules = ContainerRules {
        ahead: 0,
        registries: registries.iter().map(ToString::to_string).collect(),
        ..ContainerRules::default()
    };
    let maker = Maker { island: "ours".to_owned(), worker: InstanceId(Uuid::nil()) };
    let daemon = Daemon::connect(server.socket()).await.expect("a daemon");
    Containers::start(daemon, Settings { rules, maker, slots: 1, egress_dir: None, gpus: Vec::new() })
}

fn cargo(url: &str) -> CargoSpec {
    let cargo = json!({
        "slug": "x", "runtime_type": "container", "engine": {"command": ["/bin/x"]},
        "artifacts": [{"name": "model", "url": url}],
    });
    serde_json::from_value(cargo).expect("a Cargo")
}

async fn play(engine: &Containers, cargo: CargoSpec) -> Outcome {
    play_with(engine, cargo, BTreeMap::new()).await
}

async fn play_with(engine: &Containers, cargo: CargoSpec, artifacts: BTreeMap<String, PathBuf>) -> Outcome {
    let context = RunContext {
        key: AttemptKey { job_id: JobId(Uuid::nil()), attempt: 1, epoch: 7 },
        events: EventSink::channel().0,
        cancel: CancellationToken::new(),
        scratch: "/nowhere".into(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    };
    let request = RunRequest {
        cargo,
        input: json!({"a": 1}),
        artifacts,
        continues: None,
        continues_reasoning: None,
        scope: String::new(),
    };
    tokio::time::timeout(Duration::from_mins(1), engine.run(request, context)).await.expect("it ends")
}

fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed { failure, .. } => failure,
        completed @ Outcome::Completed { .. } => panic!("it completed: {completed:?}"),
    }
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("docker.sock");
    let reason = Daemon::connect(&missing).await.expect_err("nobody").reason;
    assert!(
        reason.contains(&missing.display().to_string()) && reason.contains("no container daemon"),
        "{reason}"
    );
    drop(std::os::unix::net::UnixListener::bind(&missing).expect("a socket"));
    let reason = Daemon::connect(&missing).await.expect_err("nobody").reason;
    assert!(reason.contains("not running"), "{reason}");
    assert_eq!(daemon::socket(Some(Path::new("/x"))).expect("as named"), Path::new("/x"));
}

#[tokio::test]
async fn a_daemon_that_makes_no_sense_is_not_used() {
    for answer in [
        MockResponse::Raw(b"NATS is this\r\n\r\n".to_vec()),
        MockResponse::Close,
        MockResponse::Json(200, json!([])),
        MockResponse::Json(500, json!({})),
    ] {
        let server = Server::start(move |_| answer.clone());
        let reason = Daemon::connect(server.socket()).await.expect_err("nonsense").reason;
        assert!(reason.contains("sent an invalid answer"), "{reason}");
    }
    let server = Server::start(|request| match request.path.as_str() {
        "/info" => MockResponse::Json(
            200,
            json!({"MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true, "SecurityOptions": []}),
        ),
        _ => usual(request),
    });
    let reason = Daemon::connect(server.socket()).await.expect_err("unfit").reason;
    assert!(reason.contains("seccomp"), "{reason}");
}

#[tokio::test]
async fn only_allowed_registries_and_only_by_digest_are_pulled_from() {
    let server = Server::start(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", path) if path.starts_with("/images/") => {
            MockResponse::Json(404, json!({"message": "no such image"}))
        }
        ("POST", "/images/create") => {
            MockResponse::Json(200, json!({"error": "x", "errorDetail": {"message": "no such host"}}))
        }
        _ => usual(request),
    });
    let engine = engine(&server, &["registry.example/team"]).await;
    let refused = failure(play(&engine, cargo(&format!("docker://registry.example/other@{DIGEST}"))).await);
    assert_eq!((refused.fault, refused.code), (Fault::Host, FailureCode::ModelUnavailable));
    let tagged = failure(play(&engine, cargo("docker://registry.example/team/tool:latest")).await);
    assert_eq!((tagged.fault, tagged.code), (Fault::Job, FailureCode::ModelRejected));
    assert!(server.requests().iter().all(|request| request.path != "/images/create"), "nothing was pulled");
    let failed =
        failure(play(&engine, cargo(&format!("docker://registry.example/team/tool@{DIGEST}"))).await);
    assert_eq!((failed.fault, failed.code), (Fault::Host, FailureCode::ModelUnavailable));
    let pulls: Vec<_> =
        server.requests().into_iter().filter(|request| request.path == "/images/create").collect();
    let [pull] = pulls.as_slice() else { panic!("one pull") };
    let image = format!("registry.example%2Fteam%2Ftool%40{}", DIGEST.replace(':', "%3A"));
    assert!(pull.query.contains(&format!("fromImage={image}")), "{}", pull.query);
    engine.shutdown().await;
}

/// A daemon with the image, which starts containers, and calls `attached` once one is attached.
fn with_image(request: &Request, attached: MockResponse) -> MockResponse {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", path) if path.starts_with("/images/") => {
            MockResponse::Json(200, json!({"Id": "sha256:1", "Config": {"Volumes": null}}))
        }
        ("POST", "/containers/create") => MockResponse::Json(201, json!({"Id": "c1", "Warnings": []})),
        ("POST", "/containers/c1/attach") => attached,
        ("POST", "/containers/c1/start") => MockResponse::Json(204, Value::Null),
        _ => usual(request),
    }
}

#[tokio::test]
async fn what_is_asked_is_what_was_decided() {
    let line = b"{\"type\":\"result\",\"output\":5}\n";
    let framed = [&[1, 0, 0, 0, 0, 0, 0, line.len() as u8], line.as_slice()].concat();
    let server = Server::start(move |request| match request.path.as_str() {
        "/containers/c1/wait" => MockResponse::Json(200, json!({"StatusCode": 0})),
        _ => with_image(request, MockResponse::Upgrade(framed.clone())),
    });
    let engine = engine(&server, &["registry.example"]).await;
    let outcome = play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await;
    let Outcome::Completed { output, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(output, Some(json!(5)));
    engine.shutdown().await;
    let requests = server.requests();
    let steps: Vec<_> =
        requests.iter().map(|request| format!("{} {}", request.method, request.path)).collect();
    let run: Vec<_> =
        steps.iter().filter(|step| step.contains("/containers/") && !step.contains("/json")).collect();
    assert_eq!(
        run,
        [
            "POST /containers/create",
            "POST /containers/c1/attach",
            "POST /containers/c1/start",
            "POST /containers/c1/wait",
            "DELETE /containers/c1",
        ]
    );
    let created = requests.iter().find(|request| request.path == "/containers/create").expect("one");
    assert_eq!(created.query, "name=island-00000000-0000-0000-0000-000000000000-1-7&platform=");
    let body: Value = serde_json::from_slice(&created.body).expect("JSON");
    assert_eq!(body["Image"], "sha256:1", "the content, never a name that may change its meaning");
    assert_eq!(body["HostConfig"]["Privileged"], false);
    let removed = requests.iter().find(|request| request.method == "DELETE").expect("one");
    assert!(removed.query.contains("force=true"), "{}", removed.query);
}

#[tokio::test]
async fn a_daemon_that_goes_away_is_the_hosts_fault() {
    // In the middle of a stream, at the wait, at the start, when the image is requested.
    for gone in ["/containers/c1/attach", "/containers/c1/wait", "/containers/c1/start", "/images/"] {
        let server = Server::start(move |request| {
            if request.path.starts_with(gone) {
                return MockResponse::Close;
            }
            with_image(request, MockResponse::Upgrade(Vec::new()))
        });
        let engine = engine(&server, &["registry.example"]).await;
        let failure =
            failure(play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await);
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Host, FailureCode::RuntimeCrashed),
            "{gone}: {failure:?}"
        );
        engine.shutdown().await;
    }
    let full = Server::start(|request| match request.path.as_str() {
        "/containers/create" => {
            MockResponse::Json(500, json!({"message": "mkdir /var/lib/x: no space left on device"}))
        }
        _ => with_image(request, MockResponse::Close),
    });
    let engine = engine(&full, &["registry.example"]).await;
    let failure = failure(play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await);
    assert_eq!((failure.fault, failure.code), (Fault::Host, FailureCode::DiskFull));
    assert!(!failure.message.contains("/var/lib"), "no paths are sent to consumers: {failure:?}");
    engine.shutdown().await;
}

/// A daemon that runs a container to its end, and answers a request to remove it with `removed`.
fn that_removes(request: &Request, removed: impl FnOnce() -> MockResponse) -> MockResponse {
    match (request.method.as_str(), request.path.as_str()) {
        ("DELETE", _) => removed(),
        (_, "/containers/c1/wait") => MockResponse::Json(200, json!({"StatusCode": 0})),
        _ => with_image(request, MockResponse::Upgrade(Vec::new())),
    }
}

/// Waits until a daemon was requested this often to remove a container.
async fn removals(server: &Server, count: usize) {
    let requested = async {
        while server.requests().iter().filter(|request| request.method == "DELETE").count() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), requested).await.expect("requests to remove a container");
}

#[tokio::test]
async fn a_removal_that_fails_is_tried_until_it_succeeds() {
    let tries = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        that_removes(request, || match tries.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => MockResponse::Json(500, json!({"message": "the device is busy"})),
            _ => MockResponse::Json(204, Value::Null),
        })
    });
    let engine = engine(&server, &["registry.example"]).await;
    play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await;
    removals(&server, 3).await;
    engine.shutdown().await;
    let removed = server.requests().iter().filter(|request| request.method == "DELETE").count();
    assert_eq!(removed, 3, "what is removed is not removed again");
}

#[tokio::test]
async fn the_end_of_a_worker_does_not_wait_for_a_daemon_that_never_answers() {
    let server = Server::start(|request| that_removes(request, || MockResponse::Never));
    let engine = engine(&server, &["registry.example"]).await;
    play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await;
    removals(&server, 1).await;
    // From here on, time passes whenever nothing else happens.
    tokio::time::pause();
    let ended = tokio::time::timeout(Duration::from_hours(1), engine.shutdown()).await;
    ended.expect("a removal has a deadline of its own");
}

#[tokio::test]
async fn what_a_dead_worker_left_is_given_up_where_the_daemon_never_answers() {
    let server = Server::start(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/containers/json") => {
            let labels = json!({ISLAND: "ours", WORKER: Uuid::from_u128(1).to_string()});
            MockResponse::Json(200, json!([{"Id": "c1", "Labels": labels}]))
        }
        ("DELETE", _) => MockResponse::Never,
        _ => usual(request),
    });
    let daemon = Daemon::connect(server.socket()).await.expect("a daemon");
    let orphans = Orphans::AllBut(Vec::new());
    let removal = tokio::time::timeout(Duration::from_hours(1), orphans::remove(&daemon, "ours", &orphans));
    let passing = async {
        removals(&server, 1).await;
        // From here on, time passes whenever nothing else happens.
        tokio::time::pause();
    };
    let (removal, ()) = tokio::join!(removal, passing);
    let error = removal.expect("a removal has a deadline of its own").expect_err("it is left");
    assert!(matches!(error, OrphanError::Left(1)), "the agent tries again: {error}");
}

/// The line between the version of the toolkit and what the agent reads: the answer of the worker's program to a probe.
#[tokio::test]
async fn the_probe_names_the_problem_of_the_toolkit() {
    let server = Server::start(|request| match request.path.as_str() {
        "/version" => {
            let runc = json!({"Name": "runc", "Version": "1.4.0"});
            MockResponse::Json(200, json!({"Version": "28.0.0", "ApiVersion": "1.48", "Components": [runc]}))
        }
        _ => usual(request),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let toolkit = folder.path().join("nvidia-ctk");
    for (version, problem) in [
        (None, Some("is not installed")),
        (Some("1.17.7"), Some("1.17.7 lets containers escape")),
        (Some("1.19.1"), None),
    ] {
        if let Some(version) = version {
            let printed = format!("NVIDIA Container Toolkit CLI version {version}");
            std::fs::write(&toolkit, format!("#!/bin/sh\necho '{printed}'\n")).expect("written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&toolkit, mode).expect("make it a program");
        }
        let probed = tokio::process::Command::new(env!("CARGO_BIN_EXE_island-worker-container"))
            .arg("--probe")
            .env("DOCKER_HOST", format!("unix://{}", server.socket().display()))
            .env("PATH", folder.path())
            .output();
        let probed = probed.await.expect("run the worker's program");
        let report: ProbeReport = serde_json::from_slice(&probed.stdout).expect("a report");
        assert_eq!(report.unavailable, None, "the daemon is fit");
        let stated = report.details.get("gpu").map(String::as_str);
        assert_eq!(stated.is_some(), problem.is_some(), "{version:?}: {stated:?}");
        assert!(stated.unwrap_or_default().contains(problem.unwrap_or_default()), "{version:?}: {stated:?}");
    }
}

#[tokio::test]
async fn a_pull_ends_at_the_size_of_all_images() {
    let part = |id: &str, gigabytes: u64| {
        let progress = json!({"current": 1, "total": gigabytes << 30});
        json!({"id": id, "status": "Downloading", "progressDetail": progress}).to_string() + "\n"
    };
    let reports = part("a", 20) + &part("b", 13);
    let server = Server::start(move |request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", path) if path.starts_with("/images/") => {
            MockResponse::Json(404, json!({"message": "no such image"}))
        }
        ("POST", "/images/create") => {
            let head = "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
            MockResponse::Raw(format!("{head}{reports}").into_bytes())
        }
        _ => usual(request),
    });
    let engine = engine(&server, &["registry.example"]).await;
    let failure = failure(play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await);
    engine.shutdown().await;
    assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::ModelRejected));
    assert!(failure.message.contains("more than 32 GB"), "{failure:?}");
    assert!(server.requests().iter().all(|request| !request.path.ends_with("/tag")), "it gets no name");
}

#[tokio::test]
async fn nothing_is_unpacked_beside_images_that_are_not_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("image.tar");
    let mut image = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(7);
    image.append_data(&mut header, "bin/x", &b"program"[..]).expect("written");
    std::fs::write(&file, image.into_inner().expect("an image")).expect("written");
    let server = Server::start(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/images/json") => MockResponse::Json(500, json!({"message": "busy"})),
        ("GET", path) if path.starts_with("/images/") => {
            MockResponse::Json(404, json!({"message": "no such image"}))
        }
        _ => usual(request),
    });
    let engine = engine(&server, &[]).await;
    let artifacts = BTreeMap::from([("model".to_owned(), file)]);
    let failure = failure(play_with(&engine, cargo("file:///image.tar"), artifacts).await);
    engine.shutdown().await;
    assert_eq!((failure.fault, failure.code), (Fault::Host, FailureCode::RuntimeCrashed));
    assert!(failure.message.contains("does not list its images"), "{failure:?}");
    assert!(
        server.requests().iter().all(|request| request.method != "POST"),
        "the limit of all images could be exceeded"
    );
}

#[tokio::test]
async fn a_pulled_image_that_unpacks_to_too_much_is_removed() {
    let was_pulled = AtomicBool::new(false);
    let server = Server::start(move |request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/images/json") => MockResponse::Json(200, json!([])),
        ("GET", path) if path.starts_with("/images/") && was_pulled.load(Ordering::Relaxed) => {
            MockResponse::Json(200, json!({"Id": "sha256:1", "Size": 33_u64 << 30, "Config": {}}))
        }
        ("GET", path) if path.starts_with("/images/") => {
            MockResponse::Json(404, json!({"message": "no such image"}))
        }
        ("POST", "/images/create") => {
            was_pulled.store(true, Ordering::Relaxed);
            MockResponse::Json(200, json!({"status": "pulled"}))
        }
        ("POST", path) if path.ends_with("/tag") => MockResponse::Json(201, Value::Null),
        ("DELETE", path) if path.starts_with("/images/") => MockResponse::Json(200, json!([])),
        _ => usual(request),
    });
    let engine = engine(&server, &["registry.example"]).await;
    let failure = failure(play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await);
    engine.shutdown().await;
    assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::ModelRejected));
    let requests = server.requests();
    let removed = requests.iter().filter(|request| request.method == "DELETE").count();
    assert_eq!(removed, 2, "our name and the registry's");
    assert!(
        requests.iter().all(|request| request.path != "/containers/create"),
        "no container was made of it"
    );
}

/// What pulled images leave in the daemon: our name and the registry's reference. Without both, the disk stays occupied.
#[tokio::test]
async fn a_pulled_image_is_removed_with_the_reference_of_its_registry() {
    const IMAGES: u64 = 66;
    let hex = |number: u64| format!("{number:064x}");
    let server = Server::start(move |request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/images/json") => {
            let image = |number: u64| {
                let digest = hex(number);
                let mut names = vec![format!("island/{digest}:latest")];
                // The owner uses this one as well.
                names.extend((number == 1).then(|| "busybox:latest".to_owned()));
                json!({
                    "Id": format!("sha256:{number}"), "ParentId": "", "RepoTags": names,
                    "RepoDigests": [format!("registry.example/tool@sha256:{digest}"), format!("other@{DIGEST}")],
                    "Created": 0, "Size": 1, "SharedSize": 0, "Labels": {}, "Containers": 0,
                })
            };
            MockResponse::Json(200, Value::Array((0..IMAGES).map(image).collect()))
        }
        ("GET", path) if path.starts_with("/images/") => {
            MockResponse::Json(404, json!({"message": "no such image"}))
        }
        ("POST", "/images/create") => MockResponse::Json(200, json!({"status": "pulled"})),
        ("POST", path) if path.ends_with("/tag") => MockResponse::Json(201, Value::Null),
        ("DELETE", path) if path.starts_with("/images/") => MockResponse::Json(200, json!([])),
        _ => usual(request),
    });
    let engine = engine(&server, &["registry.example"]).await;
    failure(play(&engine, cargo(&format!("docker://registry.example/tool@{DIGEST}"))).await);
    engine.shutdown().await;
    let removed: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.method == "DELETE")
        .map(|request| request.path.replace("%2F", "/").replace("%40", "@").replace("%3A", ":"))
        .collect();
    // Two more than may stay; none was used by this worker, so that the order is the daemon's.
    let (kept, first) = (format!("island/{}", hex(65)), format!("island/{}", hex(64)));
    let expected = [
        format!("/images/{first}"),
        format!("/images/registry.example/tool@sha256:{}", hex(64)),
        format!("/images/{kept}"),
        format!("/images/registry.example/tool@sha256:{}", hex(65)),
    ];
    assert_eq!(removed, expected);
}
