//! The speed of a worker alone, without an agent and a network: the middle between `bare_loop` and a whole network.
//!
//! `worker_speed WORKER MODEL THREADS STREAMS TOKENS WORDS [MB]` starts the program `WORKER`, runs `STREAMS` jobs at once, and prints the tokens per second of
//! all streams after the prompts, and the time to the first token of the first job in milliseconds. `MB` is the memory that the worker may use of
//! the first GPU that its probe lists.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program prints its figures and stops at the first error"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use island_protocol::{
    event::AttemptEvent,
    ids::{AttemptKey, InstanceId, JobId},
    job::Outcome,
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host,
    launch::{GpuGrant, Launch, ProbeReport},
};
use serde_json::json;

/// Longest time without a frame: a driver may compile its programs for minutes.
const PATIENCE: Duration = Duration::from_mins(10);

/// When a job's tokens came.
#[derive(Debug, Clone, Copy)]
struct Times {
    first: Instant,
    last: Instant,
    tokens: u64,
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, model, threads, streams, tokens, words, memory @ ..] = arguments.as_slice() else {
        panic!("usage: worker_speed WORKER MODEL THREADS STREAMS TOKENS WORDS [MB]");
    };
    let (streams, tokens, words): (u32, u64, usize) =
        (streams.parse().unwrap(), tokens.parse().unwrap(), words.parse().unwrap());
    let gpus = memory.first().map(|mb| granted(program, mb.parse().unwrap())).into_iter().collect();
    let cargo = json!({"slug": "speed", "runtime_type": "llmcpp", "required_vram_mb": 1});
    let launch = Launch {
        artifacts: BTreeMap::from([("model".to_owned(), PathBuf::from(model).canonicalize().unwrap())]),
        threads: threads.parse().unwrap(),
        slots: streams,
        orphan_timeout_s: 30,
        gpus,
        environment: std::env::vars().collect(),
        ..Launch::new(InstanceId(uuid::Uuid::now_v7()), serde_json::from_value(cargo).unwrap())
    };
    let folder = tempfile::tempdir().unwrap();
    let mut worker = host::spawn(Path::new(program), &folder.path().join("worker"), &launch).await.unwrap();
    // The first round compiles what the driver needs.
    round(&mut worker, &launch, streams, tokens.min(8), words).await;
    let (began, times) = round(&mut worker, &launch, streams, tokens, words).await;
    let first = times.iter().map(|times| times.first).max().unwrap();
    let last = times.iter().map(|times| times.last).max().unwrap();
    // The first token of each stream belongs to its prompt.
    let written: u64 = times.iter().map(|times| times.tokens - 1).sum();
    println!("{:.3}", written as f64 / (last - first).as_secs_f64());
    println!("{:.1}", (times[0].first - began).as_secs_f64() * 1000.0);
    worker.process.kill().unwrap();
    worker.process.wait().await.unwrap();
}

fn granted(program: &str, memory_mb: u64) -> GpuGrant {
    let output = Command::new(program).arg("--probe").output().unwrap();
    let report: ProbeReport = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = report.devices.into_iter().find(|device| device.api != "cpu").expect("a GPU");
    GpuGrant { index: 0, address: gpu.address, memory_mb }
}

/// Runs one job in each stream.
async fn round(
    worker: &mut host::Worker,
    launch: &Launch,
    streams: u32,
    tokens: u64,
    words: usize,
) -> (Instant, Vec<Times>) {
    let began = Instant::now();
    let mut keys = Vec::new();
    for stream in 0..streams {
        let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
        // Prompts differ from their beginning, so that none is known from another.
        let prompt: Vec<String> = (0..words).map(|word| format!("word{stream}x{tokens}x{word}")).collect();
        let request = Box::new(RunRequest {
            cargo: launch.cargo.clone(),
            input: json!({"prompt": prompt.join(" "), "max_tokens": tokens, "temperature": 0}),
            artifacts: launch.artifacts.clone(),
            continues: None,
            continues_reasoning: None,
            scope: "speed".to_owned(),
        });
        worker
            .connection
            .commands
            .send(ToWorker::Run { key, first_event: 1, request, reports_steps: false })
            .await
            .unwrap();
        keys.push(key);
    }
    let mut times: BTreeMap<AttemptKey, Times> = BTreeMap::new();
    let mut open = keys.len();
    while open > 0 {
        let frame =
            tokio::time::timeout(PATIENCE, worker.connection.frames.next()).await.expect("a frame in time");
        match frame.expect("the worker runs").unwrap() {
            FromWorker::LoadFailed { failure } => panic!("{failure:?}"),
            FromWorker::Events { key, events } => {
                let now = Instant::now();
                for event in events {
                    match event.event {
                        AttemptEvent::Token { count, .. } => {
                            let times =
                                times.entry(key).or_insert(Times { first: now, last: now, tokens: 0 });
                            times.last = now;
                            times.tokens += u64::from(count);
                        }
                        AttemptEvent::Ended { outcome: Outcome::Completed { .. } } => open -= 1,
                        AttemptEvent::Ended { outcome } => panic!("{outcome:?}"),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (began, keys.iter().map(|key| times[key]).collect())
}
