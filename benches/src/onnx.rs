//! Graphs and embeddings, compared with Python's onnxruntime of the same version in the same run.
//!
//! First one graph at a time, the same tensors in both. Then embeddings for sixteen clients with texts of 16 to 256 tokens, tokenized,
//! run and pooled in both: here through the engine, which batches queued texts, there by sixteen threads on one session. The same texts
//! are sent over HTTP to servers that batch queued texts, mosec and LitServe, and to the engine behind a bare server, so that all of
//! them include the cost of HTTP. Texts per processor second are reported too: on a busy machine a program with more threads gets a
//! larger share. Last, the engine's processor time while idle, and its memory after ten thousand jobs.

mod processor;
mod servers;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, stream};
use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, JobId},
    job::Outcome,
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime as _, WorkCounter};
use island_runtimes_graph::{Feeds, Graph, Resources, files::GraphFiles, library, tensor_trace::TensorTrace};
use island_runtimes_onnx::runtime::{Onnx, Settings};
use ndarray::ArrayD;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use servers::{Server, Shape};
use tokio_util::sync::CancellationToken;

use crate::{
    python::Python,
    report::{Better, Report},
    stats::{Spread, median},
};

/// MiniLM's graphs.
const WHOLE: &str = "onnx/model.onnx";
const INT8: &str = "onnx/model_quantized.onnx";
/// Clients of the embeddings.
const CLIENTS: usize = 16;
/// Texts in a round of embeddings.
const TEXTS: usize = 192;
/// Jobs before and after which memory is looked at.
const MANY: usize = 10_000;
/// How long nothing is asked, for the processor time that is used nevertheless.
const IDLE: Duration = Duration::from_mins(1);

/// Measures everything.
pub(crate) async fn run(rounds: usize, folder: &Path, python: &Path) -> Result<Report> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut peer =
        Python::start(python, "onnx/peer.py", &[folder.as_os_str(), threads.to_string().as_ref()])?;
    let environment = library::open().map_err(|error| anyhow::anyhow!(error.reason))?;
    ensure!(
        peer.version == library::version(),
        "Python has onnxruntime {}, we have {}",
        peer.version,
        library::version()
    );
    let setup =
        format!("ONNX Runtime {} in both, {threads} threads each, {} rounds", peer.version, rounds - 1);
    let mut report = Report::new("ONNX graphs and embeddings", setup);
    for (name, path, feeds) in graphs() {
        let files = GraphFiles { name: name.to_owned(), path: folder.join(path), weights: Vec::new() };
        let settings = Resources::cpu(threads);
        let graph = Graph::load(environment, &files, settings)?;
        one_at_a_time(&mut report, rounds, name, &graph, &feeds, &mut peer)?;
    }
    for (name, graph) in [("minilm-int8", INT8), ("minilm", WHOLE)] {
        let engine = load(folder, graph, threads).await?;
        together(&mut report, rounds, name, &engine, &mut peer).await?;
    }
    drop(peer);
    let engine = load(folder, WHOLE, threads).await?;
    over_http(&mut report, rounds, &engine, folder, python, threads).await?;
    idle_and_memory(&mut report, &engine).await?;
    Ok(report)
}

/// A tensor of one value: shape, value, and what numpy calls its kind.
type Fed = (Vec<usize>, f32, &'static str);

fn graphs() -> [(&'static str, &'static str, BTreeMap<&'static str, Fed>); 4] {
    let tokens = || (vec![1, 128], 7.0, "int64");
    let minilm = BTreeMap::from([
        ("input_ids", tokens()),
        ("attention_mask", (vec![1, 128], 1.0, "int64")),
        ("token_type_ids", (vec![1, 128], 0.0, "int64")),
    ]);
    let pixels = BTreeMap::from([("pixel_values", (vec![1, 3, 224, 224], 0.5, "float32"))]);
    let sound = BTreeMap::from([("input_features", (vec![1, 80, 3000], 0.1, "float32"))]);
    [
        ("minilm", "minilm/onnx/model.onnx", minilm.clone()),
        ("minilm-int8", "minilm/onnx/model_quantized.onnx", minilm),
        ("resnet-50", "resnet-50.onnx", pixels),
        ("whisper-encoder", "whisper-encoder.onnx", sound),
    ]
}

fn one_at_a_time(
    report: &mut Report,
    rounds: usize,
    name: &str,
    graph: &Graph,
    feeds: &BTreeMap<&'static str, Fed>,
    peer: &mut Python,
) -> Result<()> {
    let (mut ours, mut theirs, mut count) = (Vec::new(), Vec::new(), 3);
    for round in 0..rounds {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            let mut made = Feeds::new();
            for (input, (shape, value, kind)) in feeds {
                made = match *kind {
                    "int64" => made.ints(input, ArrayD::from_elem(shape.as_slice(), *value as i64)),
                    _ => made.floats(input, ArrayD::from_elem(shape.as_slice(), *value)),
                };
            }
            graph.run(made)?;
            times.push(begin.elapsed().as_secs_f64());
        }
        let answer = peer.ask(&json!({ "graph": name, "count": count, "feeds": feeds }))?;
        let answer =
            answer["seconds"].as_array().context("times")?.iter().filter_map(Value::as_f64).collect();
        // The first round warms up and determines how many runs fill half a second.
        if round == 0 {
            count = (0.5 / times[times.len() - 1].max(1e-4)).clamp(3.0, 200.0) as usize;
            continue;
        }
        ours.push(median(times) * 1e3);
        theirs.push(median(answer) * 1e3);
    }
    report.compare(name, ("ms", Better::Lower), &ours, "onnxruntime", &theirs);
    report.headline();
    Ok(())
}

async fn load(folder: &Path, graph: &str, threads: usize) -> Result<Arc<Onnx>> {
    let files = [("config.json", "config.json"), ("tokenizer.json", "tokenizer.json"), (WHOLE, graph)];
    let files = files.map(|(name, file)| (name.to_owned(), folder.join("minilm").join(file)));
    let files = BTreeMap::from(files);
    let settings = Settings {
        files,
        cargo: cargo(),
        slots: CLIENTS as u32,
        threads: threads as u32,
        gpu: None,
        watch: TensorTrace::default(),
    };
    Ok(Arc::new(Onnx::load(settings).await?))
}

fn cargo() -> CargoSpec {
    let cargo = json!({
        "slug": "minilm", "runtime_type": "onnx", "onnx_task_type": "feature-extraction",
        "engine": { "pooling": "mean", "normalize": true },
    });
    serde_json::from_value(cargo).expect("a Cargo")
}

/// One text's vector, through the engine.
async fn embed(engine: &Onnx, text: &str) -> Result<Value> {
    let (events, _heard) = EventSink::channel();
    let context = RunContext {
        key: AttemptKey { job_id: JobId(uuid::Uuid::nil()), attempt: 1, epoch: 1 },
        events,
        cancel: CancellationToken::new(),
        scratch: PathBuf::new(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    };
    let input = json!({ "input": text });
    let request = RunRequest {
        cargo: cargo(),
        input,
        artifacts: BTreeMap::new(),
        continues: None,
        continues_reasoning: None,
        scope: String::new(),
    };
    match engine.run(request, context).await {
        Outcome::Completed { output: Some(mut output), .. } => Ok(output["embeddings"][0].take()),
        other => bail!("no embedding: {other:?}"),
    }
}

/// What some texts took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    seconds: f64,
    /// On all processors.
    processor_s: f64,
}

/// Texts a second and texts a processor second, round by round.
#[derive(Debug, Clone, Default)]
struct Rates {
    each_s: Vec<f64>,
    each_processor_s: Vec<f64>,
}

impl Rates {
    fn push(&mut self, cost: Cost) {
        self.each_s.push(TEXTS as f64 / cost.seconds);
        self.each_processor_s.push(TEXTS as f64 / cost.processor_s);
    }

    /// Adds the rate beside a peer's of the same rounds, and the rate per processor second as a note.
    fn compare(&self, report: &mut Report, figure: &str, peer: &str, theirs: &Self) {
        report.compare(figure, ("texts/s", Better::Higher), &self.each_s, peer, &theirs.each_s);
        report.headline();
        report.note(format!(
            "{figure}, {peer}: {:.1} texts per processor second, Island / peer {}",
            median(theirs.each_processor_s.clone()),
            Spread::of_ratios(&self.each_processor_s, &theirs.each_processor_s),
        ));
    }
}

async fn together(
    report: &mut Report,
    rounds: usize,
    name: &str,
    engine: &Arc<Onnx>,
    peer: &mut Python,
) -> Result<()> {
    let mut random = StdRng::seed_from_u64(3);
    let (mut ours, mut theirs) = (Rates::default(), Rates::default());
    for round in 0..rounds {
        let texts: Vec<String> = (0..TEXTS).map(|_| text(&mut random)).collect();
        let (begin, used) = (Instant::now(), processor::own_s()?);
        let vectors = all_of(texts.iter().map(|text| embed(engine, text))).await?;
        let cost = Cost { seconds: begin.elapsed().as_secs_f64(), processor_s: processor::own_s()? - used };
        let used = processor::of_s(peer.id())?;
        let answer = peer.ask(&json!({ "graph": name, "texts": texts, "clients": CLIENTS }))?;
        let seconds = answer["seconds"][0].as_f64().context("a time")?;
        let theirs_cost = Cost { seconds, processor_s: processor::of_s(peer.id())? - used };
        same(&numbers(&vectors[0])?, &numbers(&answer["first"])?)?;
        if round > 0 {
            ours.push(cost);
            theirs.push(theirs_cost);
        }
    }
    ours.compare(
        report,
        &format!("embeddings by {name}, {CLIENTS} clients"),
        "onnxruntime, unbatched",
        &theirs,
    );
    Ok(())
}

async fn over_http(
    report: &mut Report,
    rounds: usize,
    engine: &Arc<Onnx>,
    folder: &Path,
    python: &Path,
    threads: usize,
) -> Result<()> {
    // One worker with all threads and large batches, and a worker for each thread.
    let shapes = [
        Shape { workers: 1, threads, batch: CLIENTS },
        Shape { workers: threads, threads: 1, batch: (CLIENTS / threads).max(1) },
    ];
    let mut servers = vec![Server::ours(engine).await?];
    for kind in ["mosec", "litserve"] {
        for shape in shapes {
            servers.push(Server::python(python, kind, &folder.join("minilm"), shape).await?);
        }
    }
    let mut random = StdRng::seed_from_u64(4);
    let mut rates = vec![Rates::default(); servers.len()];
    for round in 0..rounds {
        let texts: Vec<String> = (0..TEXTS).map(|_| text(&mut random)).collect();
        let mut vectors = Vec::new();
        for (server, rates) in servers.iter().zip(&mut rates) {
            let (cost, first) = server.ask_all(&texts).await?;
            vectors.push(first);
            if round > 0 {
                rates.push(cost);
            }
        }
        vectors.iter().try_for_each(|vector| same(&vectors[0], vector))?;
    }
    for (server, theirs) in servers.iter().zip(&rates).skip(1) {
        let figure = format!("embeddings over HTTP, {CLIENTS} clients");
        rates[0].compare(report, &figure, &server.name, theirs);
    }
    Ok(())
}

/// The results of all requests in their order; each client sends its next request when it has the last result.
async fn all_of<T>(asked: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    let numbered = asked.enumerate().map(|(place, asked)| async move { (place, asked.await) });
    let mut given: Vec<(usize, Result<T>)> = stream::iter(numbered).buffer_unordered(CLIENTS).collect().await;
    given.sort_by_key(|(place, _)| *place);
    given.into_iter().map(|(_, given)| given).collect()
}

fn numbers(vector: &Value) -> Result<Vec<f64>> {
    Ok(vector.as_array().context("a vector")?.iter().filter_map(Value::as_f64).collect())
}

/// Fails where two vectors differ by more than padding explains.
fn same(one: &[f64], other: &[f64]) -> Result<()> {
    let apart = one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    ensure!(!one.is_empty() && !other.is_empty() && apart < 1e-4, "the two do not compute the same: {apart}");
    Ok(())
}

/// 14 to 254 words, each one token; two more frame them.
fn text(random: &mut StdRng) -> String {
    let count = random.random_range(14..=254);
    let words: Vec<String> = (0..count).map(|_| format!("w{}", random.random_range(4..30_000))).collect();
    words.join(" ")
}

async fn idle_and_memory(report: &mut Report, engine: &Arc<Onnx>) -> Result<()> {
    let many = |count: usize| {
        let engine = Arc::clone(engine);
        async move {
            let jobs = (0..count).map(|n| {
                let engine = Arc::clone(&engine);
                async move { embed(&engine, &format!("w{} w{}", 5 + n % 97, 7 + n % 89)).await.map(drop) }
            });
            stream::iter(jobs)
                .buffer_unordered(CLIENTS)
                .for_each(|done| async { done.expect("an embedding") })
                .await;
        }
    };
    many(MANY / 10).await;
    let before = resident_mb()?;
    many(MANY).await;
    report.note(format!("memory: {before} MB before {MANY} jobs, {} MB after", resident_mb()?));
    let used = processor::own_s()?;
    tokio::time::sleep(IDLE).await;
    let used = processor::own_s()? - used;
    report.note(format!("idle: {used:.2} s of processor time in {} s", IDLE.as_secs()));
    Ok(())
}

fn resident_mb() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.split_whitespace().next().context("a number")?.parse::<u64>()? / 1024)
}
