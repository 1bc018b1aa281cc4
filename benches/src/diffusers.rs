//! A step of Stable Diffusion 1.5 on a processor, compared with torch and diffusers with the same weights in the same run.
//!
//! The engine computes in f32, so torch in f32 is the equal peer; torch in bf16 is the fastest peer on current processors. All take the
//! same steps with the same weights, random ones of the real shape. Island's steps run as a job and are timed by its events.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, JobId},
    job::Outcome,
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime as _, WorkCounter};
use island_runtimes_diffusers::runtime::{Diffusers, Settings};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    python::Python,
    report::{Better, Report},
};

/// Steps of a round; the first is not counted, for it also waits for memory.
const STEPS: usize = 4;

/// Measures pictures of these sides.
pub(crate) async fn run(rounds: usize, folder: &Path, python: &Path, sides: &[usize]) -> Result<Report> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let engine = load(folder, threads).await?;
    let peer = |dtype: &str| {
        let threads = threads.to_string();
        Python::start(python, "diffusers/peer.py", &[folder.as_os_str(), threads.as_ref(), dtype.as_ref()])
    };
    let (mut whole, mut half) = (peer("float32")?, peer("bfloat16")?);
    let setup = format!("{}, peer {}, {threads} threads each", engine.version(), whole.version);
    let mut report = Report::new("Stable Diffusion 1.5", setup);
    for &side in sides {
        let (mut ours, mut wholes, mut halves) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let wanted = json!({ "size": side, "steps": STEPS });
            let figures = (step_ms(&engine, side).await?, whole.ask(&wanted)?, half.ask(&wanted)?);
            // The first round warms up.
            if round > 0 {
                ours.push(figures.0);
                wholes.push(figures.1["step_ms"].as_f64().context("a time")?);
                halves.push(figures.2["step_ms"].as_f64().context("a time")?);
            }
        }
        for (peer, theirs) in [("torch f32", &wholes), ("torch bf16", &halves)] {
            report.compare(format!("step at {side} × {side}"), ("ms", Better::Lower), &ours, peer, theirs);
            report.headline();
        }
    }
    let peak = |file: &str| -> Result<u64> {
        let status = fs::read_to_string(file).with_context(|| format!("read {file}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
        Ok(line.split_whitespace().next().context("a number")?.parse::<u64>()? / 1024)
    };
    let answer = whole.ask(&json!({ "size": sides.first().copied().unwrap_or(64), "steps": 2 }))?;
    let theirs = answer["peak_mib"].as_u64().context("a size")?;
    let ours = peak("/proc/self/status")?;
    report.compare("peak memory", ("MiB", Better::Lower), &[ours as f64], "torch f32", &[theirs as f64]);
    Ok(report)
}

async fn load(folder: &Path, threads: usize) -> Result<Diffusers> {
    let settings = Settings {
        files: files(folder)?,
        cargo: cargo(),
        slots: 1,
        threads: threads as u32,
        memory_limit_mb: 0,
        gpus: Vec::new(),
    };
    Ok(Diffusers::load(settings).await?)
}

/// The files of a repository by their path in it.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).with_context(|| format!("read {}", inner.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder)?.to_string_lossy().into_owned(), path);
            }
        }
    }
    Ok(files)
}

fn cargo() -> CargoSpec {
    serde_json::from_value(json!({ "slug": "sd", "runtime_type": "diffusers" })).expect("a Cargo")
}

/// Milliseconds of a step, by the events of a job.
async fn step_ms(engine: &Diffusers, side: usize) -> Result<f64> {
    let (events, mut heard) = EventSink::channel();
    let context = RunContext {
        key: AttemptKey { job_id: JobId(uuid::Uuid::nil()), attempt: 1, epoch: 1 },
        events,
        cancel: CancellationToken::new(),
        scratch: PathBuf::new(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    };
    let input = json!({
        "prompt": "a lighthouse on a rocky island", "width": side, "height": side, "steps": STEPS, "seed": 0,
    });
    let request = RunRequest {
        cargo: cargo(),
        input,
        artifacts: BTreeMap::new(),
        continues: None,
        continues_reasoning: None,
        scope: String::new(),
    };
    let listening = async {
        let mut ends = Vec::new();
        while let Some(event) = heard.recv().await {
            if let AttemptEvent::Progress { step, phase, .. } = event
                && step > 0
                && phase.as_deref() == Some("denoise")
            {
                ends.push(Instant::now());
            }
        }
        ends
    };
    let (outcome, ends) = tokio::join!(engine.run(request, context), listening);
    if let Outcome::Failed { failure, .. } = outcome {
        bail!("no picture: {}", failure.message);
    }
    let steps: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect();
    Ok(steps.iter().sum::<f64>() / steps.len().max(1) as f64)
}
