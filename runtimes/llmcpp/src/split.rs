//! Models in several files, as `llama-gguf-split` writes them.
//!
//! A Cargo names the first file as its model, and the others as the artifacts `model-2`, `model-3` and so on. llama.cpp finds the others by the
//! name of the first.

use std::{
    collections::BTreeMap,
    io, iter,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use island_protocol::job::{Failure, FailureCode};
use tempfile::TempDir;

use crate::gguf::{GgufError, Header, Value};

/// Name of the artifact that is the model, or the first of its files.
const MODEL: &str = "model";
/// Maximum number of files of a model.
const MAX_FILES: u64 = 999;

/// The path of a model, valid until this is dropped.
#[derive(Debug)]
pub struct Linked {
    path: PathBuf,
    /// Contains links with the names that llama.cpp expects; absent for a model in one file.
    _folder: Option<TempDir>,
}

impl Linked {
    /// Finds the files of a model among a Cargo's artifacts.
    pub fn of(artifacts: &BTreeMap<String, PathBuf>) -> Result<Self, Failure> {
        let first = artifacts
            .get(MODEL)
            .or_else(|| artifacts.values().next())
            .ok_or_else(|| Failure::of_job(FailureCode::ModelUnavailable, "the Cargo names no model file"))?;
        let others: Vec<_> =
            (2..=MAX_FILES).map_while(|number| artifacts.get(&format!("{MODEL}-{number}"))).collect();
        if others.is_empty() {
            return Ok(Self { path: first.clone(), _folder: None });
        }
        let count = others.len() as u64 + 1;
        let link = || -> io::Result<TempDir> {
            let folder = tempfile::tempdir()?;
            for (number, file) in (1..).zip(iter::once(first).chain(others)) {
                symlink(file, folder.path().join(file_name(number, count)))?;
            }
            Ok(folder)
        };
        let folder = link().map_err(|error| {
            Failure::of_host(FailureCode::InternalError, format!("link the model's files: {error}"))
        })?;
        Ok(Self { path: folder.path().join(file_name(1, count)), _folder: Some(folder) })
    }

    /// The model, or the first of its files.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Name of a file of a model: llama.cpp accepts any text before the numbers.
fn file_name(number: u64, count: u64) -> String {
    format!("{MODEL}-{number:05}-of-{count:05}.gguf")
}

/// Checks all files of the model at `path`, the first of them if there are several. The header has the metadata of the first and the tensors of
/// all.
pub fn check(path: &Path) -> Result<Header, GgufError> {
    let mut header = Header::check(path)?;
    let count = number(&header, "split.count").unwrap_or(1);
    if count <= 1 {
        return Ok(header);
    }
    if count > MAX_FILES {
        let what = "number of files";
        return Err(GgufError::TooMany { what, claimed: count, limit: MAX_FILES });
    }
    let is = |header: &Header, place: u64| {
        number(header, "split.no") == Some(place) && number(header, "split.count") == Some(count)
    };
    if !is(&header, 0) {
        return Err(GgufError::Split("the model begins with another file"));
    }
    for place in 1..count {
        let other = path.with_file_name(file_name(place + 1, count));
        if !other.exists() {
            return Err(GgufError::Split("the Cargo does not name as many files as the model has"));
        }
        let other = Header::check(&other)?;
        if !is(&other, place) {
            return Err(GgufError::Split(
                "the files are not in the order of their numbers, or of several models",
            ));
        }
        header.tensors.extend(other.tensors);
    }
    Ok(header)
}

fn number(header: &Header, key: &str) -> Option<u64> {
    match header.entry(key) {
        Some(&Value::Unsigned(number)) => Some(number),
        Some(&Value::Signed(number)) => u64::try_from(number).ok(),
        _ => None,
    }
}
