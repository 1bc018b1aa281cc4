//! GPUs: llama.cpp's modules for them, and the devices that those find.
//!
//! Modules are separate libraries, in a folder each below that of the processor variants. They are loaded by workers that were granted a
//! GPU, inside the sandbox, and by probes: drivers start threads, and a CUDA device takes memory as soon as its size is read.

use std::{
    ffi::CStr,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use island_protocol::{
    host::Device,
    job::{Failure, FailureCode},
};
use island_runtimes_worker::launch::GpuGrant;
use llama_cpp_2::{
    LlamaBackendDevice, LlamaBackendDeviceType, list_llama_ggml_backend_devices,
    llama_backend::load_backends_from_path,
};

mod cuda;

/// Modules by the name of their folder and programming interface; earlier ones are preferred for a GPU that several of them find. On macOS
/// Metal, which starts no driver of its own, is loaded with the processor variant.
const MODULES: &[&str] = if cfg!(target_os = "macos") { &[] } else { &[CUDA, "vulkan"] };
const CUDA: &str = "cuda";
/// What the names of Vulkan devices that a processor emulates contain.
const SOFTWARE: [&str; 2] = ["llvmpipe", "swiftshader"];

/// A GPU that llama.cpp can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its index in llama.cpp's list of all devices.
    pub index: usize,
    /// What it is.
    pub device: Device,
    /// Free memory when the list was made, bytes.
    pub free: u64,
}

/// A GPU that a model is placed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The GPU.
    pub gpu: Gpu,
    /// Memory that the model may use, bytes; not more than is free.
    pub limit: u64,
}

/// A module, and why it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name: `cuda` or `vulkan`.
    pub name: &'static str,
    /// The reason, with what to do about it.
    pub problem: Option<String>,
}

/// Loads the modules below `backends`, when first called.
pub fn load(backends: &Path) -> &'static [Module] {
    static LOADED: OnceLock<Vec<Module>> = OnceLock::new();
    LOADED.get_or_init(|| MODULES.iter().map(|name| load_one(backends, name)).collect())
}

/// Folders that contain modules, which the sandbox of a worker with a GPU must allow to be loaded.
pub fn folders(backends: &Path) -> Vec<PathBuf> {
    MODULES.iter().map(|name| backends.join(name)).filter(|folder| folder.is_dir()).collect()
}

fn load_one(backends: &Path, name: &'static str) -> Module {
    let folder = backends.join(name);
    let library = folder.join(format!("libggml-{name}.so"));
    if !library.is_file() {
        let problem = format!("no {name} module: {} does not exist", library.display());
        return Module { name, problem: Some(problem) };
    }
    if let Some(problem) = other_version(&folder) {
        tracing::warn!(module = name, problem, "the module is not used");
        return Module { name, problem: Some(problem) };
    }
    let count = |devices: &[LlamaBackendDevice]| {
        devices.iter().filter(|device| device.backend.eq_ignore_ascii_case(name)).count()
    };
    // llama.cpp skips a library that cannot be loaded.
    load_backends_from_path(&folder);
    let found = count(&list_llama_ggml_backend_devices());
    let problem = (found == 0).then(|| module::problem(&library));
    if let Some(problem) = &problem {
        tracing::warn!(module = name, problem, "the module cannot be used");
    }
    Module { name, problem }
}

/// Returns why a module of other sources than this worker's is not used: its structures could differ, and ggml's own version of the interface
/// changes seldom. A package with a module can be older than that of the worker.
fn other_version(folder: &Path) -> Option<String> {
    const OWN: &str = env!("ISLAND_GGML_VERSION");
    let found = fs::read_to_string(folder.join("version")).unwrap_or_default();
    let found = found.trim();
    (found != OWN).then(|| {
        let found = if found.is_empty() { "unknown" } else { found };
        format!(
            "the module in {} is of version {found} of llama.cpp's sources, this worker of {OWN}: install both from the same release",
            folder.display()
        )
    })
}

/// The GPUs that the loaded modules find. One that several find is listed once, for the preferred module that has code for it.
pub fn all() -> Vec<Gpu> {
    let mut found: Vec<Gpu> = list_llama_ggml_backend_devices().into_iter().filter_map(gpu).collect();
    found.retain(|gpu| unsupported(&gpu.device).is_none());
    preferred(found, is_compiled)
}

/// Orders GPUs by their modules, those whose code the driver would have to compile last, and removes repeated ones.
fn preferred(mut found: Vec<Gpu>, is_compiled: impl Fn(&Device) -> bool) -> Vec<Gpu> {
    let rank = |device: &Device| MODULES.iter().position(|name| *name == device.api).unwrap_or(MODULES.len());
    found.sort_by_cached_key(|gpu| (is_compiled(&gpu.device), rank(&gpu.device), gpu.index));
    unique(found)
}

/// The GPUs that a module finds and cannot use: the module's name and the reason.
pub fn problems() -> Vec<(&'static str, String)> {
    let found = list_llama_ggml_backend_devices().into_iter().filter_map(gpu);
    let described = |gpu: Gpu| Some((CUDA, format!("{}: {}", gpu.device.name, unsupported(&gpu.device)?)));
    found.filter_map(described).collect()
}

fn unsupported(device: &Device) -> Option<String> {
    if device.api == CUDA { cuda::problem(device.address.as_deref()?) } else { None }
}

fn is_compiled(device: &Device) -> bool {
    device.api == CUDA && device.address.as_deref().is_some_and(cuda::is_compiled)
}

fn gpu(device: LlamaBackendDevice) -> Option<Gpu> {
    let is_gpu =
        matches!(device.device_type, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu);
    let lower = device.description.to_lowercase();
    is_gpu.then(|| Gpu {
        index: device.index,
        free: free_bytes(device.memory_free, device.memory_total),
        device: Device {
            api: api(&device.backend),
            address: address(device.index),
            memory_mb: device.memory_total as u64 >> 20,
            is_software: SOFTWARE.iter().any(|name| lower.contains(name)),
            name: device.description,
        },
    })
}

/// Free memory of a device, bytes. Vulkan subtracts what is in use from what this process may use, without regard to their order: where other
/// programs have taken it, the result is beyond the total, and nothing is free.
fn free_bytes(free: usize, total: usize) -> u64 {
    if free > total { 0 } else { free as u64 }
}

/// The name of a programming interface: that of llama.cpp in lower case, but for Metal, which it abbreviates.
fn api(backend: &str) -> String {
    let name = backend.to_lowercase();
    if name == "mtl" { "metal".to_owned() } else { name }
}

/// Removes GPUs whose address an earlier one has.
fn unique(found: Vec<Gpu>) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for gpu in found {
        let is_known =
            |known: &Gpu| known.device.address.is_some() && known.device.address == gpu.device.address;
        if !gpus.iter().any(is_known) {
            gpus.push(gpu);
        }
    }
    gpus
}

/// The PCI address of a device, in lower case.
#[expect(unsafe_code, reason = "the bindings leave out this property")]
fn address(index: usize) -> Option<String> {
    // SAFETY: the index is of llama.cpp's list, which only grows; the properties are plain data, and their texts live as long as the device.
    let id = unsafe {
        let device = llama_cpp_sys_2::ggml_backend_dev_get(index);
        let mut properties = std::mem::zeroed();
        llama_cpp_sys_2::ggml_backend_dev_get_props(device, &raw mut properties);
        (!properties.device_id.is_null()).then(|| CStr::from_ptr(properties.device_id))
    };
    Some(id?.to_string_lossy().to_lowercase()).filter(|id| !id.is_empty())
}

/// Free memory of these GPUs now, bytes. Of one that is not found any more, what was free when it was listed.
pub fn free(placed: &[Placed]) -> Vec<u64> {
    let now = list_llama_ggml_backend_devices();
    let free = |placed: &Placed| {
        now.iter()
            .find(|device| device.index == placed.gpu.index)
            .map_or(placed.gpu.free, |device| free_bytes(device.memory_free, device.memory_total))
    };
    placed.iter().map(free).collect()
}

/// Memory that this process has taken of these GPUs since they were listed, bytes.
pub fn used(placed: &[Placed]) -> u64 {
    let taken = |(placed, free): (&Placed, u64)| placed.gpu.free.saturating_sub(free);
    placed.iter().zip(free(placed)).map(taken).sum()
}

/// Finds the granted GPUs. Fails if one is not among them: a model must not use another instead.
pub fn place(grants: &[GpuGrant], gpus: &[Gpu]) -> Result<Vec<Placed>, Failure> {
    // The agent or the driver may not know the address of the only GPU.
    let only = gpus.first().filter(|_| gpus.len() == 1 && grants.len() == 1);
    // Several that are emulated have none. If all of them are granted, their order does not matter.
    let nameless: Vec<&Gpu> = gpus.iter().filter(|gpu| gpu.device.address.is_none()).collect();
    let are_all_granted = nameless.len() == grants.iter().filter(|grant| grant.address.is_none()).count();
    let mut nameless = nameless.into_iter().filter(|_| are_all_granted);
    let mut find = |grant: &GpuGrant| match &grant.address {
        Some(granted) => {
            let is_same = |found: &String| granted.eq_ignore_ascii_case(found);
            let known = gpus.iter().find(|gpu| gpu.device.address.as_ref().is_some_and(is_same));
            known.or(only.filter(|gpu| gpu.device.address.is_none()))
        }
        None => only.or_else(|| nameless.next()),
    };
    let placed = |grant: &GpuGrant| {
        let gpu = find(grant).ok_or_else(|| missing(grant, gpus))?;
        Ok(Placed { limit: gpu.free.min(grant.memory_mb << 20), gpu: gpu.clone() })
    };
    grants.iter().map(placed).collect()
}

/// Leaves `bytes` of the memory that a model may use for what is loaded beside it: of several GPUs, of each in proportion, as layers are
/// divided.
pub fn set_aside(placed: Vec<Placed>, bytes: u64) -> Vec<Placed> {
    let all: u128 = placed.iter().map(|placed| u128::from(placed.limit)).sum();
    let part = |limit: u64| (u128::from(bytes) * u128::from(limit)).div_ceil(all.max(1));
    let less = |placed: Placed| Placed {
        limit: placed.limit.saturating_sub(u64::try_from(part(placed.limit)).unwrap_or(u64::MAX)),
        ..placed
    };
    placed.into_iter().map(less).collect()
}

fn missing(grant: &GpuGrant, gpus: &[Gpu]) -> Failure {
    let address = grant.address.as_deref().unwrap_or("no address");
    let names: Vec<String> = gpus
        .iter()
        .map(|Gpu { device, .. }| {
            format!("{} ({})", device.name, device.address.as_deref().unwrap_or("no address"))
        })
        .collect();
    let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let message = format!("find GPU {} ({address}) among those of llama.cpp: {found}", grant.index);
    Failure::of_host(FailureCode::InternalError, message)
}

mod module {
    //! Why a module finds no GPU.

    use std::path::Path;

    /// Version of the interface between ggml and its modules in the vendored sources: `GGML_BACKEND_API_VERSION`.
    const INTERFACE: i32 = 3;

    /// The beginning of what a module's entry point returns.
    #[repr(C)]
    struct Registry {
        interface: i32,
    }

    /// Finds out why a module that llama.cpp was asked to load found no device.
    #[expect(unsafe_code, reason = "llama.cpp does not report the reason")]
    pub(super) fn problem(library: &Path) -> String {
        // As llama.cpp does it: a function that no library has is found out at once.
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
        // SAFETY: llama.cpp has just run the same initializers, or failed to.
        let opened = match unsafe { libloading::os::unix::Library::open(Some(library), flags) } {
            Ok(opened) => opened,
            Err(error) => return format!("load {}: {}", library.display(), cause(&error)),
        };
        // SAFETY: the entry point of every module, without arguments; the result is null or begins with the version.
        let interface = unsafe {
            let entry = opened.get::<unsafe extern "C" fn() -> *const Registry>(b"ggml_backend_init");
            entry.ok().and_then(|init| init().as_ref().map(|registry| registry.interface))
        };
        match interface {
            Some(INTERFACE) => "its driver reports no GPU".to_owned(),
            Some(other) => format!(
                "{} has version {other} of the interface to ggml, this worker has version {INTERFACE}: install both from the same release",
                library.display()
            ),
            None => format!("{} is not a module of ggml, or its driver does not start", library.display()),
        }
    }

    fn cause(error: &libloading::Error) -> String {
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: usize, api: &str, address: Option<&str>) -> Gpu {
        let device = Device {
            api: api.to_owned(),
            name: format!("card {index}"),
            address: address.map(str::to_owned),
            ..Device::default()
        };
        Gpu { index, device, free: 8 << 30 }
    }

    fn grant(address: Option<&str>, memory_mb: u64) -> GpuGrant {
        GpuGrant { index: 0, address: address.map(str::to_owned), memory_mb }
    }

    #[test]
    fn a_gpu_of_two_modules_is_one() {
        let found = vec![
            gpu(1, "cuda", Some("0000:01:00.0")),
            gpu(3, "vulkan", Some("0000:01:00.0")),
            gpu(4, "vulkan", Some("0000:02:00.0")),
            gpu(5, "vulkan", None),
            gpu(6, "vulkan", None),
        ];
        let indices: Vec<usize> = unique(found).iter().map(|gpu| gpu.index).collect();
        assert_eq!(indices, [1, 4, 5, 6], "without an address, nothing is known to be the same");
    }

    #[test]
    fn vulkan_is_preferred_where_the_driver_would_compile_the_code_of_cuda() {
        let (first, second, third) = (Some("0000:01:00.0"), Some("0000:02:00.0"), Some("0000:03:00.0"));
        let found = vec![
            gpu(0, "cuda", first),
            gpu(1, "cuda", second),
            gpu(2, "cuda", third),
            gpu(3, "vulkan", first),
            gpu(4, "vulkan", second),
        ];
        let is_newer = |device: &Device| device.api == CUDA && device.address.as_deref() != first;
        let indices: Vec<usize> = preferred(found, is_newer).iter().map(|gpu| gpu.index).collect();
        assert_eq!(indices, [0, 4, 2], "the third GPU has no driver for Vulkan");
    }

    #[test]
    fn memory_that_others_have_taken_is_not_free() {
        assert_eq!(free_bytes(3 << 30, 8 << 30), 3 << 30);
        assert_eq!(free_bytes(8 << 30, 8 << 30), 8 << 30);
        let budget_below_use = (2_usize << 30).wrapping_sub(3 << 30);
        assert_eq!(free_bytes(budget_below_use, 8 << 30), 0);
    }

    #[test]
    fn what_is_loaded_beside_a_model_is_left_free_of_each_gpu_in_proportion() {
        let limits = |limits: &[u64], bytes| -> Vec<u64> {
            let placed = limits.iter().map(|&limit| Placed { gpu: gpu(0, "vulkan", None), limit });
            set_aside(placed.collect(), bytes).iter().map(|placed| placed.limit).collect()
        };
        assert_eq!(limits(&[1000], 100), [900]);
        assert_eq!(limits(&[1000, 3000], 100), [975, 2925]);
        assert_eq!(limits(&[1000, 3000], 1), [999, 2999], "rounded up");
        assert_eq!(limits(&[1000], 2000), [0]);
        assert_eq!(limits(&[1000, 3000], 0), [1000, 3000]);
        assert_eq!(limits(&[0], 100), [0]);
    }

    #[test]
    fn a_granted_gpu_is_found_by_its_address_or_the_load_fails() {
        let gpus = [gpu(1, "cuda", Some("0000:0a:00.0")), gpu(2, "vulkan", Some("0000:02:00.0"))];
        let placed = place(&[grant(Some("0000:0A:00.0"), 4096), grant(Some("0000:02:00.0"), 20_000)], &gpus);
        let placed = placed.expect("both are there");
        let limits: Vec<(usize, u64)> =
            placed.iter().map(|placed| (placed.gpu.index, placed.limit)).collect();
        assert_eq!(limits, [(1, 4 << 30), (2, 8 << 30)], "not more than is free");
        let failure = place(&[grant(Some("0000:03:00.0"), 4096)], &gpus).expect_err("another GPU");
        assert!(
            failure.message.contains("0000:03:00.0") && failure.message.contains("card 2"),
            "{failure:?}"
        );
        assert!(place(&[grant(None, 4096)], &gpus).is_err(), "which of two is unknown");
        assert!(place(&[grant(None, 4096)], &gpus[..1]).is_ok(), "the only one");
        assert!(place(&[grant(None, 4096)], &[]).is_err());
        let nameless = [gpu(1, "vulkan", None), gpu(2, "vulkan", None)];
        assert!(place(&[grant(Some("0000:03:00.0"), 4096)], &nameless[..1]).is_ok(), "the only one");
        assert!(place(&[grant(None, 4096)], &nameless).is_err(), "which of two is unknown");
        let both = place(&[grant(None, 4096), grant(None, 4096)], &nameless).expect("all there are");
        assert_eq!(both.iter().map(|placed| placed.gpu.index).collect::<Vec<_>>(), [1, 2]);
    }
}
