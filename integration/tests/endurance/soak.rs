//! Thousands of small jobs of every kind of engine leave nothing behind: no descriptor, no thread, no task, no memory, no entry, no file.
//!
//! `ISLAND_SOAK_JOBS`, `ISLAND_SOAK_MODELS` and `ISLAND_SOAK_SLOW_JOBS` raise the numbers of jobs and of loaded models for a longer run by hand:
//! `make soak`.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use island_coordinator_client::Client;
use island_integration::{
    Network, Options, examples,
    expect::{PATIENCE, eventually, final_job},
    fixture_cargos,
    processes::{self, Usage},
    program,
};
use island_runtimes_container::testing::Dockerd;
use island_runtimes_onnx_fixtures::Fixture;
use serde_json::{Value, json};

use crate::alone;

/// Jobs before the first measurement, when pools and caches are filled.
const WARM_UP: u64 = 1_000;
/// Jobs after it, at least.
const JOBS: u64 = 10_000;
/// The same for engines whose jobs take longer.
const SLOW_WARM_UP: u64 = 300;
const SLOW_JOBS: u64 = 3_000;
/// Jobs at once. Fewer than an account may have open.
const CLIENTS: u64 = 4;
/// What allocators and pools may still gather after the warm-up, in bytes for each job of a process. The events of one such job take more.
const BYTES_PER_JOB: f64 = 1_024.0;
/// Time between two heartbeats of an agent. An agent that answers has no longer pause between the ends of jobs that take a part of it.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Epochs of ended jobs that the agent keeps, so that a late copy of an assignment starts nothing.
const REMEMBERED: u64 = 4_096;
/// Cargos of the catalogue that run in the shared worker of wasm, and models of ONNX Runtime, each with a worker of its own.
const WASM: [&str; 3] = ["wasm-hash", "wasm-json", "wasm-csv"];
const ONNX: [&str; 3] = ["distilbert-sst2", "minilm", "bert-fill-mask"];
/// A fixture of the Core ML engine, and an entry of the catalogue that runs in a container.
const COREML: &str = "llama";
const CONTAINER: &str = "template";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_with_the_jobs_that_have_passed() {
    let _alone = alone().await;
    let (jobs, models) = (setting("ISLAND_SOAK_JOBS", JOBS), setting("ISLAND_SOAK_MODELS", 1));
    let cargos = catalogue(models);
    let network =
        Network::start_with(&Options { cargos: Some(cargos.path().to_owned()), ..Options::default() });
    let share = |part: &str| share(part, models);
    let kinds = Arc::new(kinds(models));
    let load = Load { warm_up: WARM_UP, jobs, kinds, share: &share, max_pause: Some(HEARTBEAT) };
    load.soak(&network, &["simulated", "llmcpp", "wasm", "onnx"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_with_the_jobs_of_slower_engines() {
    let _alone = alone().await;
    let docker = match Dockerd::start().await {
        Ok(docker) => docker,
        Err(reason) => return island_testing::skip("a soak of containers", &reason),
    };
    let cargos = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    fixture_cargos::add_coreml(cargos.path(), COREML);
    fixture_cargos::add_diffusion(cargos.path());
    symlink(examples::catalogue().join("built"), cargos.path().join("built")).expect("link the programs");
    add_shipped(cargos.path(), &format!("container/{CONTAINER}.toml"), |_| {});
    let agent = vec![("CONTAINERS__SOCKET", docker.socket().display().to_string())];
    let options = Options { cargos: Some(cargos.path().to_owned()), agent, ..Options::default() };
    let network = Network::start_with(&options);
    let jobs = setting("ISLAND_SOAK_SLOW_JOBS", SLOW_JOBS);
    let share = |part: &str| if part.contains("-worker-") { 1.0 / 3.0 } else { 1.0 };
    let kinds = Arc::new(slow_kinds());
    let load = Load { warm_up: SLOW_WARM_UP, jobs, kinds, share: &share, max_pause: None };
    load.soak(&network, &["coreml", "diffusers", "container"]).await;
    drop(network);
    docker.stop().await;
}

/// Jobs before and after a measurement.
struct Load<'a> {
    warm_up: u64,
    jobs: u64,
    /// One after the other, again and again.
    kinds: Arc<Vec<Kind>>,
    /// The share of the jobs that a process takes part in.
    share: &'a dyn Fn(&str) -> f64,
    /// The longest time between two ends, where each job takes a small part of it.
    max_pause: Option<Duration>,
}

impl Load<'_> {
    /// Runs all jobs, and compares what the network uses before and after those that follow the warm-up.
    #[expect(clippy::print_stdout, reason = "a longer run by hand reports what it measured")]
    async fn soak(&self, network: &Network, engines: &[&str]) {
        let client = network.client();
        run(&client, self.warm_up, &self.kinds).await;
        let before = measure(network).await;
        let begun = Instant::now();
        let pause = run(&client, self.jobs, &self.kinds).await;
        let took = begun.elapsed();
        let after = measure(network).await;
        println!("before: {before:#?}\nafter {} jobs: {after:#?}", self.jobs);
        println!("{} jobs in {took:.1?}, the longest time without an end {pause:.1?}", self.jobs);
        assert!(self.max_pause.is_none_or(|most| pause <= most), "no job ended for {pause:.1?}");
        for engine in engines {
            let is_measured = before.processes.keys().any(|part| part.contains(engine));
            assert!(is_measured, "{engine} is measured: {before:#?}");
        }
        let parts = |measured: &Measured| measured.processes.keys().cloned().collect::<Vec<_>>();
        assert_eq!(parts(&before), parts(&after), "the same processes run");
        for (part, before) in &before.processes {
            let after = after.processes[part];
            // Connections come and go with clients; threads with blocking calls.
            assert!(after.descriptors <= before.descriptors + 32, "{part}: {before:?}, then {after:?}");
            assert!(after.threads <= before.threads + 16, "{part}: {before:?}, then {after:?}");
            let allowed = (8 << 20) + (self.jobs as f64 * (self.share)(part) * BYTES_PER_JOB) as u64;
            assert!(
                after.anonymous_bytes <= before.anonymous_bytes + allowed,
                "{part}: {before:?}, then {after:?}"
            );
        }
        for (table, before) in &before.tables {
            let most = match table.as_str() {
                // Those of the warm-up are among them.
                "ended_jobs" => (before + self.jobs).min(REMEMBERED),
                // Those of connections that clients of its socket open.
                "tasks" => before + 8,
                _ => *before,
            };
            assert!(after.tables[table] <= most, "{table}: {before}, then {after:#?}");
        }
        assert_eq!(before.files, after.files, "files of the Island");
    }
}

/// The share of the jobs that a process takes part in.
fn share(part: &str, models: u64) -> f64 {
    match part {
        _ if part.contains("simulated") => 0.5 / models as f64,
        _ if part.contains("llmcpp") => 0.1,
        _ if part.contains("wasm") => 0.2,
        _ if part.contains("onnx") => 0.2 / ONNX.len() as f64,
        _ => 1.0,
    }
}

/// Returns the number in the environment if it exceeds the default.
fn setting(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |value| value.parse().expect("a number")).max(usual)
}

/// The shipped model, `models` Cargos of the scripted engine, each with a worker of its own, and those of [`WASM`] and [`ONNX`], so cheap that
/// the credits of a development account last for all jobs.
fn catalogue(models: u64) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
    let shipped = examples::catalogue();
    let write = |file: &str, slug: String, context_tokens: u64| {
        add_shipped(folder.path(), file, |entry| {
            entry.insert("slug".to_owned(), slug.into());
            // Cargos with equal settings would share a worker.
            let limits = entry["limits"].as_table_mut().expect("limits");
            limits.insert("context_tokens".to_owned(), (context_tokens as i64).into());
        });
    };
    (0..models).for_each(|number| write("fixtures/sim-chat.toml", format!("sim-{number}"), 1024 + number));
    write("llm-chat.toml", "llm-chat".to_owned(), 1024);
    fs::create_dir(folder.path().join("models")).expect("create the folder");
    let model = "models/island-tiny-chat.gguf";
    fs::copy(shipped.join(model), folder.path().join(model)).expect("copy the model");
    symlink(shipped.join("llmcpp"), folder.path().join("llmcpp")).expect("link the schemas");
    // What `make cargos` builds lies beside the catalogue.
    symlink(shipped.join("built"), folder.path().join("built")).expect("link the programs");
    fs::create_dir(folder.path().join("wasm")).expect("create the folder");
    for slug in WASM {
        let entry = format!("wasm/{slug}.toml");
        fs::copy(shipped.join(&entry), folder.path().join(&entry)).expect("copy the entry");
    }
    fixture_cargos::add_onnx(folder.path(), &ONNX.map(Fixture::named), 0);
    folder
}

/// Adds an entry of the shipped catalogue, changed and cheap.
fn add_shipped(folder: &Path, file: &str, change: impl FnOnce(&mut toml::Table)) {
    let text = fs::read_to_string(examples::catalogue().join(file)).expect("an entry");
    let mut entry: toml::Table = text.parse().expect("an entry is TOML");
    entry.insert("price_per_job".to_owned(), 0.001.into());
    change(&mut entry);
    let slug = entry["slug"].as_str().expect("a slug");
    let path = folder.join(format!("{slug}.toml"));
    fs::write(path, toml::to_string(&entry).expect("an entry")).expect("write the entry");
}

/// A Cargo and the input of its jobs.
type Kind = (String, Value);

/// The order of kinds: of ten jobs, five are of the scripted engine, two of wasm, two of ONNX Runtime, and one of llama.cpp.
fn kinds(models: u64) -> Vec<Kind> {
    let examples = examples::of("wasm");
    let wasm: Vec<Kind> = WASM
        .iter()
        .map(|slug| {
            let example = examples.iter().find(|example| example.slug == *slug).expect("an entry");
            (example.slug.clone(), example.input.clone())
        })
        .collect();
    let onnx = ONNX.map(|name| {
        let fixture = Fixture::named(name);
        let case = fixture.cases.iter().find(|case| fixture.task_of(case) == fixture.task);
        (name.to_owned(), fixture.input(case.expect("a case of its task")))
    });
    let simulated = |number: u64| {
        (format!("sim-{}", number % models), json!({ "prompt": "hello", "max_tokens": 1, "delay_ms": 0 }))
    };
    let chat = || ("llm-chat".to_owned(), json!({ "prompt": "hello", "max_tokens": 1 }));
    // Every model of every engine has its turn.
    let rounds = models * WASM.len() as u64;
    let round = |round: u64| {
        let simulated = (0..5).map(move |number| simulated(round * 5 + number));
        let wasm = (0..2).map(|number| wasm[(round * 2 + number) as usize % WASM.len()].clone());
        let onnx = (0..2).map(|number| onnx[(round * 2 + number) as usize % ONNX.len()].clone());
        simulated.chain(wasm).chain(onnx).chain([chat()]).collect::<Vec<_>>()
    };
    (0..rounds).flat_map(round).collect()
}

/// A job of each of the slower engines.
fn slow_kinds() -> Vec<Kind> {
    let containers = examples::of("container");
    let container = containers.into_iter().find(|example| example.slug == CONTAINER).expect("an entry");
    let picture =
        json!({ "prompt": "a fox", "width": 64, "height": 64, "num_inference_steps": 1, "seed": 1 });
    let coreml = fixture_cargos::coreml_cases(COREML)["answers"][0]["input"].clone();
    vec![(COREML.to_owned(), coreml), ("sd-tiny".to_owned(), picture), (container.slug, container.input)]
}

/// Runs `count` jobs, one kind after the other, and checks every end. Returns the longest time between two ends.
async fn run(client: &Client, count: u64, kinds: &Arc<Vec<Kind>>) -> Duration {
    let started = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
    let clients = (0..CLIENTS).map(|_| {
        let (client, started, kinds) = (client.clone(), Arc::clone(&started), Arc::clone(kinds));
        let ends = Arc::clone(&ends);
        tokio::spawn(async move {
            loop {
                let number = started.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let (cargo, input) = &kinds[(number % kinds.len() as u64) as usize];
                let job = client.submit_job(cargo, input.clone(), 0).await.expect("submit");
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
                {
                    let (last, longest) = &mut *ends.lock().expect("no holder panicked");
                    *longest = last.elapsed().max(*longest);
                    *last = Instant::now();
                }
                let job = final_job(&client, job.id).await;
                let complete = job.output.is_some() && job.usage.is_some() && job.completed_at.is_some();
                assert!(complete && job.error.is_none(), "job {number}: {job:?}");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("every job completes");
    }
    ends.lock().expect("no holder panicked").1
}

/// What a network uses.
#[derive(Debug)]
struct Measured {
    /// Its long-lived processes.
    processes: BTreeMap<String, Usage>,
    /// The agent's tables and its tasks.
    tables: BTreeMap<String, u64>,
    /// Number of files in each folder of the Island.
    files: BTreeMap<String, u64>,
}

/// Measures a network, once the Island has removed the spools of the jobs that have ended.
async fn measure(network: &Network) -> Measured {
    let island = network.folder().join("island-1");
    let spools = island.join("spool");
    eventually("no spool is left", || async {
        (fs::read_dir(&spools).expect("list the spools").count() == 0).then_some(())
    })
    .await;
    let parts = ["coordinator", "island-1"].map(|part| (part.to_owned(), network.pid(part)));
    let workers = processes::workers(network.folder()).into_iter().map(|worker| {
        let program = worker.command.split([' ', '/']).find(|part| part.starts_with("island-worker-"));
        (format!("{} {}", program.unwrap_or("worker"), worker.pid), worker.pid)
    });
    let processes = parts.into_iter().chain(workers).map(|(part, pid)| (part, Usage::of(pid))).collect();
    let status = Command::new(program("island-agent"))
        .args(["status", "--json", "--state-dir"])
        .arg(&island)
        .output()
        .expect("read the status");
    let status: Value = serde_json::from_slice(&status.stdout).expect("a status");
    let tables = serde_json::from_value(status["tables"].clone()).expect("the sizes of the tables");
    let mut files = BTreeMap::new();
    for folder in ["journal", "spool", "w", "derived", "egress"] {
        count_files(&island.join(folder), files.entry(folder.to_owned()).or_default());
    }
    Measured { processes, tables, files }
}

fn count_files(folder: &Path, count: &mut u64) {
    for entry in fs::read_dir(folder).expect("list the folder") {
        let path = entry.expect("readable").path();
        *count += 1;
        if path.is_dir() {
            count_files(&path, count);
        }
    }
}
