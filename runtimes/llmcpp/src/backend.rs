//! llama.cpp itself, set up once per process: its log, its processor variants and GPU back ends.

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use llama_cpp_2::{
    LlamaBackendDevice, LlamaBackendDeviceType, LogOptions, list_llama_ggml_backend_devices,
    llama_backend::{LlamaBackend, load_backends_from_path},
    send_logs_to_tracing,
};

/// Names another folder with back ends.
pub const BACKENDS_VARIABLE: &str = "ISLAND_BACKENDS_DIR";

/// llama.cpp cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No folder with back ends was found.
    #[error("find llama.cpp's back ends: none in {}", list(.0))]
    NotFound(Vec<PathBuf>),
    /// None of those found works on this machine.
    #[error("none of llama.cpp's back ends in {} works on this machine", .0.display())]
    NoneWorks(PathBuf),
    /// llama.cpp refuses to start.
    #[error("start llama.cpp: {0}")]
    Start(String),
}

/// Loads the best processor variant and every GPU back end there is, the first time it is called. To be called before lock-down.
pub fn start() -> Result<&'static LlamaBackend, BackendError> {
    static STARTED: OnceLock<Result<LlamaBackend, BackendError>> = OnceLock::new();
    STARTED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<LlamaBackend, BackendError> {
    send_logs_to_tracing(LogOptions::default());
    let places = places();
    let found = places.iter().find(|dir| has_libraries(dir));
    let dir = found.ok_or_else(|| BackendError::NotFound(places.clone()))?;
    load_backends_from_path(dir);
    if devices().is_empty() {
        return Err(BackendError::NoneWorks(dir.clone()));
    }
    for device in devices() {
        tracing::info!(
            name = device.name,
            backend = device.backend,
            description = device.description,
            "device"
        );
    }
    LlamaBackend::init().map_err(|error| BackendError::Start(error.to_string()))
}

/// All devices, the processor included.
pub fn devices() -> Vec<LlamaBackendDevice> {
    list_llama_ggml_backend_devices()
}

/// Memory that GPUs have free now, bytes.
pub fn free_gpu_memory() -> u64 {
    let gpus = devices().into_iter().filter(|device| device.device_type == LlamaBackendDeviceType::Gpu);
    gpus.map(|device| device.memory_free as u64).sum()
}

/// File name of the processor variant in use, such as `libggml-cpu-sapphirerapids.so`, where it can be told.
pub fn cpu_variant() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("ggml-cpu"))?;
    Some(Path::new(path).file_name()?.to_string_lossy().into_owned())
}

/// Where back ends may lie, in the order of preference.
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
