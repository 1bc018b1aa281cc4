//! The source tree, whose files some benchmarks read. Its path is not compiled in: clones share what is built.

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result};

/// Returns a path of the source tree in which the program runs.
pub(crate) fn source(path: &str) -> Result<PathBuf> {
    let here = env::current_dir().context("find the current folder")?;
    let tree = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    Ok(tree.with_context(|| format!("{} is not within a source tree of Island", here.display()))?.join(path))
}
