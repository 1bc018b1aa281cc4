//! Weights in safetensors files: headers are checked before a tensor is read, tensors while they are read.
//!
//! Each tensor is read once, into memory that all jobs share. Files are not mapped: CPUs need the numbers widened and in another
//! layout, so that a mapping would be a second copy, and one that kills the worker if its file is truncated.

mod header;

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use candle_core::{Device, Tensor};
use half::{bf16, f16};
use island_runtimes_kit::error::{EngineError, ErrorKind, invalid_model};

use header::{Entry, Number};

use crate::error::compute_error;

/// A file of weights.
#[derive(Debug)]
struct Stored {
    name: String,
    path: PathBuf,
    file: File,
}

/// Elements of a computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

impl Element {
    /// Its size in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Bytes of a tensor in a file.
#[derive(Debug, Clone, Copy)]
pub struct Place<'w> {
    /// The file.
    pub path: &'w Path,
    /// Its first byte.
    pub offset: u64,
    /// Its number of bytes.
    pub length: usize,
}

/// The tensors of a part, not read yet.
#[derive(Debug)]
pub struct Weights {
    part: String,
    files: Vec<Stored>,
    tensors: BTreeMap<String, (usize, Entry)>,
}

impl Weights {
    /// Opens the files of a part and checks their headers.
    pub fn open(part: &str, paths: &[(String, PathBuf)]) -> Result<Self, EngineError> {
        let mut weights = Self { part: part.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        for (name, path) in paths {
            weights.add(name, path)?;
        }
        Ok(weights)
    }

    fn add(&mut self, name: &str, path: &Path) -> Result<(), EngineError> {
        let unreadable =
            |error| EngineError::new(ErrorKind::ModelUnavailable, format!("read {name}")).because(error);
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let entries = header::read(&file, length).map_err(|error| match error {
            header::Error::Unreadable(error) => unreadable(error),
            header::Error::Malformed(why) => invalid_model(format!("{name} {why}")),
        })?;
        let index = self.files.len();
        self.files.push(Stored { name: name.to_owned(), path: path.to_owned(), file });
        for (tensor, entry) in entries {
            if self.tensors.insert(tensor.clone(), (index, entry)).is_some() {
                return Err(invalid_model(format!("the tensor {tensor} is in two files")));
            }
        }
        Ok(())
    }

    /// The root from which tensors are named.
    pub fn root(&self) -> Scope<'_> {
        Scope { weights: self, name: self.part.clone(), path: String::new() }
    }

    /// The part's name.
    pub fn part(&self) -> &str {
        &self.part
    }

    /// Names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|(_, entry)| entry.shape.as_slice())
    }

    /// Numbers of all tensors.
    pub fn numbers(&self) -> u64 {
        self.tensors.values().map(|(_, entry)| entry.numbers() as u64).sum()
    }

    /// Where a tensor lies, if it is stored with these elements.
    pub fn place(&self, name: &str, element: Element) -> Option<Place<'_>> {
        let (index, entry) = self.tensors.get(name)?;
        let is_same = match element {
            Element::F16 => entry.number == Number::F16,
            Element::F32 => entry.number == Number::F32,
        };
        let path = &self.files[*index].path;
        is_same.then_some(Place { path, offset: entry.offset, length: entry.length })
    }

    /// Reads a tensor as `f32`.
    pub fn tensor(&self, name: &str) -> Result<Tensor, EngineError> {
        let Some((index, entry)) = self.tensors.get(name) else {
            return Err(invalid_model(format!("{} lacks the tensor {name}", self.part)));
        };
        let Stored { name: file_name, file, .. } = &self.files[*index];
        let mut bytes = vec![0; entry.length];
        file.read_exact_at(&mut bytes, entry.offset).map_err(|error| {
            EngineError::new(ErrorKind::ModelUnavailable, format!("read {name} of {file_name}"))
                .because(error)
        })?;
        let Some(values) = widened(&bytes, &entry.number) else {
            return Err(invalid_model(format!(
                "the tensor {name} of {file_name} has integers and is not a weight"
            )));
        };
        if values.iter().any(|value| !value.is_finite()) {
            return Err(invalid_model(format!(
                "the tensor {name} of {file_name} has NaN or infinite numbers"
            )));
        }
        Tensor::from_vec(values, entry.shape.as_slice(), &Device::Cpu)
            .map_err(compute_error("place a tensor"))
    }
}

fn widened(bytes: &[u8], number: &Number) -> Option<Vec<f32>> {
    Some(match number {
        Number::F32 => bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
        Number::F16 => bytes.as_chunks().0.iter().map(|two| f16::from_le_bytes(*two).to_f32()).collect(),
        Number::Bf16 => bytes.as_chunks().0.iter().map(|two| bf16::from_le_bytes(*two).to_f32()).collect(),
        Number::F64 => bytes.as_chunks().0.iter().map(|eight| f64::from_le_bytes(*eight) as f32).collect(),
        Number::Other(_) => return None,
    })
}

/// A prefix of names of tensors in a part.
#[derive(Debug, Clone)]
pub struct Scope<'w> {
    weights: &'w Weights,
    name: String,
    path: String,
}

impl Scope<'_> {
    /// The prefix inside.
    #[must_use]
    pub fn at(&self, inner: impl Display) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            weights: self.weights,
            name: format!("{}.{inner}", self.name),
            path: format!("{}{dot}{inner}", self.path),
        }
    }

    /// The first of these prefixes that has a weight: names changed over the years.
    #[must_use]
    pub fn first(&self, names: &[&str]) -> Self {
        let places = names.iter().map(|name| self.at(name));
        places.into_iter().find(|place| place.has("weight")).unwrap_or_else(|| self.at(names[0]))
    }

    /// The whole name, starting with the part.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn full(&self, name: &str) -> String {
        self.at(name).path
    }

    /// Whether the tensor exists.
    pub fn has(&self, name: &str) -> bool {
        self.weights.tensors.contains_key(&self.full(name))
    }

    /// A tensor of this shape.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor, EngineError> {
        self.get_as(name, shape, &[])
    }

    /// A tensor of this shape, stored in this or another one.
    pub fn get_as(&self, name: &str, shape: &[usize], stored: &[&[usize]]) -> Result<Tensor, EngineError> {
        let full = self.find(name, shape, stored)?;
        self.weights.tensor(&full)?.reshape(shape).map_err(compute_error("shape a tensor"))
    }

    /// The name in its part of a tensor that is stored in this or another shape.
    pub fn find(&self, name: &str, shape: &[usize], stored: &[&[usize]]) -> Result<String, EngineError> {
        let full = self.full(name);
        let part = &self.weights.part;
        match self.weights.shape(&full) {
            None => Err(invalid_model(format!("{part} lacks the tensor {full}"))),
            Some(found) if found == shape || stored.contains(&found) => Ok(full),
            Some(found) => Err(invalid_model(format!(
                "the tensor {full} of {part} is {found:?}, its settings require {shape:?}"
            ))),
        }
    }
}
