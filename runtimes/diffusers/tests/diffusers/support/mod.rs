//! The fixtures, and the comparison of results with the reference's.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use candle_core::{Device, Tensor};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, JobId},
    job::{Failure, Outcome},
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime as _, WorkCounter};
use island_runtimes_diffusers::{
    model::{Model, On},
    networks::graphs::Engine,
    noise::{Noise, Purpose},
    repository::Repository,
    runtime::{Diffusers, Settings},
    weights::Element,
};
use island_runtimes_graph::{Resources, gpu::Gpu, library};
use island_runtimes_kit::error::EngineError;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) mod pipelines;

/// The folder of the fixtures, for tests of any crate.
pub(crate) fn fixtures() -> PathBuf {
    island_testing::workspace().join("runtimes/diffusers/tests/fixtures")
}

/// A repository and its expected results.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) cases: Value,
    tensors: BTreeMap<String, Numbers>,
}

/// A tensor of the reference.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Numbers {
    /// `[n, c, h, w]` as `[n, h, w, c]`.
    pub(crate) fn pixels_last(&self) -> Self {
        let &[batch, channels, height, width] = self.shape.as_slice() else { panic!("{:?}", self.shape) };
        let from = |at: usize| {
            let (channel, pixel) = (at % channels, at / channels);
            let (x, y, n) = (pixel % width, pixel / width % height, pixel / width / height);
            ((n * channels + channel) * height + y) * width + x
        };
        let values = (0..self.values.len()).map(|at| self.values[from(at)]).collect();
        Self { shape: vec![batch, height, width, channels], values }
    }

    /// One element of the first dimension.
    pub(crate) fn at(&self, index: usize) -> Self {
        let shape = self.shape[1..].to_vec();
        let size: usize = shape.iter().product();
        Self { values: self.values[index * size..][..size].to_vec(), shape }
    }

    /// An image of a batch, channels last.
    pub(crate) fn picture(&self, index: usize) -> Vec<f32> {
        let one = self.at(index);
        let shape = [&[1], one.shape.as_slice()].concat();
        Self { shape, values: one.values }.pixels_last().values
    }

    pub(crate) fn tensor(&self) -> Tensor {
        Tensor::from_vec(self.values.clone(), self.shape.as_slice(), &Device::Cpu).expect("a tensor")
    }
}

fn read_tensors(path: &Path) -> BTreeMap<String, Numbers> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let read = tensors.iter().map(|(name, view)| {
        let values =
            view.data().chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four")));
        (name.to_owned(), Numbers { shape: view.shape().to_vec(), values: values.collect() })
    });
    read.collect()
}

impl Fixture {
    /// The fixture in a folder with `cases.json` and `tensors.safetensors`.
    pub(crate) fn read(folder: &Path, golden: &Path) -> Self {
        // Python writes numbers that JSON lacks.
        let cases =
            fs::read_to_string(golden.join("cases.json")).expect("cases").replace("-Infinity", "null");
        Self {
            name: folder.file_name().expect("a name").to_string_lossy().into_owned(),
            folder: folder.to_owned(),
            cases: serde_json::from_str(&cases).expect("JSON"),
            tensors: read_tensors(&golden.join("tensors.safetensors")),
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        let folder = fixtures().join(name);
        Self::read(&folder, &folder.join("golden"))
    }

    pub(crate) fn list(&self, name: &str) -> Vec<Value> {
        self.cases.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(crate) fn numbers(&self, name: &str) -> &Numbers {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no tensor {name}", self.name))
    }

    /// The repository's files by their path, and adapters with them.
    pub(crate) fn files(&self) -> BTreeMap<String, PathBuf> {
        let mut files = files_in(&self.folder.join("model"));
        let beside = self.folder.parent().expect("a folder of fixtures");
        for (name, path) in files_in(&beside.join("lora")) {
            files.insert(format!("loras/{name}"), path);
        }
        files
    }

    pub(crate) fn model(&self, on: &On) -> Result<Model, EngineError> {
        Model::load(Repository::new(self.files()), &Value::Null, on, None)
    }

    /// A file in the folder of the cases, in base64.
    pub(crate) fn base64(&self, file: &str) -> String {
        STANDARD.encode(fs::read(self.folder.join("golden").join(file)).expect("a file"))
    }

    pub(crate) fn cargo(&self) -> CargoSpec {
        let cargo = json!({ "slug": self.name, "runtime_type": "diffusers" });
        serde_json::from_value(cargo).expect("a Cargo")
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            files: self.files(),
            cargo: self.cargo(),
            slots: 1,
            threads: 2,
            memory_limit_mb: 0,
            gpus: Vec::new(),
        }
    }
}

/// Graphs that the processor runs in ONNX Runtime, or a GPU if `SD_GPU` is set.
pub(crate) fn graphs(element: Element) -> On {
    let environment = library::open().expect("ONNX Runtime");
    let gpu = std::env::var_os("SD_GPU").map(|_| Gpu::open(environment, &[None], 1 << 20).expect("a GPU"));
    On::Graphs(Engine { environment, resources: Resources { gpu, ..Resources::cpu(2) }, element })
}

/// Repositories with goldens, or those whose name contains `SD_FIXTURE`.
pub(crate) fn all() -> Vec<Fixture> {
    let only = island_testing::selection("SD_FIXTURE").unwrap_or_default();
    let entries =
        fs::read_dir(fixtures()).expect("the fixtures").map(|entry| entry.expect("readable").path());
    let mut folders: Vec<PathBuf> =
        entries.filter(|path| path.join("model/model_index.json").is_file()).collect();
    folders.sort();
    let all = folders.iter().map(|folder| Fixture::read(folder, &folder.join("golden")));
    all.filter(|fixture| fixture.name.contains(&only)).collect()
}

/// Those with these names; all without any.
pub(crate) fn named(names: &[&str]) -> Vec<Fixture> {
    let is_named = |fixture: &Fixture| names.is_empty() || names.contains(&fixture.name.as_str());
    all().into_iter().filter(is_named).collect()
}

pub(crate) fn files_in(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("inside").to_string_lossy().into_owned();
                files.insert(name, path);
            }
        }
    }
    files
}

/// Noise of a fixture instead of a seed's.
#[derive(Debug)]
pub(crate) struct Given<'f> {
    pub(crate) fixture: &'f Fixture,
    /// Name of the case's tensors.
    pub(crate) case: String,
}

impl Noise for Given<'_> {
    fn draw(&self, picture: usize, purpose: Purpose, count: usize) -> Vec<f32> {
        let name = |tensor: &str| format!("{}/{tensor}", self.case);
        let drawn = match purpose {
            Purpose::Start => {
                let tensor = ["latents", "noise"].map(name).into_iter().find(|name| self.fixture.has(name));
                self.fixture.numbers(&tensor.expect("a start")).picture(picture)
            }
            // An initial image of several results has one draw.
            Purpose::Posterior => self.fixture.numbers(&name("posterior_noise")).picture(0),
            Purpose::MaskedPosterior => self.fixture.numbers(&name("masked_posterior_noise")).picture(0),
            Purpose::Step(step) => self.fixture.numbers(&name("step_noise")).at(step).picture(picture),
        };
        assert_eq!(drawn.len(), count, "{}: {purpose:?}", self.case);
        drawn
    }
}

/// The difference from the reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart {
    /// Maximum difference.
    pub(crate) most: f32,
    /// The same relative to the maximum.
    pub(crate) share: f32,
    /// Cosine of the angle between both.
    pub(crate) cosine: f64,
}

impl Apart {
    pub(crate) fn of(got: &[f32], wanted: &[f32]) -> Self {
        assert_eq!(got.len(), wanted.len(), "the length of the reference");
        let most = got
            .iter()
            .zip(wanted)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, |a: f32, b| if b > a || b.is_nan() { b } else { a });
        let greatest = wanted.iter().map(|value| value.abs()).fold(1e-9, f32::max);
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let norms = (dot(got, got) * dot(wanted, wanted)).sqrt();
        let cosine = if norms == 0.0 { 1.0 } else { dot(got, wanted) / norms };
        Self { most, share: most / greatest, cosine }
    }
}

/// One job with all its events.
pub(crate) async fn run_job(
    engine: &Diffusers,
    cargo: CargoSpec,
    input: Value,
) -> (Result<Value, Failure>, Vec<AttemptEvent>) {
    let (events, mut received) = EventSink::channel();
    let context = RunContext {
        key: AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 },
        events,
        cancel: CancellationToken::new(),
        scratch: std::env::temp_dir(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    };
    let request = RunRequest {
        cargo,
        input,
        artifacts: BTreeMap::new(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    };
    let outcome = engine.run(request, context).await;
    let mut said = Vec::new();
    while let Ok(event) = received.try_recv() {
        said.push(event);
    }
    match outcome {
        Outcome::Completed { output, .. } => (Ok(output.unwrap_or_default()), said),
        Outcome::Failed { failure, .. } => (Err(failure), said),
    }
}
