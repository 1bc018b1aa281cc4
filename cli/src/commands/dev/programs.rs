//! Finding the programs that make up a network.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::args::Dev;

/// Where each program is.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) coordinator: PathBuf,
    pub(super) agent: PathBuf,
    /// `None` when NATS runs elsewhere.
    pub(super) nats_server: Option<PathBuf>,
    pub(super) cargos: PathBuf,
}

impl Programs {
    pub(super) fn find(options: &Dev, external_nats: bool) -> Result<Self> {
        let Dev { agent, nats_server, cargos, .. } = options;
        let own = env::current_exe().context("find this program's own path")?;
        let folder = own.parent().context("this program lies in a folder")?;
        Ok(Self {
            coordinator: sibling(folder, "island-coordinator")?,
            agent: match agent {
                Some(path) => existing(path.clone())?,
                None => sibling(folder, "island-agent")?,
            },
            nats_server: if external_nats {
                None
            } else {
                Some(find_nats_server(folder, nats_server.clone())?)
            },
            cargos: find_cargos(folder, cargos.clone())?,
        })
    }
}

/// How a shell finds this program: by its name where `PATH` leads to it, else by its path.
pub(super) fn own_command() -> String {
    let path = env::var_os("PATH").unwrap_or_default();
    env::current_exe().map_or_else(|_| "island".to_owned(), |own| command_of(&own, &path))
}

fn command_of(own: &Path, path: &OsStr) -> String {
    let found = env::split_paths(path).map(|folder| folder.join("island")).find(|program| program.is_file());
    let is_own = found.is_some_and(|found| same_file(&found, own));
    if is_own { "island".to_owned() } else { quoted(&own.display().to_string()) }
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn sibling(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    if !path.is_file() {
        bail!("{name} is not in {}: build it with `cargo build --workspace`", folder.display());
    }
    Ok(path)
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    if !path.is_file() {
        bail!("{} is not there", path.display());
    }
    Ok(path)
}

fn find_nats_server(own_folder: &Path, given: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given.or_else(|| env::var_os("ISLAND_NATS_SERVER").map(PathBuf::from)) {
        return existing(path);
    }
    let in_path = env::var_os("PATH").unwrap_or_default();
    source_tree(own_folder)
        .map(|tree| tree.join(".tools/bin"))
        .into_iter()
        .chain(env::split_paths(&in_path))
        .map(|folder| folder.join("nats-server"))
        .find(|path| path.is_file())
        .context("nats-server is not installed: `make setup` brings it, or name one with --nats-server")
}

fn find_cargos(own_folder: &Path, given: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        if !path.is_dir() {
            bail!("{} is not a folder", path.display());
        }
        return Ok(path);
    }
    let of_source = source_tree(own_folder).map(|tree| tree.join("cargos"));
    std::iter::once(own_folder.join("../share/island/cargos"))
        .chain(of_source)
        .find(|path| path.is_dir())
        .context("the catalogue is not installed: name its folder with --cargos")
}

/// The source tree that this is run in, or else the one this program was built from, where it still is; an installed program finds
/// everything beside itself. Clones that share a target directory share this program, and each has a catalogue of its own.
fn source_tree(own_folder: &Path) -> Option<PathBuf> {
    let around = |folder: &Path| folder.ancestors().find(|folder| is_source_tree(folder)).map(Path::to_owned);
    let here = env::current_dir().ok();
    here.and_then(|folder| around(&folder)).or_else(|| around(own_folder)).or_else(|| last_clone(own_folder))
}

/// The clone that built last into the folder of the program's profile, which `scripts/target.sh` records where clones share it. Its path is not
/// compiled into the program, because each clone would have to build it again.
fn last_clone(own_folder: &Path) -> Option<PathBuf> {
    let recorded = std::fs::read_to_string(own_folder.parent()?.join(".clone")).ok()?;
    Some(PathBuf::from(recorded.trim_end_matches('\n'))).filter(|folder| is_source_tree(folder))
}

fn is_source_tree(folder: &Path) -> bool {
    folder.join("Cargo.toml").is_file() && folder.join("cargos").is_dir() && folder.join("cli").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_finds_the_clone_that_built_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (clone, target) = (folder.path().join("clone"), folder.path().join("target"));
        let debug = target.join("debug");
        for folder in [&clone.join("cargos"), &clone.join("cli"), &debug] {
            std::fs::create_dir_all(folder).expect("folder");
        }
        assert_eq!(last_clone(&debug), None);
        std::fs::write(target.join(".clone"), format!("{}\n", clone.display())).expect("record");
        assert_eq!(last_clone(&debug), None, "not a source tree");
        std::fs::write(clone.join("Cargo.toml"), "").expect("manifest");
        assert_eq!(last_clone(&debug), Some(clone));
    }

    #[test]
    fn the_hint_leads_to_this_program() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let make = |name: &str| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).expect("folder");
            std::fs::write(folder.join("island"), "").expect("program");
            folder
        };
        let (own, other, spaced) = (make("own"), make("other"), make("it's own"));
        let program = own.join("island");
        assert_eq!(command_of(&program, own.as_os_str()), "island");
        assert_eq!(command_of(&program, OsStr::new("")), program.display().to_string());
        let both = env::join_paths([&other, &own]).expect("a PATH");
        assert_eq!(command_of(&program, &both), program.display().to_string(), "another is found first");
        let shown = command_of(&spaced.join("island"), OsStr::new(""));
        assert!(shown.starts_with('\'') && shown.contains(r"it'\''s own"), "{shown}");
    }
}
