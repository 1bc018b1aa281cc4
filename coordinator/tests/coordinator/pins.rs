//! `catalogue pin` and `catalogue check --online` against a test double of a hub.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::{Path as Segments, State},
    http::StatusCode,
    routing::get,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A commit and its files.
type Repository = Arc<Mutex<(String, BTreeMap<String, Vec<u8>>)>>;

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Large files are stored by their hash, small ones are not.
async fn info(State(repository): State<Repository>, Segments(revision): Segments<String>) -> Json<Value> {
    let repository = repository.lock().expect("whole");
    assert!(["main", "v1", "c0ffee", "beef"].contains(&&*revision), "{revision}");
    let siblings: Vec<Value> = repository
        .1
        .iter()
        .map(|(name, bytes)| {
            if name.ends_with(".onnx") {
                json!({ "rfilename": name, "size": bytes.len(), "lfs": { "sha256": hex(bytes), "size": bytes.len() } })
            } else {
                json!({ "rfilename": name, "size": bytes.len(), "blobId": format!("0123{}", &hex(bytes)[..4]) })
            }
        })
        .collect();
    Json(json!({ "id": "o/r", "sha": repository.0, "siblings": siblings }))
}

async fn file(
    State(repository): State<Repository>,
    Segments((commit, name)): Segments<(String, String)>,
) -> Result<Vec<u8>, StatusCode> {
    let repository = repository.lock().expect("whole");
    assert_eq!(commit, repository.0, "the pinned commit");
    assert!(!name.ends_with(".onnx"), "the hub reported the hash of {name}");
    repository.1.get(&name).cloned().ok_or(StatusCode::NOT_FOUND)
}

async fn hub(repository: Repository) -> String {
    let router = Router::new()
        .route("/api/models/o/r/revision/{revision}", get(info))
        .route("/o/r/resolve/{commit}/{*name}", get(file))
        .with_state(repository);
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await.expect("serve") });
    url
}

fn entry(slug: &str, files: &str) -> String {
    format!(
        r#"slug = "{slug}"
name = "A model"
description = "A model."
category = "text"
runtime_type = "llmcpp"
price_per_job = 1
required_vram_mb = 0
required_ram_mb = 10
[repository]
url = "hf://o/r"
files = [{files}]
[input_schema]
[output_schema]
[example]
input = {{}}
"#
    )
}

async fn pin(cargos: &Path, hub: &str, more: &[&str]) -> Output {
    run(cargos, &[&["pin", "--hub", hub], more].concat()).await
}

async fn run(cargos: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_island-coordinator"));
    command.arg("--catalogue").arg(cargos).arg("catalogue").args(arguments);
    command.env_remove("HF_TOKEN").env("NO_PROXY", "*");
    tokio::task::spawn_blocking(move || command.output().expect("run")).await.expect("ended")
}

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_hashes_are_read_from_the_hub_once_and_stay() {
    let (graph, settings) = (b"a graph".to_vec(), b"{}".to_vec());
    let files =
        BTreeMap::from([("onnx/a.onnx".to_owned(), graph.clone()), ("config.json".to_owned(), settings)]);
    let repository: Repository = Arc::new(Mutex::new(("c0ffee".to_owned(), files)));
    let url = hub(Arc::clone(&repository)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::write(path.join("a.toml"), entry("a", r#""onnx/a.onnx", "config.json""#)).expect("written");
    let pins = || fs::read_to_string(path.join("pins.toml")).expect("pins");

    let first = pin(path, &url, &[]).await;
    assert!(first.status.success() && output_of(&first).contains("2 files pinned"), "{}", output_of(&first));
    assert!(
        pins().contains(&hex(&graph)) && pins().contains(&hex(b"{}")) && pins().contains("c0ffee"),
        "{}",
        pins()
    );
    // The publisher changes the file; the pin stays.
    *repository.lock().expect("whole") = (
        "beef".to_owned(),
        BTreeMap::from([
            ("onnx/a.onnx".to_owned(), b"another".to_vec()),
            ("config.json".to_owned(), b"[]".to_vec()),
        ]),
    );
    let second = pin(path, &url, &["a"]).await;
    assert!(
        second.status.success() && output_of(&second).contains("0 files pinned"),
        "{}",
        output_of(&second)
    );
    assert!(pins().contains("c0ffee") && !pins().contains("beef"), "{}", pins());
    let again = pin(path, &url, &["--again"]).await;
    assert!(
        again.status.success() && pins().contains("beef") && pins().contains(&hex(b"another")),
        "{}",
        pins()
    );

    // An entry that contradicts the hub and a file that does not exist are reported, and the others are pinned.
    let other = hex(b"what was meant");
    fs::write(path.join("b.toml"), entry("b", &format!(r#"{{ path = "onnx/a.onnx", sha256 = "{other}" }}"#)))
        .expect("written");
    fs::write(path.join("a.toml"), entry("a", r#""config.json""#)).expect("written");
    let wrong = pin(path, &url, &["b", "--again"]).await;
    assert!(
        !wrong.status.success() && output_of(&wrong).contains("differs from its catalogue entry"),
        "{}",
        output_of(&wrong)
    );
    fs::write(path.join("b.toml"), entry("b", r#""onnx/none.onnx""#)).expect("written");
    let missing = pin(path, &url, &[]).await;
    assert!(
        !missing.status.success() && output_of(&missing).contains("no file onnx/none.onnx"),
        "{}",
        output_of(&missing)
    );
    assert!(pins().contains("config.json") && !pins().contains("a.onnx"), "{}", pins());
    let unknown = pin(path, &url, &["nothing"]).await;
    assert!(
        !unknown.status.success() && output_of(&unknown).contains("there is no Cargo nothing"),
        "{}",
        output_of(&unknown)
    );
    let away = pin(path, "http://127.0.0.1:9", &[]).await;
    assert!(!away.status.success() && output_of(&away).contains("not pinned: o/r"), "{}", output_of(&away));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_compared_with_what_the_hub_has() {
    let files = |graph: &[u8]| {
        BTreeMap::from([("onnx/a.onnx".to_owned(), graph.to_vec()), ("c.json".to_owned(), b"{}".to_vec())])
    };
    let repository: Repository = Arc::new(Mutex::new(("c0ffee".to_owned(), files(b"a graph"))));
    let url = hub(Arc::clone(&repository)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let graph = format!(r#"{{ path = "onnx/a.onnx", sha256 = "{}" }}"#, hex(b"a graph"));
    fs::write(path.join("a.toml"), entry("a", &format!(r#"{graph}, "c.json""#))).expect("written");
    let check = ["check", "--online", "--hub", &url];
    let right = run(path, &check).await;
    assert!(right.status.success(), "{}", output_of(&right));
    assert!(
        output_of(&right).contains("2 files of 1 Cargos compared, 0 wrong, 0 changed"),
        "{}",
        output_of(&right)
    );

    let away =
        "\n[[artifacts]]\nname = \"voice.bin\"\nurl = \"https://example.org/voice.bin\"\n[input_schema]";
    fs::write(path.join("b.toml"), entry("b", r#""c.json""#).replace("\n[input_schema]", away))
        .expect("written");
    let rest = run(path, &check).await;
    let text = output_of(&rest);
    assert!(
        rest.status.success()
            && text.contains("b: https://example.org/voice.bin: not compared")
            && text.contains("3 files of 2 Cargos compared, 0 wrong, 0 changed; 1 not compared"),
        "{text}"
    );
    fs::remove_file(path.join("b.toml")).expect("removed");

    *repository.lock().expect("whole") = ("beef".to_owned(), files(b"another"));
    let wrong = run(path, &check).await;
    let text = output_of(&wrong);
    assert!(
        !wrong.status.success() && text.contains("a: o/r, onnx/a.onnx: WRONG: the entry states the hash"),
        "{text}"
    );
    assert!(text.contains("1 wrong, 0 changed"), "{text}");
    let away = run(path, &["check", "--online", "--hub", "http://127.0.0.1:9"]).await;
    let text = output_of(&away);
    assert!(!away.status.success() && text.contains("0 wrong, 0 changed; 2 unknown"), "{text}");
    let both = run(path, &["check", "--online", "--files", "x"]).await;
    assert!(
        !both.status.success() && output_of(&both).contains("cannot be used with"),
        "{}",
        output_of(&both)
    );
}
