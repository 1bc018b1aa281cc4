//! The tasks, and which module answers each.

use island_protocol::{
    cargo::CargoSpec,
    job::{Failure, FailureCode},
};
use ort::environment::Environment;
use serde_json::Value;

use crate::{
    graph::{Graph, Threads, tensor_trace::TensorTrace},
    repository::{GraphFiles, Repository},
    run::{Answer, Job},
    speech, text, vision,
};

/// A loaded model that answers one task. Shared by jobs that run at once.
pub trait Pipeline: Send + Sync + 'static {
    /// Answers one input. Blocks; calls [`Job::step`] between steps.
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, Failure>;

    /// The graphs it runs, by their paths in the repository.
    fn graphs(&self) -> Vec<String>;
}

/// What a pipeline is loaded from.
#[derive(Debug)]
pub struct Loader<'l> {
    /// ONNX Runtime.
    pub environment: &'l Environment,
    /// The Cargo's files.
    pub repository: Repository,
    /// How to run graphs.
    pub threads: Threads,
    /// The entry's `[engine]` table: what the files do not say.
    pub settings: Value,
    /// Who looks at what passes through graphs.
    pub watch: TensorTrace,
}

impl Loader<'_> {
    /// Loads the first of these graphs that the repository has.
    pub fn graph(&self, stems: &[&str]) -> Result<Graph, Failure> {
        self.load(&self.repository.first_graph(stems)?)
    }

    /// The same for a graph that many ask small things of.
    pub fn graph_for_many(&self, stems: &[&str]) -> Result<Graph, Failure> {
        let files = self.repository.first_graph(stems)?;
        Ok(Graph::load_for_many(self.environment, &files, self.threads)?.watched(&self.watch))
    }

    /// Loads a graph that may be absent.
    pub fn graph_if_there(&self, stem: &str) -> Result<Option<Graph>, Failure> {
        self.repository.graph(stem).map(|files| self.load(&files)).transpose()
    }

    /// Loads the graph of these files.
    pub fn load(&self, files: &GraphFiles) -> Result<Graph, Failure> {
        Ok(Graph::load(self.environment, files, self.threads)?.watched(&self.watch))
    }

    /// A setting of the entry, or else of a settings file's object.
    pub fn setting<'v>(&'v self, name: &str, file: &'v Value) -> Option<&'v Value> {
        self.settings.get(name).or_else(|| file.get(name)).filter(|value| !value.is_null())
    }
}

/// Makes a pipeline of a repository.
type Load = fn(&Loader<'_>) -> Result<Box<dyn Pipeline>, Failure>;

/// Every task there is, by its name in the catalogue.
const TASKS: [(&str, Load); 17] = [
    ("text-classification", text::classify::load),
    ("zero-shot-classification", text::zero_shot::load),
    ("token-classification", text::entities::load),
    ("question-answering", text::span::load),
    ("feature-extraction", text::embed::load),
    ("fill-mask", text::mask::load),
    ("translation", text::seq2seq::load_translation),
    ("summarization", text::seq2seq::load_summarization),
    ("text2text-generation", text::seq2seq::load_text2text),
    ("image-classification", vision::classify::load),
    ("object-detection", vision::detect::load),
    ("image-segmentation", vision::segment::load),
    ("depth-estimation", vision::depth::load),
    ("image-to-text", vision::caption::load),
    ("ocr", vision::ocr::load),
    ("automatic-speech-recognition", speech::recognise::load),
    ("text-to-speech", speech::tts::load),
];

/// Loads what answers a Cargo's task.
pub fn load(cargo: &CargoSpec, loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, Failure> {
    let task = cargo.onnx_task_type.as_deref().unwrap_or_default();
    let Some((_, load)) = TASKS.iter().find(|(name, _)| *name == task) else {
        let message =
            format!("no engine here answers the task {task:?}; those there are: {}", names().join(", "));
        return Err(Failure::of_host(FailureCode::ModelRejected, message));
    };
    load(loader)
}

/// The names of all tasks.
pub fn names() -> Vec<&'static str> {
    TASKS.iter().map(|(name, _)| *name).collect()
}
