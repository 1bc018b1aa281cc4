//! The fixtures, and the comparison of outputs with the reference's.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

pub(crate) mod arrays;
mod pictures;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, JobId},
    job::{Failure, Outcome},
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime, WorkCounter};
use island_runtimes_graph::tensor_trace::TensorTrace;
use island_runtimes_onnx::runtime::{GpuLimits, Onnx, Settings};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A repository and its expected outputs.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Fixture {
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(skip)]
    pub(crate) folder: PathBuf,
    pub(crate) task: String,
    /// Settings that the files lack.
    #[serde(default)]
    pub(crate) engine: Value,
    pub(crate) cases: Vec<Case>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// If it differs from the repository's.
    pub(crate) task: Option<String>,
    pub(crate) input: Value,
    pub(crate) output: Value,
    #[serde(default = "usual")]
    pub(crate) tolerance: f64,
    /// Pixels by which the sides of boxes may differ.
    #[serde(default)]
    pub(crate) box_tolerance: f64,
    /// Share of an image's pixels that may differ by more than the tolerance.
    #[serde(default)]
    pub(crate) mask_tolerance: f64,
    /// The first inputs of graphs by name.
    #[serde(default)]
    pub(crate) tensors: BTreeMap<String, String>,
    /// Their first outputs.
    #[serde(default)]
    pub(crate) raw: BTreeMap<String, String>,
}

fn usual() -> f64 {
    1e-4
}

/// The folder of the fixtures, for tests of any crate.
fn fixtures() -> PathBuf {
    island_testing::workspace().join("runtimes/onnx/tests/fixtures")
}

/// All fixtures, or those whose name contains `ONNX_FIXTURE`.
pub(crate) fn all() -> Vec<Fixture> {
    let folder = fixtures();
    let only = island_testing::selection("ONNX_FIXTURE").unwrap_or_default();
    let entries = fs::read_dir(folder).expect("the fixtures").map(|entry| entry.expect("readable").path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.join("cases.json").is_file()).collect();
    folders.sort();
    folders
        .into_iter()
        .map(|folder| Fixture::read(&folder))
        .filter(|fixture| fixture.name.contains(&only))
        .collect()
}

impl Fixture {
    pub(crate) fn read(folder: &Path) -> Self {
        let text = fs::read(folder.join("cases.json")).expect("readable");
        let mut fixture: Self =
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        fixture.name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        folder.clone_into(&mut fixture.folder);
        if fixture.name.ends_with("-fp16") && gpu().is_some() {
            // The processor computes in full precision with the same weights.
            fixture.cases.iter_mut().for_each(|case| case.tolerance = case.tolerance.max(1e-2));
        }
        fixture
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::read(&fixtures().join(name))
    }

    /// The tasks of its cases.
    pub(crate) fn tasks(&self) -> BTreeSet<String> {
        self.cases.iter().map(|case| self.task_of(case).to_owned()).collect()
    }

    pub(crate) fn task_of<'f>(&'f self, case: &'f Case) -> &'f str {
        case.task.as_deref().unwrap_or(&self.task)
    }

    pub(crate) fn cargo(&self, task: &str) -> CargoSpec {
        let cargo = json!({
            "slug": self.name, "runtime_type": "onnx", "onnx_task_type": task, "engine": self.engine,
        });
        serde_json::from_value(cargo).expect("a Cargo")
    }

    /// The repository's files by their path in it.
    pub(crate) fn files(&self) -> BTreeMap<String, PathBuf> {
        let root = self.folder.join("model");
        let mut files = BTreeMap::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
                    files.insert(name, path);
                }
            }
        }
        files
    }

    pub(crate) async fn load(&self, task: &str) -> Result<Onnx, Failure> {
        Onnx::load(settings(self.cargo(task), self.files())).await.map_err(Failure::from)
    }

    /// Loaded, with a recorder of its graphs' tensors.
    pub(crate) async fn load_watched(&self, task: &str) -> Result<(Onnx, TensorTrace), Failure> {
        let watch = TensorTrace::on();
        let settings = Settings { watch: watch.clone(), ..settings(self.cargo(task), self.files()) };
        Ok((Onnx::load(settings).await?, watch))
    }

    /// Media named by file are inserted as base64.
    pub(crate) fn input(&self, case: &Case) -> Value {
        let mut input = case.input.clone();
        for field in ["image", "audio"] {
            if let Some(file) = input.get(field).and_then(|media| media.get("file")).and_then(Value::as_str) {
                let bytes =
                    fs::read(self.folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
                input[field] = STANDARD.encode(bytes).into();
            }
        }
        input
    }

    pub(crate) async fn answer(&self, engine: &Onnx, case: &Case) -> Result<Value, Failure> {
        run_job(engine, self.cargo(self.task_of(case)), self.input(case)).await
    }
}

/// The machine's GPU, if `ONNX_GPU` is set.
fn gpu() -> Option<GpuLimits> {
    island_testing::selection("ONNX_GPU")?;
    Some(GpuLimits { addresses: vec![None], memory_mb: 4096 })
}

pub(crate) fn settings(cargo: CargoSpec, files: BTreeMap<String, PathBuf>) -> Settings {
    Settings { files, cargo, slots: 2, threads: 1, gpu: gpu(), watch: TensorTrace::default() }
}

/// The context of a job whose events nobody reads.
pub(crate) fn context(cancel: CancellationToken) -> RunContext {
    let (events, _received) = EventSink::channel();
    RunContext {
        key: AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 },
        events,
        cancel,
        scratch: std::env::temp_dir(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    }
}

/// One job.
pub(crate) async fn run_job(engine: &Onnx, cargo: CargoSpec, input: Value) -> Result<Value, Failure> {
    let context = context(CancellationToken::new());
    let request = RunRequest {
        cargo,
        input,
        artifacts: BTreeMap::new(),
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    };
    match engine.run(request, context).await {
        Outcome::Completed { output, .. } => Ok(output.unwrap_or_default()),
        Outcome::Failed { failure, .. } => Err(failure),
    }
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Where an output differs by more than the tolerance.
    pub(crate) wrong: Vec<String>,
    /// The largest difference of two numbers, those of boxes apart.
    pub(crate) largest: f64,
}

/// Where an output differs from the reference's.
pub(crate) fn agree(fixture: &Fixture, case: &Case, output: &Value) -> Vec<String> {
    let mut wrong = comparison(fixture, case, output).wrong;
    wrong.truncate(6);
    wrong
}

/// Compares an output with the reference's.
pub(crate) fn comparison(fixture: &Fixture, case: &Case, output: &Value) -> Comparison {
    let mut found = Comparison::default();
    compare(fixture, case, "", &case.output, output, &mut found);
    found
}

fn compare(fixture: &Fixture, case: &Case, at: &str, wanted: &Value, got: &Value, found: &mut Comparison) {
    match (wanted, got) {
        (Value::Object(file), Value::String(data)) if file.contains_key("file") => {
            let path = fixture.folder.join(file["file"].as_str().unwrap_or_default());
            let why = match STANDARD.decode(data) {
                Ok(bytes) => media_differs(&path, &bytes, case),
                Err(error) => Some(format!("invalid base64: {error}")),
            };
            found.wrong.extend(why.map(|why| format!("{at}: {why}")));
        }
        (Value::Object(wanted), Value::Object(got)) => {
            for (name, wanted) in wanted {
                let at = format!("{at}.{name}");
                match got.get(name) {
                    Some(got) => compare(fixture, case, &at, wanted, got, found),
                    None => found.wrong.push(format!("{at} is missing")),
                }
            }
        }
        (Value::Array(wanted), Value::Array(got)) => {
            if wanted.len() != got.len() {
                found.wrong.push(format!("{at} has {} items, not {}", got.len(), wanted.len()));
            }
            for (index, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                compare(fixture, case, &format!("{at}[{index}]"), wanted, got, found);
            }
        }
        (Value::Number(wanted), Value::Number(got)) => {
            let (wanted, got) = (wanted.as_f64().unwrap_or(f64::NAN), got.as_f64().unwrap_or(f64::NAN));
            // An integer is a count or an index; a number with a fraction is a measure.
            let is_side = ["xmin", "ymin", "xmax", "ymax"].iter().any(|side| at.ends_with(side));
            let is_place = is_side || at.contains(".box[");
            let tolerance = if is_place { case.box_tolerance.max(case.tolerance) } else { case.tolerance };
            let apart = (wanted - got).abs();
            if !is_place {
                found.largest = found.largest.max(apart);
            }
            if !(apart <= tolerance) {
                found.wrong.push(format!("{at} is {got}, not {wanted}"));
            }
        }
        _ if wanted == got => {}
        _ => {
            let short = |value: &Value| value.to_string().chars().take(200).collect::<String>();
            found.wrong.push(format!("{at} is {}, not {}", short(got), short(wanted)));
        }
    }
}

/// How an image or audio differs from the one in a file.
fn media_differs(path: &Path, bytes: &[u8], case: &Case) -> Option<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.ends_with(".npy") {
        return sound_differs(path, bytes);
    }
    if name.ends_with(".png") {
        return pictures::picture_differs(path, bytes, case).map(|why| format!("{name}: {why}"));
    }
    Some(format!("no way to compare {name} yet"))
}

/// How a wav file differs from the samples in a file.
fn sound_differs(path: &Path, wav: &[u8]) -> Option<String> {
    let wanted = npy(path);
    let samples = match wav_samples(wav) {
        Ok(samples) => samples,
        Err(why) => return Some(why),
    };
    let got: Vec<f32> = samples
        .chunks_exact(2)
        .map(|two| f32::from(i16::from_le_bytes([two[0], two[1]])) / 32767.0)
        .collect();
    if wanted.len() != got.len() {
        return Some(format!("{} samples, not {}", got.len(), wanted.len()));
    }
    let apart = wanted.iter().zip(&got).map(|(a, b)| (a.clamp(-1.0, 1.0) - b).abs()).fold(0.0, f32::max);
    // Half a step of 16 bits, and the difference between two machines.
    (apart > 1.2e-4).then(|| format!("samples are {apart} apart"))
}

/// The samples of a wav file in the form that the engine writes: one channel of 16 bits, and the length of the file.
fn wav_samples(wav: &[u8]) -> Result<&[u8], String> {
    let (header, samples) =
        wav.split_at_checked(44).ok_or(format!("{} bytes are not a wav file", wav.len()))?;
    let number =
        |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
    let rate = number(24);
    // A PCM chunk of 16 bytes; format 1 and one channel; bytes per second; two bytes a frame and 16 bits.
    let is_as_promised = header[..4] == *b"RIFF"
        && number(4) == wav.len() - 8
        && header[8..16] == *b"WAVEfmt "
        && number(16) == 16
        && number(20) == 0x1_0001
        && (8_000..=48_000).contains(&rate)
        && number(28) == rate * 2
        && number(32) == 0x10_0002
        && header[36..40] == *b"data"
        && number(40) == samples.len();
    if is_as_promised { Ok(samples) } else { Err(format!("unexpected wav header {header:?}")) }
}

#[test]
fn silence_and_broken_files_differ_from_the_expected_audio() {
    let fixture = Fixture::named("mms-tts");
    let case = fixture.cases.first().expect("a case");
    let path = fixture.folder.join(case.output["audio"]["file"].as_str().expect("a file of samples"));
    assert!(sound_differs(&path, &[]).is_some(), "nothing");
    let mut silence = Vec::new();
    let length = npy(&path).len() as u32 * 2;
    for part in
        [b"RIFF".as_slice(), &(36 + length).to_le_bytes(), b"WAVEfmt ", &16_u32.to_le_bytes(), &[1, 0, 1, 0]]
    {
        silence.extend_from_slice(part);
    }
    for part in
        [16_000_u32.to_le_bytes(), 32_000_u32.to_le_bytes(), [2, 0, 16, 0], *b"data", length.to_le_bytes()]
    {
        silence.extend_from_slice(&part);
    }
    assert!(
        wav_samples(&[silence.as_slice(), &vec![0; length as usize]].concat()).is_ok(),
        "a header as promised"
    );
    assert!(
        sound_differs(&path, &[silence.as_slice(), &vec![0; length as usize]].concat()).is_some(),
        "silence"
    );
    assert!(
        sound_differs(&path, &[&[0; 44], vec![0; length as usize].as_slice()].concat()).is_some(),
        "no header"
    );
}

/// The numbers of a file that numpy wrote.
pub(crate) fn npy(path: &Path) -> Vec<f32> {
    arrays::read(path).values
}
