//! Thousands of small jobs leave nothing behind: no descriptor, no thread, no memory, no file.
//!
//! `ISLAND_SOAK_JOBS` and `ISLAND_SOAK_MODELS` raise the number of jobs and of loaded models for a longer run by hand.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use island_coordinator_client::Client;
use island_integration::{
    Network, Options, examples,
    expect::{PATIENCE, eventually, final_job},
    processes::{self, Usage},
};
use serde_json::json;

/// Jobs before the first measurement, when pools and caches are filled.
const WARM_UP: u64 = 1_000;
/// Jobs after it, at least.
const JOBS: u64 = 10_000;
/// Jobs at once. Fewer than an account may have open.
const CLIENTS: u64 = 4;
/// What allocators and pools may still gather after the warm-up, in bytes for each job. The events of one such job take more.
const BYTES_PER_JOB: u64 = 1_024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_with_the_jobs_that_have_passed() {
    let (jobs, models) = (setting("ISLAND_SOAK_JOBS", JOBS), setting("ISLAND_SOAK_MODELS", 1));
    let cargos = catalogue(models);
    let network =
        Network::start_with(&Options { cargos: Some(cargos.path().to_owned()), ..Options::default() });
    let client = network.client();
    run(&client, WARM_UP, models).await;
    let before = measure(&network).await;
    run(&client, jobs, models).await;
    let after = measure(&network).await;
    println!("before: {before:#?}\nafter {jobs} jobs: {after:#?}");
    assert!(before.keys().any(|part| part.contains("worker")), "workers are measured: {before:?}");
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "the same processes run");
    for (part, before) in before {
        let after = after[&part];
        // Connections come and go with clients; threads with blocking calls.
        assert!(after.descriptors <= before.descriptors + 32, "{part}: {before:?}, then {after:?}");
        assert!(after.threads <= before.threads + 16, "{part}: {before:?}, then {after:?}");
        let allowed = (8 << 20) + jobs * BYTES_PER_JOB;
        assert!(
            after.anonymous_bytes <= before.anonymous_bytes + allowed,
            "{part}: {before:?}, then {after:?}"
        );
    }
}

/// Returns the number in the environment if it exceeds the default.
fn setting(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |value| value.parse().expect("a number")).max(usual)
}

/// The shipped model and `models` Cargos of the scripted engine, each with a worker of its own, so cheap that the credits of a
/// development account last for all jobs.
fn catalogue(models: u64) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    let shipped = examples::catalogue();
    let write = |file: &str, slug: String, context_tokens: u64| {
        let text = fs::read_to_string(shipped.join(file)).expect("an entry");
        let mut entry: toml::Table = text.parse().expect("an entry is TOML");
        entry.insert("price_per_job".to_owned(), 0.001.into());
        entry.insert("slug".to_owned(), slug.clone().into());
        // Cargos with equal settings would share a worker.
        let limits = entry["limits"].as_table_mut().expect("limits");
        limits.insert("context_tokens".to_owned(), (context_tokens as i64).into());
        let path = folder.path().join(format!("{slug}.toml"));
        fs::write(path, toml::to_string(&entry).expect("an entry")).expect("write the entry");
    };
    (0..models).for_each(|number| write("fixtures/sim-chat.toml", format!("sim-{number}"), 1024 + number));
    write("llm-chat.toml", "llm-chat".to_owned(), 1024);
    fs::create_dir(folder.path().join("models")).expect("create the folder");
    let model = "models/island-tiny-chat.gguf";
    fs::copy(shipped.join(model), folder.path().join(model)).expect("copy the model");
    folder
}

/// Runs `count` jobs on warm workers of the scripted engine and of the real one, and checks every end.
async fn run(client: &Client, count: u64, models: u64) {
    let started = Arc::new(AtomicU64::new(0));
    let clients = (0..CLIENTS).map(|_| {
        let (client, started) = (client.clone(), Arc::clone(&started));
        tokio::spawn(async move {
            loop {
                let number = started.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let (cargo, input) = if number.is_multiple_of(10) {
                    ("llm-chat".to_owned(), json!({ "prompt": "hello", "max_tokens": 1 }))
                } else {
                    let input = json!({ "prompt": "hello", "max_tokens": 1, "delay_ms": 0 });
                    (format!("sim-{}", number % models), input)
                };
                let job = client.submit_job(&cargo, input, 0).await.expect("submit");
                let mut events = client.job_events(job.id, None);
                let read = async {
                    let mut last = None;
                    while let Some(event) = events.next().await {
                        last = Some(event.expect("the stream goes on").event);
                    }
                    last
                };
                let last = tokio::time::timeout(PATIENCE, read).await.expect("the job ends in time");
                assert!(
                    last.as_ref().is_some_and(island_protocol::event::JobEvent::is_last),
                    "job {number}: {last:?}"
                );
                let job = final_job(&client, job.id).await;
                let complete = job.output.is_some() && job.usage.is_some() && job.completed_at.is_some();
                assert!(complete && job.error.is_none(), "job {number}: {job:?}");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("every job completes");
    }
}

/// What each long-lived process of the network uses, once the Island has removed the spools of the jobs that have ended.
async fn measure(network: &Network) -> BTreeMap<String, Usage> {
    let spools = network.folder().join("island-1/spool");
    eventually("no spool is left", || async {
        (fs::read_dir(&spools).expect("list the spools").count() == 0).then_some(())
    })
    .await;
    let parts = ["coordinator", "island-1"].map(|part| (part.to_owned(), network.pid(part)));
    let workers = processes::workers(network.folder()).into_iter().map(|worker| {
        let program = worker.command.split([' ', '/']).find(|part| part.starts_with("island-worker-"));
        (format!("{} {}", program.unwrap_or("worker"), worker.pid), worker.pid)
    });
    parts.into_iter().chain(workers).map(|(part, pid)| (part, Usage::of(pid))).collect()
}
