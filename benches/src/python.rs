//! A peer in Python, controlled line by line.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result};
use island_runtimes_graph::library;
use serde_json::Value;

use crate::tree;

/// Python, waiting for lines.
pub(crate) struct Python {
    process: Child,
    output: BufReader<ChildStdout>,
    /// The version that it reports.
    pub(crate) version: String,
}

impl Python {
    /// Starts one of the scripts beside this crate, whose first line is its version.
    pub(crate) fn start(python: &Path, script: &str, arguments: &[&OsStr]) -> Result<Self> {
        let script = tree::source("benches")?.join(script);
        let mut process = Command::new(python)
            .arg(script)
            .args(arguments)
            .env(library::SILENT, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start Python")?;
        let output = BufReader::new(process.stdout.take().context("its output")?);
        let mut python = Self { process, output, version: String::new() };
        let said = python.read().context("Python lacks what the script needs: see benches/peers.sh")?;
        said["version"].as_str().context("a version")?.clone_into(&mut python.version);
        Ok(python)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// One answer to one line.
    pub(crate) fn ask(&mut self, what: &Value) -> Result<Value> {
        let input = self.process.stdin.as_mut().context("its input")?;
        writeln!(input, "{what}").context("ask Python")?;
        self.read()
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("read the output of Python")?;
        serde_json::from_str(&line).context("Python did not answer")
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It ends when its input closes; killing it is quicker.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
