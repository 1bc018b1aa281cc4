//! The files of a Cargo, seen as the Hugging Face repository they come from.
//!
//! Artifacts are named by their path in the repository. Graphs lie in `onnx/` or at the root, one file for each precision:
//! `model.onnx`, `model_quantized.onnx`, `model_fp16.onnx`. Weights too large for a graph lie beside it, `model.onnx_data`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_protocol::job::{Failure, FailureCode};
use serde_json::Value;

use crate::run::invalid_model;

/// Most bytes of a settings file or tokeniser.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// Precisions by the suffix of their files, as they are preferred on a processor: small integers are fastest there, halves slowest.
const ON_CPU: [&str; 8] = ["_quantized", "_int8", "_uint8", "", "_q4", "_bnb4", "_q4f16", "_fp16"];
/// And on a GPU.
const ON_GPU: [&str; 8] = ["_fp16", "", "_q4f16", "_q4", "_bnb4", "_quantized", "_int8", "_uint8"];

/// A repository's files on this Island.
#[derive(Debug, Clone)]
pub struct Repository {
    files: BTreeMap<String, PathBuf>,
    /// Whether graphs will run on a GPU.
    on_gpu: bool,
    /// `config.json`.
    pub config: Arc<Value>,
}

/// A graph's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphFiles {
    /// Its path in the repository.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Weights beside it, by file name.
    pub weights: Vec<(String, PathBuf)>,
}

impl Repository {
    /// The repository of these files.
    pub fn open(files: BTreeMap<String, PathBuf>, on_gpu: bool) -> Result<Self, Failure> {
        let mut repository = Self { files, on_gpu, config: Arc::new(Value::Null) };
        repository.config = Arc::new(repository.json("config.json")?.unwrap_or(Value::Null));
        Ok(repository)
    }

    /// A settings file, if the repository has it.
    pub fn json(&self, name: &str) -> Result<Option<Value>, Failure> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Some).map_err(|error| invalid_model(format!("{name} is no JSON: {error}")))
    }

    /// The bytes of a file that is not a graph, if the repository has it.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(path) = self.path(name) else { return Ok(None) };
        let unreadable =
            |error| Failure::of_host(FailureCode::ModelUnavailable, format!("read {name}: {error}"));
        let length = fs::metadata(path).map_err(unreadable)?.len();
        if length > MAX_TEXT_BYTES {
            return Err(invalid_model(format!("{name} has {length} bytes, more than {MAX_TEXT_BYTES}")));
        }
        fs::read(path).map(Some).map_err(unreadable)
    }

    /// Where a file lies.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.files.get(name).map(PathBuf::as_path)
    }

    /// The first of these graphs that the repository has, or the only one, whatever its name.
    pub fn first_graph(&self, stems: &[&str]) -> Result<GraphFiles, Failure> {
        let found = stems.iter().find_map(|stem| self.graph(stem)).or_else(|| self.graph(self.only_stem()?));
        found.ok_or_else(|| invalid_model(format!("none of its files is the graph {}", stems.join(" or "))))
    }

    /// The name of the only graph, without its precision.
    fn only_stem(&self) -> Option<&str> {
        let mut stems = self.files.keys().filter_map(|path| {
            let name = path.strip_prefix("onnx/").unwrap_or(path).strip_suffix(".onnx")?;
            let suffix = ON_CPU.iter().find(|suffix| !suffix.is_empty() && name.ends_with(**suffix));
            Some(suffix.map_or(name, |suffix| &name[..name.len() - suffix.len()]))
        });
        let first = stems.next()?;
        stems.all(|stem| stem == first).then_some(first)
    }

    /// Paths of all its files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The first graph, wherever it lies, that has this word in its name: `ch_PP-OCRv4_det_infer.onnx`.
    pub fn graph_with(&self, word: &str) -> Option<GraphFiles> {
        let has_word = |path: &&String| {
            let name = path.rsplit('/').next().unwrap_or(path).strip_suffix(".onnx");
            name.is_some_and(|name| {
                name.split(|letter: char| !letter.is_alphanumeric()).any(|part| part == word)
            })
        };
        let name = self.files.keys().find(has_word)?;
        Some(GraphFiles { name: name.clone(), path: self.files[name].clone(), weights: Vec::new() })
    }

    /// The best file of a graph for what it will run on.
    pub fn graph(&self, stem: &str) -> Option<GraphFiles> {
        let suffixes = if self.on_gpu { ON_GPU } else { ON_CPU };
        let names = suffixes
            .into_iter()
            .flat_map(|suffix| [format!("onnx/{stem}{suffix}.onnx"), format!("{stem}{suffix}.onnx")]);
        // A Cargo of one file calls it `model`.
        let name = names.chain([stem.to_owned()]).find(|name| self.files.contains_key(name))?;
        let folder = name.rfind('/').map_or("", |end| &name[..=end]);
        let weights = self.files.iter().filter_map(|(other, path)| {
            let beside = other.strip_prefix(folder)?;
            let is_weights = !beside.contains('/') && other != &name && is_external_data(beside);
            is_weights.then(|| (beside.to_owned(), path.clone()))
        });
        Some(GraphFiles { path: self.files[&name].clone(), weights: weights.collect(), name })
    }
}

/// Whether a file holds weights of a graph: `model.onnx_data`, `model.onnx_data_1`, `model.onnx.data`, `weights.bin`.
fn is_external_data(name: &str) -> bool {
    name.contains(".onnx_data")
        || name.ends_with(".onnx.data")
        || name.ends_with(".data")
        || name.ends_with(".bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(names: &[&str], on_gpu: bool) -> Repository {
        let files = names
            .iter()
            .map(|name| ((*name).to_owned(), PathBuf::from("/blobs").join(name.replace('/', "-"))));
        Repository { files: files.collect(), on_gpu, config: Arc::default() }
    }

    #[test]
    fn a_processor_takes_integers_a_gpu_takes_halves() {
        let names = ["onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx"];
        assert_eq!(
            repository(&names, false).graph("model").expect("a graph").name,
            "onnx/model_quantized.onnx"
        );
        assert_eq!(repository(&names, true).graph("model").expect("a graph").name, "onnx/model_fp16.onnx");
    }

    #[test]
    fn graphs_at_the_root_are_found_too() {
        let root = repository(&["decoder_model.onnx", "config.json"], false);
        assert_eq!(root.graph("decoder_model").expect("a graph").name, "decoder_model.onnx");
        assert_eq!(root.graph("model"), None);
    }

    #[test]
    fn the_only_graph_may_have_any_name() {
        let yolo = repository(&["onnx/yolov8n.onnx", "onnx/yolov8n_fp16.onnx"], false);
        assert_eq!(yolo.first_graph(&["model"]).expect("a graph").name, "onnx/yolov8n.onnx");
        assert!(repository(&["det.onnx", "rec.onnx"], false).first_graph(&["model"]).is_err());
    }

    #[test]
    fn weights_belong_to_graphs_of_their_folder() {
        let names =
            ["onnx/model.onnx", "onnx/model.onnx_data", "model.onnx_data", "onnx/deep/model.onnx_data"];
        let graph = repository(&names, false).graph("model").expect("a graph");
        let weights: Vec<&str> = graph.weights.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(weights, ["model.onnx_data"]);
    }
}
