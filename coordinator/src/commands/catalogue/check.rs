//! `catalogue check`: entries, and the models whose files are at hand.
//!
//! The coordinator links no engine: models are loaded by the programs that run them on Islands, in their sandbox.

use std::{
    collections::BTreeMap,
    env, fmt, fs, io,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};

use island_protocol::{address::Address, artifact::Artifact, cargo::RuntimeType};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::{chosen, print};
use island_coordinator_domain::{
    catalogue::{Cargo, Catalogue},
    config::Config,
};

/// Where the package `island-agent` has the engines' programs.
const PACKAGED_PROGRAMS: &str = "/usr/lib/island";
/// Lines of a program's log that are shown if it ends without a result.
const LOG_LINES: usize = 5;

/// The result for one Cargo.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Its model loads.
    Loads(String),
    /// Only its entry was checked, for this reason.
    Entry(&'static str),
    /// It is at fault.
    Refused(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loads(what) => write!(f, "{what}"),
            Self::Entry(why) => write!(f, "the entry is valid; {why}"),
            Self::Refused(why) => write!(f, "REFUSED: {why}"),
        }
    }
}

/// Checks Cargos, and prints a line for each.
pub(super) async fn run(
    config: &Config,
    slugs: &[String],
    files: Option<&Path>,
    workers: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let catalogue = Catalogue::pinned(&config.catalogue)?;
    let cargos = chosen(&catalogue, slugs)?;
    let only = cargos.len() == 1;
    let mut refused = 0;
    for cargo in &cargos {
        let verdict = verdict(cargo, files, only, workers).await;
        refused += usize::from(matches!(verdict, Verdict::Refused(_)));
        print(&format!("{}: {verdict}\n", cargo.entry.slug));
    }
    print(&format!("{} Cargos checked, {refused} refused\n", cargos.len()));
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn verdict(cargo: &Cargo, files: Option<&Path>, only: bool, workers: Option<&Path>) -> Verdict {
    let kind = &cargo.spec.runtime_type;
    if *kind == RuntimeType::Container {
        return Verdict::Entry("images are not started");
    }
    if cargo.spec.is_simulated() {
        return Verdict::Entry("it has no model");
    }
    let folder = files.map(|files| {
        let own = files.join(cargo.entry.slug.as_str());
        if only && !own.is_dir() { files.to_owned() } else { own }
    });
    let found = match at_hand(&cargo.spec.artifacts, folder.as_deref()) {
        Ok(found) => found,
        Err(why) => return Verdict::Refused(why),
    };
    if found.is_empty() {
        return Verdict::Entry("its files are not at hand");
    }
    match load(cargo, &found, &program(kind, workers)).await {
        Ok(verdict) => verdict,
        Err(error) => Verdict::Refused(format!("start {}: {error}", program(kind, workers).display())),
    }
}

/// The files of a Cargo by artifact name: all of them, or none. An error if only some are there, or if one has another length than its entry
/// states.
fn at_hand(artifacts: &[Artifact], folder: Option<&Path>) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut found = BTreeMap::new();
    let mut missing = Vec::new();
    for artifact in artifacts {
        let Some(path) = candidates(artifact, folder).into_iter().find(|path| path.is_file()) else {
            missing.push(artifact.name.as_str());
            continue;
        };
        let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        let length = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        if let Some(stated) = artifact.size_bytes.filter(|&stated| stated != length) {
            return Err(format!("{} has {length} bytes, and its entry states {stated}", artifact.name));
        }
        found.insert(artifact.name.clone(), path);
    }
    match (found.is_empty(), missing.is_empty()) {
        (false, false) => Err(format!("files are missing: {}", missing.join(", "))),
        _ => Ok(found),
    }
}

/// Where an artifact may be: where its address states, or in the folder by its name or by that of the file it stands for.
fn candidates(artifact: &Artifact, folder: Option<&Path>) -> Vec<PathBuf> {
    let (local, file) = match artifact.url.parse::<Address>() {
        Ok(Address::Local(path)) => (Some(path), None),
        Ok(Address::Hub(address)) => (None, address.file),
        _ => (None, None),
    };
    let inside = |name: &str| folder.map(|folder| folder.join(name));
    let named = file.as_deref().and_then(inside);
    local.into_iter().chain(inside(&artifact.name)).chain(named).collect()
}

/// The program of an engine: in the folder of the command line, or beside this program, in PATH, or where the package has it.
fn program(kind: &RuntimeType, workers: Option<&Path>) -> PathBuf {
    let name = format!("island-worker-{kind}{}", env::consts::EXE_SUFFIX);
    if let Some(folder) = workers {
        return folder.join(name);
    }
    let own = env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let path = env::var_os("PATH");
    let in_path = path.iter().flat_map(env::split_paths);
    first_with(&name, own.into_iter().chain(in_path).chain([PathBuf::from(PACKAGED_PROGRAMS)]))
}

/// The file of this name in the first of the folders that has one; the name alone if none has.
fn first_with(name: &str, folders: impl Iterator<Item = PathBuf>) -> PathBuf {
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

/// Loads the model of a Cargo in another process.
async fn load(cargo: &Cargo, files: &BTreeMap<String, PathBuf>, program: &Path) -> io::Result<Verdict> {
    let wanted = json!({ "cargo": *cargo.spec, "artifacts": files }).to_string();
    let mut worker = Command::new(program)
        .args(["--check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = worker.stdin.take() {
        // A program that ended early has printed why.
        let _ = input.write_all(wanted.as_bytes()).await;
    }
    let output = worker.wait_with_output().await?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(Verdict::Loads(text));
    }
    if !text.is_empty() {
        return Ok(Verdict::Refused(text));
    }
    let log = String::from_utf8_lossy(&output.stderr);
    let mut last: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
    last.reverse();
    Ok(Verdict::Refused(format!("the engine ended with {}: {}", output.status, last.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, url: &str, size_bytes: Option<u64>) -> Artifact {
        Artifact { name: name.to_owned(), url: url.to_owned(), sha256: None, size_bytes }
    }

    #[test]
    fn programs_are_found_in_the_first_folder_that_has_them_and_in_that_of_the_package() {
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let paths = || folders.iter().map(|folder| folder.path().to_owned());
        assert_eq!(first_with("island-worker-onnx", paths()), Path::new("island-worker-onnx"));
        for folder in &folders[1..] {
            fs::write(folder.path().join("island-worker-onnx"), b"").expect("written");
        }
        assert_eq!(first_with("island-worker-onnx", paths()), folders[1].path().join("island-worker-onnx"));
        let packages = include_str!("../../../../packaging/debian/build.sh");
        let installs = format!("put \"$worker\" \"$agent{PACKAGED_PROGRAMS}\"");
        assert!(packages.contains(&installs), "{installs}");
    }

    #[test]
    fn files_are_found_by_their_name_or_by_that_of_their_address() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("tiny.gguf"), b"GGUF").expect("written");
        fs::write(folder.path().join("config.json"), b"{}").expect("written");
        let model = artifact("model", "hf://o/r:tiny.gguf", Some(4));
        let config = artifact("config.json", "hf://o/r:config.json", None);
        let found = at_hand(&[model.clone(), config.clone()], Some(folder.path())).expect("both");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["config.json", "model"]);
        assert_eq!(at_hand(std::slice::from_ref(&model), None), Ok(BTreeMap::new()));
        let other = artifact("tokenizer.json", "hf://o/r:tokenizer.json", None);
        let missing = at_hand(&[config, other], Some(folder.path()));
        assert_eq!(missing, Err("files are missing: tokenizer.json".to_owned()));
        let longer = Artifact { size_bytes: Some(5), ..model };
        let wrong = at_hand(&[longer], Some(folder.path()));
        assert_eq!(wrong, Err("model has 4 bytes, and its entry states 5".to_owned()));
    }
}
