//! Initialization of llama.cpp, once per process: its log and its processor variants. [`crate::gpu`] adds the modules for GPUs.

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use llama_cpp_2::{
    LogOptions, list_llama_ggml_backend_devices,
    llama_backend::{LlamaBackend, load_backends_from_path},
    send_logs_to_tracing,
};

/// Variable that names another folder with back ends.
pub const BACKENDS_VARIABLE: &str = "ISLAND_BACKENDS_DIR";

/// llama.cpp cannot be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No folder with back ends was found.
    #[error("find llama.cpp's back ends: none in {}", list(.0))]
    NotFound(Vec<PathBuf>),
    /// No back end in the folder works on this machine.
    #[error("no back end of llama.cpp in {} works on this machine", .0.display())]
    NoneWorks(PathBuf),
    /// llama.cpp fails to start.
    #[error("start llama.cpp: {0}")]
    Start(String),
}

/// llama.cpp, initialized.
#[derive(Debug)]
pub struct Started {
    /// Proof of it, for the bindings.
    pub llama: LlamaBackend,
    /// Folder of the processor variants, with a folder below it for each GPU module.
    pub folder: PathBuf,
}

/// Loads the best processor variant, when first called. Must be called before the sandbox is applied.
pub fn start() -> Result<&'static Started, BackendError> {
    static STARTED: OnceLock<Result<Started, BackendError>> = OnceLock::new();
    STARTED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Started, BackendError> {
    send_logs_to_tracing(LogOptions::default());
    let places = places();
    let found = places.iter().find(|dir| has_libraries(dir));
    let folder = found.ok_or_else(|| BackendError::NotFound(places.clone()))?.clone();
    load_backends_from_path(&folder);
    if list_llama_ggml_backend_devices().is_empty() {
        return Err(BackendError::NoneWorks(folder));
    }
    let llama = LlamaBackend::init().map_err(|error| BackendError::Start(error.to_string()))?;
    Ok(Started { llama, folder })
}

/// File name of the processor variant in use, such as `libggml-cpu-sapphirerapids.so`, if it can be determined.
pub fn cpu_variant() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("ggml-cpu"))?;
    Some(Path::new(path).file_name()?.to_string_lossy().into_owned())
}

/// Folders of back ends, in the order of preference.
fn places() -> Vec<PathBuf> {
    let exe = env::current_exe().ok();
    let beside = exe.as_deref().and_then(Path::parent);
    let named = env::var_os(BACKENDS_VARIABLE).map(PathBuf::from);
    let installed =
        beside.map(|dir| [dir.join("backends"), dir.join("../lib/island/backends"), dir.join("../backends")]);
    let built = option_env!("ISLAND_BUILT_BACKENDS").map(PathBuf::from);
    named.into_iter().chain(installed.into_iter().flatten()).chain(built).collect()
}

fn has_libraries(dir: &Path) -> bool {
    let Ok(entries) = dir.read_dir() else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("ggml-"))
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
