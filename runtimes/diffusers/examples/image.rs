//! The time and memory of one image, on the processor or on a GPU.
//!
//! `image FOLDER SIDE STEPS [gpu]` loads the repository in a folder, makes an image of this side, and prints one line of JSON: what computed,
//! seconds to load, milliseconds of the first and of the other steps and after the last one, allocated and resident memory in megabytes, and a
//! sample of the pixels.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program prints its figures and stops at the first error"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, JobId},
    job::Outcome,
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime as _, WorkCounter};
use island_runtimes_diffusers::runtime::{Diffusers, Settings};
use island_runtimes_graph::library;
use island_runtimes_worker::launch::GpuGrant;
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() {
    library::set_environment().unwrap();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([folder, side, steps] | [folder, side, steps, _]) = arguments.as_slice() else {
        panic!("usage: image FOLDER SIDE STEPS [gpu]");
    };
    let (side, steps): (usize, usize) = (side.parse().unwrap(), steps.parse().unwrap());
    let gpus = (arguments.len() == 4).then(|| GpuGrant { memory_mb: 1 << 20, ..GpuGrant::default() });
    let begin = Instant::now();
    let engine = Diffusers::load(Settings {
        files: files(Path::new(folder)),
        cargo: cargo(),
        slots: 1,
        threads: std::thread::available_parallelism().map_or(1, usize::from) as u32,
        memory_limit_mb: 0,
        gpus: gpus.into_iter().collect(),
    })
    .await
    .unwrap();
    let load_s = begin.elapsed().as_secs_f64();
    let loaded = memory();
    let (events, mut heard) = EventSink::channel();
    let context = RunContext {
        key: AttemptKey { job_id: JobId(uuid::Uuid::nil()), attempt: 1, epoch: 1 },
        events,
        cancel: CancellationToken::new(),
        scratch: PathBuf::new(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    };
    let request = RunRequest {
        cargo: cargo(),
        input: json!({ "prompt": "a lighthouse on a rocky island", "width": side, "height": side, "steps": steps, "seed": 1 }),
        artifacts: BTreeMap::new(),
        continues: None,
        continues_reasoning: None,
        scope: String::new(),
    };
    let listening = async {
        let mut ends = vec![Instant::now()];
        while let Some(event) = heard.recv().await {
            if matches!(event, AttemptEvent::Progress { .. } | AttemptEvent::Image(_)) {
                ends.push(Instant::now());
            }
        }
        ends
    };
    let (outcome, ends) = tokio::join!(engine.run(request, context), listening);
    let Outcome::Completed { output, usage, .. } = outcome else { panic!("{outcome:?}") };
    // Between events: the prompts, each step, the image.
    let times: Vec<u128> = ends.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    let file = STANDARD.decode(output.unwrap()["images"][0]["data"].as_str().unwrap()).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    let sample: Vec<u8> = pixels.iter().copied().step_by((pixels.len() / 64).max(1)).collect();
    println!(
        "{}",
        json!({
            "engine": engine.version(), "device": usage.device, "load_s": load_s, "times_ms": times,
            "loaded": loaded, "after": memory(), "pixels": sample,
        })
    );
}

/// Memory of this process, megabytes.
fn memory() -> BTreeMap<String, u64> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let wanted = ["VmHWM", "RssAnon", "RssFile", "RssShmem"];
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let fields = lines.filter(|(name, _)| wanted.contains(name));
    fields
        .map(|(name, value)| {
            let kilobytes: u64 = value.split_whitespace().next().unwrap().parse().unwrap();
            (name.to_owned(), kilobytes >> 10)
        })
        .collect()
}

fn cargo() -> CargoSpec {
    serde_json::from_value(json!({ "slug": "image", "runtime_type": "diffusers" })).unwrap()
}

/// The files of a repository by their path in it.
fn files(root: &Path) -> BTreeMap<String, PathBuf> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), path);
            }
        }
    }
    files
}
