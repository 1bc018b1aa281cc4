//! ONNX Runtime's shared library: found and opened once in a process, before the sandbox is applied.

use std::{
    env, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use island_runtimes_api::Unavailable;
use ort::environment::Environment;

/// Environment variable that disables the library's telemetry.
pub const SILENT: &str = "ORT_DISABLE_TELEMETRY";
/// Environment variable by which the WebGPU plugin offers a device though the library found no GPU in `/sys/class/drm`. There are systems on
/// which drivers list none there.
const OFFER: &str = "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER";
/// Environment variable with the value that [`OFFER`] had at first: whether GPUs that the processor emulates may be used, for tests.
const SOFTWARE: &str = "ISLAND_SOFTWARE_GPU";
/// Names of the library in system folders.
const SYSTEM_NAMES: [&str; 3] = ["libonnxruntime.so", "libonnxruntime.so.1", "libonnxruntime.dylib"];

/// Opens the library: the one at `ORT_DYLIB_PATH`, next to this program, installed by `make setup`, or the system's.
pub fn open() -> Result<&'static Environment, Unavailable> {
    static OPENED: OnceLock<Result<Environment, Unavailable>> = OnceLock::new();
    OPENED.get_or_init(try_open).as_ref().map_err(Clone::clone)
}

/// Executes this program again with the environment that the library needs, unless it has it: telemetry is disabled, and the WebGPU plugin
/// offers a device. The library reads the environment when it is opened, and a program cannot safely change its own. Returns only if nothing
/// is missing, or with the error of the execution.
pub fn set_environment() -> io::Result<()> {
    if env::var_os(SILENT).is_some() && env::var_os(SOFTWARE).is_some() {
        return Ok(());
    }
    let program = env::current_exe()?;
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1)).env(SILENT, "1");
    Err(again.env(SOFTWARE, if allows_software() { "1" } else { "0" }).env(OFFER, "1").exec())
}

/// Whether GPUs that the processor emulates may be used.
pub(crate) fn allows_software() -> bool {
    env::var_os(SOFTWARE).or_else(|| env::var_os(OFFER)).is_some_and(|value| value == "1")
}

/// Folders in which plugins lie: that of the library, and those in which the library is looked for.
pub(crate) fn plugin_folders() -> Vec<PathBuf> {
    let own = FOUND.get().and_then(|path| path.canonicalize().ok()?.parent().map(Path::to_owned));
    own.into_iter().chain(folders()).collect()
}

/// Its version: from the file's name; the library itself reports only the commit it was built from.
pub fn version() -> String {
    if let Some(version) = FOUND.get().and_then(|path| version_in(path)) {
        return version;
    }
    let commit = ort::info().split(", ").find_map(|part| part.strip_prefix("git-commit-id="));
    commit.map_or_else(|| "of unknown version".to_owned(), |commit| format!("commit {commit}"))
}

fn version_in(path: &Path) -> Option<String> {
    let whole = path.canonicalize().ok()?;
    let (_, version) = whole.file_name()?.to_str()?.split_once(".so.")?;
    Some(version.to_owned())
}

/// Where it was found.
static FOUND: OnceLock<PathBuf> = OnceLock::new();

fn try_open() -> Result<Environment, Unavailable> {
    if env::var_os(SILENT).is_none() {
        return Err(Unavailable {
            reason: format!("ONNX Runtime would send telemetry: {SILENT} is not set"),
        });
    }
    if let Some(given) = env::var_os("ORT_DYLIB_PATH").map(PathBuf::from) {
        return init(&given).map_err(|error| Unavailable {
            reason: format!("the ONNX Runtime at ORT_DYLIB_PATH cannot be opened: {error}"),
        });
    }
    let known = folders().into_iter().flat_map(|folder| SYSTEM_NAMES.map(|name| folder.join(name)));
    if let Some(path) = known.into_iter().find(|path| path.is_file()) {
        return init(&path).map_err(|error| Unavailable {
            reason: format!("the ONNX Runtime at {} cannot be opened: {error}", path.display()),
        });
    }
    let mut last = String::new();
    for name in SYSTEM_NAMES {
        match init(Path::new(name)) {
            Ok(environment) => return Ok(environment),
            Err(error) => last = error,
        }
    }
    let help = "run `make setup`, or set ORT_DYLIB_PATH to the library";
    Err(Unavailable { reason: format!("ONNX Runtime is not installed ({last}): {help}") })
}

fn folders() -> Vec<PathBuf> {
    let program = env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    // Cargo puts the programs of tests and examples into folders of their own.
    let is_inner = |folder: &&Path| folder.ends_with("deps") || folder.ends_with("examples");
    let above = beside.filter(is_inner).and_then(Path::parent);
    let near = |folder: &Path| [folder.to_owned(), folder.join("../lib/island")];
    beside.into_iter().chain(above).flat_map(near).collect()
}

fn init(path: &Path) -> Result<Environment, String> {
    let builder = ort::init_from(path).map_err(|error| error.to_string())?;
    let _ = FOUND.set(path.to_owned());
    builder.with_name("island").with_telemetry(false).build().map_err(|error| error.to_string())
}
