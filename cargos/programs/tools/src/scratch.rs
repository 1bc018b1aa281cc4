//! The folder that a job works in.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use island_cargo::{Blob, Error};

/// Most bytes of a result: a job's output may be 12 MiB, base64 takes a third more, and pictures are sent twice.
const MOST: u64 = 4 << 20;

/// A folder in `/tmp`, removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("island-{}", process::id()));
        fs::create_dir(&path).map_err(|error| Error::failed(format!("making a folder: {error}")))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file of this name would lie.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that tools read.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
        let path = self.at(name);
        fs::write(&path, bytes).map_err(|error| Error::failed(format!("writing {name}: {error}")))?;
        Ok(path)
    }

    /// Reads what a tool made.
    pub(crate) fn take(&self, name: &str) -> Result<Blob, Error> {
        let path = self.at(name);
        let length = fs::metadata(&path).map(|file| file.len());
        let length = length.map_err(|error| Error::failed(format!("the tool made no {name}: {error}")))?;
        if length > MOST {
            return Err(Error::invalid(format!("the result is {length} bytes long, more than {MOST}")));
        }
        Ok(Blob(fs::read(&path)?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}
