//! The catalogue: one TOML file for each Cargo, all checked before anything is served.

mod artifacts;
pub mod cargo;
pub mod choice;
mod evaluation;
mod file;
mod lines;
pub mod manifest;
pub mod pins;
pub mod served;
pub mod units;

use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_protocol::{digest::Digest, ids::Slug};

pub use cargo::Cargo;
use file::Origin;
use pins::Pins;

use crate::config::{CatalogueSettings, PINS_FILE};

/// Folders of Cargos by engine, beside the files of language models.
const ENGINE_FOLDERS: [&str; 6] = ["llmcpp", "wasm", "container", "onnx", "diffusers", "coreml"];
/// Not a Cargo: the manifest of the programs in the same folder.
const MANIFEST: &str = "Cargo.toml";

/// A problem in a catalogue file or a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

/// Why a catalogue cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A folder or file cannot be read.
    #[error("read {path}")]
    Read {
        /// Path of the folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Files have problems; all of them are listed.
    #[error("the catalogue has {} problems:\n{}", .0.len(), lines::joined(.0))]
    Faulty(Vec<Fault>),
}

/// All Cargos, by slug and by alias.
#[derive(Debug, Default)]
pub struct Catalogue {
    cargos: BTreeMap<Slug, Arc<Cargo>>,
    aliases: HashMap<String, Slug>,
}

impl Catalogue {
    /// Loads the catalogue of the settings and applies its pins.
    pub fn pinned(settings: &CatalogueSettings) -> Result<Self, CatalogueError> {
        let mut catalogue = Self::load(&settings.dir, settings.fixtures)?;
        let path = settings.pins();
        let pins = Pins::read(&path).map_err(|source| CatalogueError::Read { path, source })?;
        for cargo in catalogue.cargos.values_mut() {
            let spec = &mut Arc::make_mut(cargo).spec;
            Arc::make_mut(spec).artifacts.iter_mut().for_each(|artifact| pins.apply(artifact));
        }
        Ok(catalogue)
    }

    /// Loads every `*.toml` of `dir` and of its folders for engines, and of its folder `fixtures` if `fixtures` is set.
    /// A Cargo whose files are not built is left out and logged.
    pub fn load(dir: &Path, fixtures: bool) -> Result<Self, CatalogueError> {
        let folders = ENGINE_FOLDERS.into_iter().chain(fixtures.then_some("fixtures"));
        Self::load_with(dir, folders)
    }

    /// Loads every `*.toml` of `dir` and of the given folders in it.
    pub fn load_with<'a>(dir: &Path, folders: impl Iterator<Item = &'a str>) -> Result<Self, CatalogueError> {
        let mut paths = toml_files(dir)?;
        for folder in folders.map(|name| dir.join(name)).filter(|folder| folder.is_dir()) {
            paths.extend(toml_files(&folder)?);
        }
        let mut catalogue = Self::default();
        let mut faults = Vec::new();
        let mut unbuilt = Vec::new();
        let mut hashes = artifacts::Hashes::default();
        for path in paths {
            let text = fs::read_to_string(&path)
                .map_err(|source| CatalogueError::Read { path: path.clone(), source })?;
            match file::parse(&path, dir, &text, Origin::Operator, &mut hashes) {
                Ok(None) => unbuilt.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
                Ok(Some((cargo, places))) => catalogue.add(cargo, &path, places, &mut faults),
                Err(found) => faults.extend(found),
            }
        }
        if !unbuilt.is_empty() {
            let cargos = unbuilt.join(", ");
            tracing::warn!(
                count = unbuilt.len(),
                cargos,
                "Cargos left out: their files are not built (make cargos)"
            );
        }
        if faults.is_empty() { Ok(catalogue) } else { Err(CatalogueError::Faulty(faults)) }
    }

    fn add(&mut self, cargo: Cargo, path: &Path, places: file::Places, faults: &mut Vec<Fault>) {
        let fault = |line, message| Fault { file: path.to_owned(), line, message };
        let slug = cargo.entry.slug.clone();
        if self.cargos.contains_key(&slug) {
            faults.push(fault(places.slug, format!("slug {slug} is used in another file")));
            return;
        }
        for (alias, line) in places.aliases {
            if self.aliases.insert(alias.clone(), slug.clone()).is_some() {
                faults.push(fault(line, format!("alias {alias:?} is used by another Cargo")));
            }
        }
        self.cargos.insert(slug, Arc::new(cargo));
    }

    /// This catalogue with published Cargos. One whose slug names another Cargo is left out and logged.
    #[must_use]
    pub fn with(&self, published: impl Iterator<Item = Arc<Cargo>>) -> Self {
        let mut all = Self { cargos: self.cargos.clone(), aliases: self.aliases.clone() };
        for cargo in published {
            let slug = &cargo.entry.slug;
            if all.named(slug.as_str()).is_some() {
                tracing::warn!(%slug, "published Cargo left out: the catalogue has the name");
            } else {
                all.cargos.insert(slug.clone(), cargo);
            }
        }
        all
    }

    /// Sets the number of every Cargo.
    pub fn number(&mut self, numbers: &HashMap<Slug, i64>) {
        for (slug, cargo) in &mut self.cargos {
            Arc::make_mut(cargo).number = numbers.get(slug).copied().unwrap_or_default();
        }
    }

    /// The Cargo with this slug.
    pub fn get(&self, slug: &str) -> Option<&Arc<Cargo>> {
        self.cargos.get(&slug.parse::<Slug>().ok()?)
    }

    /// The Cargo with this slug or alias.
    pub fn named(&self, name: &str) -> Option<&Arc<Cargo>> {
        self.get(name).or_else(|| self.cargos.get(self.aliases.get(name)?))
    }

    /// All slugs and aliases, each with its Cargo.
    fn names(&self) -> impl Iterator<Item = (&str, &Arc<Cargo>)> {
        let slugs = self.cargos.iter().map(|(slug, cargo)| (slug.as_str(), cargo));
        let aliases = self.aliases.iter();
        slugs.chain(aliases.filter_map(|(alias, slug)| Some((alias.as_str(), self.cargos.get(slug)?))))
    }

    /// Path of a Cargo's file on this machine, by its hash.
    pub fn local_file(&self, digest: Digest) -> Option<PathBuf> {
        let mut artifacts = self.cargos.values().flat_map(|cargo| &cargo.spec.artifacts);
        let found = artifacts.find(|file| file.sha256 == Some(digest) && file.url.starts_with("file://"))?;
        found.url.strip_prefix("file://").map(PathBuf::from)
    }

    /// All Cargos, by slug.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Cargo>> {
        self.cargos.values()
    }

    /// Those of the operator, by slug. A published Cargo serves only those who name it, so others are chosen of these.
    pub fn own(&self) -> impl Iterator<Item = &Arc<Cargo>> {
        self.iter().filter(|cargo| cargo.entry.published.is_none())
    }
}

fn toml_files(dir: &Path) -> Result<Vec<PathBuf>, CatalogueError> {
    let failed = |source| CatalogueError::Read { path: dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_entry = path.extension().is_some_and(|extension| extension == "toml")
            && path.file_name().is_some_and(|name| name != MANIFEST && name != PINS_FILE);
        if is_entry && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
