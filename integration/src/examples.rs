//! The examples of catalogue entries, run as jobs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use futures::{StreamExt as _, stream};
use island_coordinator_client::Client;
use island_protocol::job::JobStatus;
use serde_json::Value;

use crate::{Network, expect::final_job};

/// What an entry of the catalogue promises.
#[derive(Debug, Clone)]
pub struct Example {
    /// Its Cargo.
    pub slug: String,
    /// What to give it.
    pub input: Value,
    /// Its output, if that is always the same.
    pub output: Option<Value>,
    /// Whether `make cargos` has built its program.
    pub is_built: bool,
}

/// The shipped catalogue.
pub fn catalogue() -> PathBuf {
    island_testing::workspace().join("cargos")
}

/// Examples of all entries in one folder of the shipped catalogue.
pub fn of(folder: &str) -> Vec<Example> {
    let files = fs::read_dir(catalogue().join(folder)).expect("the folder is there");
    let paths = files.map(|entry| entry.expect("readable").path());
    let entries = paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut examples: Vec<Example> = entries.map(|path| read(&path)).collect();
    examples.sort_by(|one, other| one.slug.cmp(&other.slug));
    examples
}

fn read(path: &Path) -> Example {
    let text = fs::read_to_string(path).expect("readable");
    let entry: Value = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let example = &entry["example"];
    let file = entry["model_url"].as_str().and_then(|url| url.strip_prefix("file://")).expect("a local file");
    Example {
        slug: entry["slug"].as_str().expect("a slug").to_owned(),
        input: example["input"].clone(),
        output: example.get("output").cloned(),
        is_built: catalogue().join(file).exists(),
    }
}

/// Runs all of them, `at_once` at a time; returns one description for each that failed.
pub async fn run_all(network: &Network, examples: &[Example], at_once: usize) -> Vec<String> {
    let client = network.client();
    let runs = examples.iter().map(|example| run(&client, example));
    let done: Vec<Option<String>> = stream::iter(runs).buffer_unordered(at_once).collect().await;
    done.into_iter().flatten().collect()
}

/// Runs one; `None`: it gave what it promises. That the output fits its schema, the coordinator sees to.
async fn run(client: &Client, example: &Example) -> Option<String> {
    let slug = &example.slug;
    let job = match client.submit_job(slug, example.input.clone(), 0).await {
        Ok(job) => job,
        Err(error) => return Some(format!("{slug}: not accepted: {error}")),
    };
    let job = final_job(client, job.id).await;
    match (&job.output, &example.output) {
        _ if job.status != JobStatus::Completed => Some(format!("{slug}: {}: {:?}", job.status, job.error)),
        (None, _) => Some(format!("{slug}: no output")),
        (Some(output), Some(expected)) if output != expected => {
            Some(format!("{slug}: gave {}\n    instead of {}", shortened(output), shortened(expected)))
        }
        _ => None,
    }
}

fn shortened(value: &Value) -> String {
    value.to_string().chars().take(600).collect()
}
