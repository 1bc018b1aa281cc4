//! What `island dev --fixtures` offers: every engine that a fresh clone can run without a network, each with an example that works.

use std::{collections::BTreeSet, fs, path::Path};

use island_coordinator_client::protocol::job::JobStatus;
use island_integration::{Network, examples, expect::final_job};
use serde_json::Value;

/// Slug, engine, task and example of every entry whose name begins with `tiny-`.
fn tiny() -> Vec<(String, String, Option<String>, Value)> {
    let folder = examples::catalogue().join("fixtures");
    let paths = fs::read_dir(folder).expect("the fixtures").map(|entry| entry.expect("readable").path());
    let is_tiny =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tiny-"));
    let mut paths: Vec<_> = paths.filter(|path| is_tiny(path)).collect();
    paths.sort();
    let read = |path: &Path| {
        let text = fs::read_to_string(path).expect("readable");
        let entry: Value =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let field = |value: &Value| value.as_str().map(str::to_owned);
        let task = field(&entry["onnx_task_type"]).or_else(|| field(&entry["engine"]["task"]));
        let (slug, engine) = (field(&entry["slug"]), field(&entry["runtime_type"]));
        (slug.expect("a slug"), engine.expect("an engine"), task, entry["example"]["input"].clone())
    };
    paths.iter().map(|path| read(path)).collect()
}

#[tokio::test]
async fn every_fixture_runs_its_example() {
    let entries = tiny();
    let network = Network::start();
    let client = network.client();
    let mut wrong = Vec::new();
    for (slug, _, _, input) in &entries {
        let job = match client.submit_job(slug, input.clone(), 0).await {
            Ok(job) => final_job(&client, job.id).await,
            Err(error) => {
                wrong.push(format!("{slug}: not accepted: {error}"));
                continue;
            }
        };
        if job.status != JobStatus::Completed {
            wrong.push(format!("{slug}: {}: {:?}", job.status, job.error));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), entries.len(), wrong.join("\n"));
}

#[test]
fn there_is_a_fixture_of_every_task() {
    let entries = tiny();
    let tasks = |engine: &str| -> BTreeSet<String> {
        entries.iter().filter(|entry| entry.1 == engine).filter_map(|entry| entry.2.clone()).collect()
    };
    let onnx: BTreeSet<String> = island_runtimes_onnx::task::names().into_iter().map(str::to_owned).collect();
    assert_eq!(tasks("onnx"), onnx);
    assert_eq!(tasks("coreml").len(), 7, "{:?}", tasks("coreml"));
    assert_eq!(tasks("llmcpp").len(), 4, "{:?}", tasks("llmcpp"));
    assert_eq!(tasks("diffusers").len(), 1, "{:?}", tasks("diffusers"));
}
