//! The tasks, and the module of each.

use std::collections::BTreeSet;

use island_protocol::{cargo::CargoSpec, host::CPU};
use island_runtimes_graph::{Graph, Resources, files::GraphFiles, gpu::Gpu, tensor_trace::TensorTrace};
use island_runtimes_kit::{
    error::{EngineError, ErrorKind},
    keys::{self, Form},
    pipeline::Pipeline,
    repository::Repository,
    text::tokens::Tokens,
};
use ort::environment::Environment;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    batch::{self, Batcher},
    speech, text, vision,
};

/// The parts of which a pipeline is loaded.
#[derive(Debug)]
pub struct Loader<'l> {
    /// ONNX Runtime.
    pub environment: &'l Environment,
    /// The Cargo's files.
    pub repository: Repository,
    /// Resources of each graph.
    pub resources: Resources,
    /// The `[engine]` table of the Cargo's entry: settings that the files lack.
    pub settings: Value,
    /// Records the tensors of graphs, for tests.
    pub watch: TensorTrace,
    /// The devices of the graphs that were loaded.
    pub devices: Mutex<BTreeSet<String>>,
}

impl Loader<'_> {
    /// The preferred file of a graph.
    pub fn file(&self, stem: &str) -> Option<GraphFiles> {
        GraphFiles::find(&self.repository, stem, self.resources.preference())
    }

    fn first_file(&self, stems: &[&str]) -> Result<GraphFiles, EngineError> {
        GraphFiles::first(&self.repository, stems, self.resources.preference())
    }

    /// Loads the first of these graphs that the repository has, for a task that feeds these inputs. An error if it needs another one.
    pub fn graph(&self, stems: &[&str], fed: &[&str]) -> Result<Graph, EngineError> {
        let graph = self.load(&self.first_file(stems)?)?;
        graph.require_fed(fed)?;
        Ok(graph)
    }

    /// Loads the first of these graphs that the repository has, for a task that feeds an image.
    pub fn image_graph(&self, stems: &[&str]) -> Result<Graph, EngineError> {
        let graph = self.load(&self.first_file(stems)?)?;
        vision::require_image(&graph)?;
        Ok(graph)
    }

    /// The same for a graph with many short runs.
    pub fn graph_with_lanes(&self, stems: &[&str]) -> Result<Graph, EngineError> {
        let files = self.first_file(stems)?;
        Ok(self.noted(Graph::load_with_lanes(self.environment, &files, self.resources)?))
    }

    /// Loads the graph of a model that labels or embeds texts.
    pub fn text_graph(&self, tokens: &Tokens) -> Result<Batcher, EngineError> {
        text::attention::check(&self.repository.config)?;
        let graph = self.graph_with_lanes(&["model"])?;
        graph.require_fed(&batch::FED)?;
        if graph.takes("token_type_ids") {
            tokens.check_types()?;
        }
        let kind = self.repository.config.get("model_type").and_then(Value::as_str).unwrap_or_default();
        Ok(Batcher::new(graph, tokens.pad_id, kind))
    }

    /// Loads a graph that may be absent.
    pub fn graph_if_there(&self, stem: &str) -> Result<Option<Graph>, EngineError> {
        self.file(stem).map(|files| self.load(&files)).transpose()
    }

    /// Loads the graph of these files.
    pub fn load(&self, files: &GraphFiles) -> Result<Graph, EngineError> {
        Ok(self.noted(Graph::load(self.environment, files, self.resources)?))
    }

    fn noted(&self, graph: Graph) -> Graph {
        let device = graph.gpu().map_or_else(|| CPU.to_owned(), Gpu::label);
        self.devices.lock().insert(device);
        graph.watched(&self.watch)
    }

    /// The devices of all graphs that were loaded, as in [`island_protocol::job::Usage::device`]; a GPU before the processor.
    pub fn device(&self) -> String {
        let devices = self.devices.lock();
        let (cpu, mut gpus): (Vec<_>, Vec<_>) = devices.iter().cloned().partition(|device| device == CPU);
        gpus.extend(cpu);
        gpus.join(", ")
    }

    /// A setting of the entry, or else of a settings file.
    pub fn setting<'v>(&'v self, name: &str, file: &'v Value) -> Option<&'v Value> {
        self.settings.get(name).or_else(|| file.get(name)).filter(|value| !value.is_null())
    }
}

/// Loads a pipeline from a repository.
type Load = fn(&Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError>;

/// All tasks by their name in the catalogue.
const TASKS: [(&str, Load); 18] = [
    ("text-classification", text::classify::load),
    ("text-ranking", text::rank::load),
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
    ("automatic-speech-recognition", speech::transcribe::load),
    ("text-to-speech", speech::tts::load),
];

/// Keys of `[engine]`, of all tasks.
const KEYS: [(&str, Form); 12] = [
    ("pooling", Form::Text),
    ("normalize", Form::Flag),
    ("prompts", Form::Table),
    ("default_prompt_name", Form::Text),
    ("prefix", Form::Text),
    ("overlap", Form::Number),
    ("languages", Form::List),
    ("speaker_embeddings", Form::Text),
    ("threshold", Form::Number),
    ("minlenratio", Form::Number),
    ("maxlenratio", Form::Number),
    ("word_times", Form::Flag),
];

/// Loads the pipeline of a Cargo's task.
pub fn load(cargo: &CargoSpec, loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let task = cargo.onnx_task_type.as_deref().unwrap_or_default();
    let Some((_, load)) = TASKS.iter().find(|(name, _)| *name == task) else {
        let message = format!("unknown task {task:?}; known tasks: {}", names().join(", "));
        return Err(EngineError::new(ErrorKind::UnsupportedTask, message));
    };
    keys::check_engine(&loader.settings, &KEYS)?;
    load(loader)
}

/// The names of all tasks.
pub fn names() -> Vec<&'static str> {
    TASKS.iter().map(|(name, _)| *name).collect()
}
