//! Whether an engine loads the model of a folder: everything that a worker checks before its first job, without an agent and without a job.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    ids::InstanceId,
    job::Failure,
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use super::{EngineLoader, LoadProgress, confine, state::LoadState};
use crate::launch::{EXIT_LOAD_FAILED, EXIT_REFUSED, Launch};

/// Name of the Cargo of a folder.
const SLUG: &str = "check";

/// Why loading could not be attempted.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error("read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("read the Cargo from standard input")]
    Cargo(#[source] serde_json::Error),
    #[error("start the async runtime")]
    Runtime(#[source] io::Error),
}

/// What is to be loaded.
#[derive(Debug, Deserialize)]
struct Wanted {
    cargo: CargoSpec,
    artifacts: BTreeMap<String, PathBuf>,
}

/// Loads a model, and prints the result: the engine's version, or what is at fault.
pub(super) fn main<E: EngineLoader>(engine: E, folder: &Path, task: Option<&str>) -> ExitCode {
    let (text, code) = match run(engine, folder, task) {
        Ok(Ok(version)) => (format!("the model loads: {version}"), ExitCode::SUCCESS),
        Ok(Err(failure)) => (failure.message, ExitCode::from(EXIT_LOAD_FAILED as u8)),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            (format!("{error}{}", cause.unwrap_or_default()), ExitCode::from(EXIT_REFUSED as u8))
        }
    };
    match io::Write::write_all(&mut io::stdout(), format!("{text}\n").as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run<E: EngineLoader>(
    mut engine: E,
    folder: &Path,
    task: Option<&str>,
) -> Result<Result<String, Failure>, CheckError> {
    let Wanted { cargo, artifacts } = if folder == Path::new("-") {
        serde_json::from_reader(io::stdin()).map_err(CheckError::Cargo)?
    } else {
        let artifacts = files(folder).map_err(|error| CheckError::Read(folder.to_owned(), error))?;
        Wanted { cargo: of_task(&engine.kind(), task)?, artifacts }
    };
    let launch = Launch {
        artifacts,
        threads: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        allow_weak_sandbox: true,
        ..Launch::new(InstanceId(uuid::Uuid::nil()), cargo)
    };
    if let Err(failure) = engine.prepare(&launch) {
        return Ok(Err(failure));
    }
    // The files are as untrusted as any model's. Nothing is written.
    confine(&engine, &launch, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CheckError::Runtime)?;
    let progress = LoadProgress(watch::Sender::new(LoadState::Loading { done: 0, total: 0 }));
    Ok(runtime.block_on(engine.load(launch, progress)).map(|loaded| loaded.version))
}

/// A Cargo of nothing but an engine and a task.
fn of_task(kind: &RuntimeType, task: Option<&str>) -> Result<CargoSpec, CheckError> {
    let mut cargo = json!({ "slug": SLUG, "runtime_type": kind });
    match task {
        Some(task) if *kind == RuntimeType::Onnx => cargo["onnx_task_type"] = task.into(),
        Some(task) => cargo["engine"] = json!({ "task": task }),
        None => {}
    }
    serde_json::from_value(cargo).map_err(CheckError::Cargo)
}

/// All files of a folder, by their path in it with slashes. A file alone is the artifact `model`.
fn files(root: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let root = root.canonicalize()?;
    let mut files = BTreeMap::new();
    if root.is_file() {
        files.insert("model".to_owned(), root);
        return Ok(files);
    }
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if path.is_dir() {
                // A clone's own records.
                if name != ".git" && name != ".cache" {
                    folders.push(path);
                }
            } else {
                // A link, as in the hub's cache, leads out of the folders that the sandbox allows.
                files.insert(name, path.canonicalize()?);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_path_and_a_single_one_is_the_model() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["config.json", "onnx/model.onnx", ".git/config"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, b"x").expect("written");
        }
        let names: Vec<String> = files(folder.path()).expect("readable").into_keys().collect();
        assert_eq!(names, ["config.json", "onnx/model.onnx"]);
        let one = files(&folder.path().join("config.json")).expect("readable");
        assert_eq!(one.into_keys().collect::<Vec<_>>(), ["model"]);
    }

    #[test]
    fn the_task_is_where_the_engine_reads_it() {
        let onnx = of_task(&RuntimeType::Onnx, Some("fill-mask")).expect("a Cargo");
        assert_eq!(onnx.onnx_task_type.as_deref(), Some("fill-mask"));
        let coreml = of_task(&RuntimeType::Coreml, Some("tensors")).expect("a Cargo");
        assert_eq!(coreml.engine["task"], "tensors");
    }
}
