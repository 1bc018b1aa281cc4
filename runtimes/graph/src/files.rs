//! Choosing the file of a graph among those of a repository.
//!
//! Graphs lie in `onnx/` or at the root, one file for each precision: `model.onnx`, `model_quantized.onnx`, `model_fp16.onnx`. Weights too
//! large for a graph lie next to it, `model.onnx_data`.

use std::path::PathBuf;

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    repository::Repository,
};

/// Suffixes of precisions in order of preference on a CPU: small integers are fastest there, half precision slowest.
const ON_CPU: [&str; 8] = ["_quantized", "_int8", "_uint8", "", "_q4", "_bnb4", "_q4f16", "_fp16"];
/// The same on a GPU. Those from the fifth on run on the processor: GPUs do not multiply integers of 8 bits.
const ON_GPU: [&str; 8] = ["_fp16", "", "_q4f16", "_q4", "_quantized", "_int8", "_uint8", "_bnb4"];
/// The same on a GPU that does not compute in half precision.
const ON_GPU_WITHOUT_HALF: [&str; 8] =
    ["", "_q4", "_quantized", "_int8", "_uint8", "_bnb4", "_q4f16", "_fp16"];

/// The device for which a file is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// The processor.
    Cpu,
    /// A GPU.
    Gpu {
        /// Whether it computes in half precision.
        half: bool,
    },
}

impl Preference {
    fn suffixes(self) -> [&'static str; 8] {
        match self {
            Self::Cpu => ON_CPU,
            Self::Gpu { half: true } => ON_GPU,
            Self::Gpu { half: false } => ON_GPU_WITHOUT_HALF,
        }
    }
}

/// The files of one graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphFiles {
    /// The graph's path in the repository.
    pub name: String,
    /// Its path on this Island.
    pub path: PathBuf,
    /// External weights by file name.
    pub weights: Vec<(String, PathBuf)>,
}

impl GraphFiles {
    /// The first of these graphs that the repository has; otherwise its only graph, whatever its name.
    pub fn first(
        repository: &Repository,
        stems: &[&str],
        preference: Preference,
    ) -> Result<Self, EngineError> {
        let find = |stem: &str| Self::find(repository, stem, preference);
        let found = stems.iter().find_map(|stem| find(stem)).or_else(|| find(only_stem(repository)?));
        found.ok_or_else(|| invalid_model(format!("none of its files is the graph {}", stems.join(" or "))))
    }

    /// The first graph, in any folder, whose name contains `word`: `ch_PP-OCRv4_det_infer.onnx`.
    pub fn with_word(repository: &Repository, word: &str) -> Option<Self> {
        let has_word = |path: &&str| {
            let name = path.rsplit('/').next().unwrap_or(path).strip_suffix(".onnx");
            name.is_some_and(|name| {
                name.split(|letter: char| !letter.is_alphanumeric()).any(|part| part == word)
            })
        };
        let name = repository.names().find(has_word)?;
        Some(Self { name: name.to_owned(), path: repository.path(name)?.to_owned(), weights: Vec::new() })
    }

    /// The preferred file of a graph on this kind of device.
    pub fn find(repository: &Repository, stem: &str, preference: Preference) -> Option<Self> {
        let names = preference
            .suffixes()
            .into_iter()
            .flat_map(|suffix| [format!("onnx/{stem}{suffix}.onnx"), format!("{stem}{suffix}.onnx")]);
        // A Cargo of one file calls it `model`.
        let name = names.chain([stem.to_owned()]).find(|name| repository.path(name).is_some())?;
        let folder = name.rfind('/').map_or("", |end| &name[..=end]);
        let weights = repository.names().filter_map(|other| {
            let sibling = other.strip_prefix(folder)?;
            let is_weights = !sibling.contains('/') && other != name && is_external_data(sibling);
            Some((sibling.to_owned(), repository.path(other).filter(|_| is_weights)?.to_owned()))
        });
        Some(Self { path: repository.path(&name)?.to_owned(), weights: weights.collect(), name })
    }
}

/// The name of the only graph, without its precision.
fn only_stem(repository: &Repository) -> Option<&str> {
    let mut stems = repository.names().filter_map(|path| {
        let name = path.strip_prefix("onnx/").unwrap_or(path).strip_suffix(".onnx")?;
        let suffix = ON_CPU.iter().find(|suffix| !suffix.is_empty() && name.ends_with(**suffix));
        Some(suffix.map_or(name, |suffix| &name[..name.len() - suffix.len()]))
    });
    let first = stems.next()?;
    stems.all(|stem| stem == first).then_some(first)
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

    fn repository(names: &[&str]) -> Repository {
        let files = names
            .iter()
            .map(|name| ((*name).to_owned(), PathBuf::from("/blobs").join(name.replace('/', "-"))));
        Repository::open(files.collect()).expect("no config.json")
    }

    #[test]
    fn integers_are_preferred_on_a_cpu_and_half_precision_on_a_gpu() {
        let repository =
            repository(&["onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx"]);
        let name = |preference| GraphFiles::find(&repository, "model", preference).expect("a graph").name;
        assert_eq!(name(Preference::Cpu), "onnx/model_quantized.onnx");
        assert_eq!(name(Preference::Gpu { half: true }), "onnx/model_fp16.onnx");
        assert_eq!(name(Preference::Gpu { half: false }), "onnx/model.onnx");
    }

    #[test]
    fn every_preference_lists_every_precision() {
        let sorted = |mut suffixes: [&'static str; 8]| {
            suffixes.sort_unstable();
            suffixes
        };
        for half in [false, true] {
            let listed = Preference::Gpu { half }.suffixes();
            assert_eq!(sorted(listed), sorted(ON_CPU), "{half}");
        }
    }

    #[test]
    fn graphs_at_the_root_are_found() {
        let root = repository(&["decoder_model.onnx", "preprocessor_config.json"]);
        let find = |stem| GraphFiles::find(&root, stem, Preference::Cpu);
        assert_eq!(find("decoder_model").expect("a graph").name, "decoder_model.onnx");
        assert_eq!(find("model"), None);
    }

    #[test]
    fn the_only_graph_may_have_any_name() {
        let first = |names: &[&str]| GraphFiles::first(&repository(names), &["model"], Preference::Cpu);
        let yolo = first(&["onnx/yolov8n.onnx", "onnx/yolov8n_fp16.onnx"]);
        assert_eq!(yolo.expect("a graph").name, "onnx/yolov8n.onnx");
        assert!(first(&["det.onnx", "rec.onnx"]).is_err());
    }

    #[test]
    fn weights_belong_to_graphs_of_their_folder() {
        let names =
            ["onnx/model.onnx", "onnx/model.onnx_data", "model.onnx_data", "onnx/deep/model.onnx_data"];
        let graph = GraphFiles::find(&repository(&names), "model", Preference::Cpu).expect("a graph");
        let weights: Vec<&str> = graph.weights.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(weights, ["model.onnx_data"]);
    }
}
