//! The fixtures, and the comparison of results with the reference.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_runtimes_coreml::model::{Tensor, Tensors};
use ndarray::{ArrayD, IxDyn};
use serde::Deserialize;
use serde_json::Value;

pub(crate) mod check;

/// A repository and its expected results.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Fixture {
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(skip)]
    pub(crate) folder: PathBuf,
    pub(crate) task: String,
    pub(crate) engine: Value,
    pub(crate) cases: Vec<Case>,
    pub(crate) answers: Vec<Answer>,
}

/// Inputs and expected outputs, by step.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) function: Option<String>,
    /// The package, if there are several.
    pub(crate) model: Option<String>,
    pub(crate) steps: Vec<Step>,
    #[serde(default = "usual")]
    pub(crate) tolerance: f32,
}

/// Arrays by name, each in a file or all in one.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Step {
    #[serde(default)]
    inputs: BTreeMap<String, String>,
    #[serde(default)]
    outputs: BTreeMap<String, String>,
    /// A file with all of them, as `in.name` and `out.name`.
    arrays: Option<String>,
}

/// The input of a job, and its expected answer.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) input: Value,
    pub(crate) output: Value,
    #[serde(default)]
    pub(crate) has: Vec<String>,
    /// A model that is removed from the repository.
    pub(crate) without: Option<String>,
    #[serde(default = "usual_score")]
    pub(crate) tolerance: f64,
}

fn usual() -> f32 {
    1e-3
}

fn usual_score() -> f64 {
    1e-4
}

/// The folder of the fixtures, for tests of any crate.
pub(crate) fn fixtures() -> PathBuf {
    island_testing::workspace().join("runtimes/coreml/tests/fixtures")
}

/// All fixtures, or those whose name contains `COREML_FIXTURE`.
pub(crate) fn all() -> Vec<Fixture> {
    let only = island_testing::selection("COREML_FIXTURE").unwrap_or_default();
    let entries =
        fs::read_dir(fixtures()).expect("the fixtures").map(|entry| entry.expect("readable").path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.join("cases.json").is_file()).collect();
    folders.sort();
    let all = folders.iter().map(|folder| Fixture::read(folder));
    all.filter(|fixture| fixture.name.contains(&only)).collect()
}

impl Fixture {
    /// The fixture in a folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = fs::read(folder.join("cases.json")).expect("readable");
        let mut fixture: Self =
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        fixture.name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        folder.clone_into(&mut fixture.folder);
        fixture
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::read(&fixtures().join(name))
    }

    /// The repository's files by their path in it.
    pub(crate) fn files(&self) -> BTreeMap<String, PathBuf> {
        let root = self.folder.join("model");
        let (mut files, mut folders) = (BTreeMap::new(), vec![root.clone()]);
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

    /// An input with the content of its files.
    pub(crate) fn filled(&self, input: &Value) -> Value {
        let Value::Object(fields) = input else { return input.clone() };
        let filled = |(name, value): (&String, &Value)| match value.get("file").and_then(Value::as_str) {
            Some(file) => {
                let bytes = fs::read(self.folder.join(file)).expect("readable");
                (name.clone(), STANDARD.encode(bytes).into())
            }
            None => (name.clone(), value.clone()),
        };
        Value::Object(fields.iter().map(filled).collect())
    }

    /// The inputs of a step.
    pub(crate) fn given(&self, step: &Step) -> Tensors {
        self.tensors(&step.inputs, step.arrays.as_deref(), "in.")
    }

    /// The expected outputs of a step.
    pub(crate) fn wanted(&self, step: &Step) -> Tensors {
        self.tensors(&step.outputs, step.arrays.as_deref(), "out.")
    }

    fn tensors(&self, files: &BTreeMap<String, String>, arrays: Option<&str>, prefix: &str) -> Tensors {
        let read = |file: &str| match file.split_once('#') {
            Some((file, name)) => array(&self.folder.join(file), name),
            None => npy(&self.folder.join(file)),
        };
        let mut tensors: Tensors = files.iter().map(|(name, file)| (name.clone(), read(file))).collect();
        if let Some(file) = arrays {
            let path = self.folder.join(file);
            let names = head(&path)
                .0
                .into_iter()
                .filter_map(|(name, _)| name.strip_prefix(prefix).map(str::to_owned));
            tensors.extend(names.map(|name| (name.clone(), array(&path, &format!("{prefix}{name}")))));
        }
        tensors
    }
}

/// The maximum difference of two tensors, divided by one plus the magnitude; infinite for different shapes.
pub(crate) fn apart(wanted: &Tensor, got: &Tensor) -> f32 {
    if wanted.shape() != got.shape() {
        return f32::INFINITY;
    }
    let (wanted, got) = (wanted.clone().into_floats(), got.clone().into_floats());
    let differences = wanted.iter().zip(&got).map(|(wanted, got)| {
        if same(*wanted, *got) { 0.0 } else { (wanted - got).abs() / (1.0 + wanted.abs()) }
    });
    differences.fold(0.0, |most: f32, one| if one.is_nan() { f32::INFINITY } else { most.max(one) })
}

/// Equal infinities do not differ.
fn same(wanted: f32, got: f32) -> bool {
    wanted.total_cmp(&got).is_eq()
}

/// The index of a file of several arrays, and the offset of its numbers.
fn head(path: &Path) -> (serde_json::Map<String, Value>, Vec<u8>, usize) {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let head = serde_json::from_slice(&bytes[8..8 + length]).expect("a head");
    (head, bytes, 8 + length)
}

/// An array of such a file.
fn array(path: &Path, name: &str) -> Tensor {
    let (head, bytes, start) = head(path);
    let entry = head.get(name).unwrap_or_else(|| panic!("{} has no {name}", path.display()));
    let numbers = |field: &str| {
        let all = entry[field].as_array().expect("numbers");
        all.iter().map(|number| number.as_u64().expect("a size") as usize).collect::<Vec<usize>>()
    };
    let (shape, place) = (numbers("shape"), numbers("data_offsets"));
    let words = bytes[start + place[0]..start + place[1]].chunks_exact(4);
    let words = words.map(|word| <[u8; 4]>::try_from(word).expect("four bytes"));
    if entry["dtype"] == "F32" {
        let values = words.map(f32::from_le_bytes).collect();
        return Tensor::Floats(ArrayD::from_shape_vec(IxDyn(&shape), values).expect("as many"));
    }
    let values = words.map(|word| i64::from(i32::from_le_bytes(word))).collect();
    Tensor::Ints(ArrayD::from_shape_vec(IxDyn(&shape), values).expect("as many"))
}

/// An array in numpy's format.
pub(crate) fn npy(path: &Path) -> Tensor {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(bytes.starts_with(b"\x93NUMPY\x01"), "{} is not an array", path.display());
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (header, data) = (String::from_utf8_lossy(&bytes[10..end]).into_owned(), &bytes[end..]);
    let between = |from: &str, to: char| {
        let rest = header.split(from).nth(1).unwrap_or_default();
        rest.split(to).next().unwrap_or_default().to_owned()
    };
    let sides = between("'shape': (", ')');
    let shape: Vec<usize> = sides.split(',').filter_map(|side| side.trim().parse().ok()).collect();
    let words = || data.chunks_exact(4).map(|word| word.try_into().expect("four bytes"));
    let ints =
        |values: Vec<i64>| Tensor::Ints(ArrayD::from_shape_vec(IxDyn(&shape), values).expect("as many"));
    match between("'descr': '", '\'').as_str() {
        "<f4" => {
            let values = words().map(f32::from_le_bytes).collect();
            Tensor::Floats(ArrayD::from_shape_vec(IxDyn(&shape), values).expect("as many"))
        }
        "<i4" => ints(words().map(|word| i64::from(i32::from_le_bytes(word))).collect()),
        "|b1" => ints(data.iter().map(|&byte| i64::from(byte)).collect()),
        other => panic!("{} holds {other}", path.display()),
    }
}
